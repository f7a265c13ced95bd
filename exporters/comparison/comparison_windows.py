"""The two equal windows that are compared, and the time between them that is left out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from exporters.errors import UsageError
from exporters.quantities import spell_duration


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of time, unix seconds; the end is not in it."""

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
    """A config change, somewhere from `start` to `end` (unix seconds); `text` says from what to what."""

    start: float
    end: float
    text: str

    def overlaps(self, start: float, end: float) -> bool:
        return self.start <= end and start <= self.end

    def extended(self, start: float, end: float) -> Self:
        return replace(self, start=min(self.start, start), end=max(self.end, end))


@dataclass(frozen=True, slots=True)
class Plan:
    """The windows that are compared, and why they are shorter than wanted."""

    change: Change
    restart: Window | None
    before: Window
    after: Window
    shortened: str = ""


@dataclass(frozen=True, slots=True)
class Coverage:
    """The time for which there are records; `what` names them, such as "the log"."""

    start: float
    end: float
    what: str


def plan(
    change: Change,
    *,
    others: Iterable[Change],
    outages: Iterable[Window],
    window: float,
    settle: float,
    coverage: Coverage,
) -> Plan:
    """Equal windows up to the change and from `settle` seconds after it, as long as nothing else falls into them.

    A change or a restart within `settle` of the change belongs to it.

    Raises:
        UsageError: there is no time on one of the sides.
    """
    restart: Window | None = None
    rest = sorted(others, key=lambda other: other.start)
    parts = [change]
    for other in rest:
        if other != parts[0] and other.overlaps(change.start - settle, change.end + settle):
            change = change.extended(other.start, other.end)
            parts.append(other)
    change = replace(change, text="; ".join(part.text for part in sorted(parts, key=lambda part: part.start)))
    for outage in outages:
        if change.overlaps(outage.start - settle, outage.end + settle):
            restart = outage if restart is None else Window(min(restart.start, outage.start), outage.end)
            change = change.extended(outage.start, outage.end)
    resumed = change.end + settle
    # The later of two limits counts before the change, the earlier one after it.
    since, why_since = max([(coverage.start, f"{coverage.what} begins soon before it"), *_ends(rest, change, settle)])
    until, why_until = min([(coverage.end, f"{coverage.what} ends soon after it"), *_starts(rest, change)])
    room, why = min((change.start - since, why_since), (until - resumed, why_until))
    if room <= 0:
        raise UsageError(
            f"--around: nothing to compare: with {spell_duration(settle)} to settle no time is left on one side of the "
            f"change: {why}; choose another change, a shorter --settle, or wait"
        )
    length = min(window, room)
    shortened = "" if room >= window else f"{spell_duration(window)} asked for, but {why}"
    return Plan(
        change, restart, Window(change.start - length, change.start), Window(resumed, resumed + length), shortened
    )


def _ends(others: Sequence[Change], change: Change, settle: float) -> list[tuple[float, str]]:
    return [(other.end + settle, "another change lies close before it") for other in others if other.end < change.start]


def _starts(others: Sequence[Change], change: Change) -> list[tuple[float, str]]:
    return [(other.start, "another change lies close after it") for other in others if other.start > change.end]
