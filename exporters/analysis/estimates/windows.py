"""The two equal windows that are compared, and the excluded time between them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

from exporters.text.errors import UsageError
from exporters.text.units import spell_duration


@dataclass(frozen=True, slots=True)
class Window:
    """A half-open interval in unix seconds: without its end."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        """0 for a window that would end before it starts."""
        return max(self.end - self.start, 0.0)

    def contains(self, moment: float) -> bool:
        return self.start <= moment < self.end


@dataclass(frozen=True, slots=True)
class Change:
    """A config change at some time from `start` to `end` (unix seconds); `text` has the old and the new value."""

    start: float
    end: float
    text: str

    def overlaps(self, start: float, end: float) -> bool:
        return self.start <= end and start <= self.end

    def extended(self, start: float, end: float) -> Self:
        return replace(self, start=min(self.start, start), end=max(self.end, end))


@dataclass(frozen=True, slots=True)
class Plan:
    """The windows that are compared; `shortened` is the reason if they are shorter than requested."""

    change: Change
    restart: Window | None
    before: Window
    after: Window
    shortened: str = ""


@dataclass(frozen=True, slots=True)
class Coverage:
    """The time that the records cover; `name` is used in messages, such as "the log"."""

    start: float
    end: float
    name: str


def plan(
    change: Change,
    *,
    others: Iterable[Change],
    outages: Iterable[Window],
    window: float,
    settle: float,
    coverage: Coverage,
) -> Plan:
    """Two equal windows without another change: one ends at the change, the other starts `settle` seconds after it.

    A change or a restart within `settle` of the change is part of it.

    Raises:
        UsageError: a window would be empty.
    """
    restart: Window | None = None
    others = sorted(others, key=lambda other: other.start)
    parts = [change]
    for other in others:
        if other != parts[0] and other.overlaps(change.start - settle, change.end + settle):
            change = change.extended(other.start, other.end)
            parts.append(other)
    change = replace(change, text="; ".join(part.text for part in sorted(parts, key=lambda part: part.start)))
    for outage in outages:
        if change.overlaps(outage.start - settle, outage.end + settle):
            restart = outage if restart is None else Window(min(restart.start, outage.start), outage.end)
            change = change.extended(outage.start, outage.end)
    resumed = change.end + settle
    earliest = [
        (other.end + settle, "another change is close before it") for other in others if other.end < change.start
    ]
    latest = [(other.start, "another change is close after it") for other in others if other.start > change.end]
    since, why_since = max([(coverage.start, f"{coverage.name} starts soon before the change"), *earliest])
    until, why_until = min([(coverage.end, f"{coverage.name} ends soon after the change"), *latest])
    available, why = min((change.start - since, why_since), (until - resumed, why_until))
    if available <= 0:
        raise UsageError(
            f"--around: nothing to compare: with {spell_duration(settle)} settling time one window is empty: {why}; "
            "choose another change, a shorter --settle, or wait"
        )
    length = min(window, available)
    shortened = "" if available >= window else f"{spell_duration(window)} requested, but {why}"
    return Plan(
        change, restart, Window(change.start - length, change.start), Window(resumed, resumed + length), shortened
    )
