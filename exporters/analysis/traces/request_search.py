"""The query of a URL: which requests are listed, and in which order."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from exporters.text.errors import InvalidValueError
from exporters.text.units import number, parse_duration, parse_moment
from exporters.text.yaml_reader import nearest
from exporters.vocabulary.signals import Verdict

EQUAL = ("class", "tenant", "model", "route", "outcome", "request_id")
"""Parameters that are columns."""

ORDERS = {"newest": "start DESC", "slowest": "duration DESC"}
PARAMETERS = (*EQUAL, "verdict", "slo", "min_duration", "since", "until", "sort", "limit")
MOST, DEFAULT = 1_000, 100
_LONGEST = 9_000_000_000.0
"""Seconds whose nanoseconds fit SQLite's integers."""


@dataclass(frozen=True, slots=True)
class Search:
    """Conditions, all of which a request must fulfil; times are unix seconds."""

    equal: dict[str, str] = field(default_factory=dict)
    verdict: str | None = None
    slo: str | None = None
    min_duration: float = 0.0
    since: float | None = None
    until: float | None = None
    sort: str = "newest"
    limit: int = DEFAULT

    @property
    def order(self) -> str:
        return ORDERS[self.sort]

    def condition(self) -> tuple[str, list[Any]]:
        """An SQL expression with its values."""
        terms: list[tuple[str, Any]] = [(f"{name} = ?", value) for name, value in self.equal.items()]
        if self.slo is not None:
            terms.append(("instr(slos, ?)", f"\n{self.slo}={self.verdict + chr(10) if self.verdict else ''}"))
        elif self.verdict is not None:
            terms.append(("verdict = ?", self.verdict))
        terms.append(("duration >= ?", _nanoseconds(self.min_duration)))
        if self.since is not None:
            terms.append(("start >= ?", _nanoseconds(self.since)))
        if self.until is not None:
            terms.append(("start < ?", _nanoseconds(self.until)))
        return " AND ".join(term for term, _ in terms), [value for _, value in terms]


def parse_search(pairs: Iterable[tuple[str, str]], now: float) -> Search:
    """Parse the parameters of a URL; empty ones have no effect, durations are counted back from `now`.

    Raises:
        InvalidValueError: the message has a line for each mistake.
    """
    given = {name: value for name, value in pairs if value}
    mistakes = [f"{name}: unknown parameter; {nearest(name, PARAMETERS)}" for name in given if name not in PARAMETERS]

    def parsed(name: str, parse: Any, default: Any) -> Any:
        if name not in given:
            return default
        try:
            return parse(given[name])
        except InvalidValueError as error:
            mistakes.append(f"{name}: {error}")
            return default

    search = Search(
        equal={name: given[name] for name in EQUAL if name in given},
        verdict=parsed("verdict", lambda text: _one_of(text, [each.value for each in Verdict]), None),
        slo=given.get("slo"),
        min_duration=parsed("min_duration", parse_duration, 0.0),
        since=parsed("since", lambda text: parse_moment(text, now), None),
        until=parsed("until", lambda text: parse_moment(text, now), None),
        sort=parsed("sort", lambda text: _one_of(text, ORDERS), "newest"),
        limit=parsed("limit", _limit, DEFAULT),
    )
    if mistakes:
        raise InvalidValueError("\n".join(mistakes))
    return search


def link(**parameters: str) -> str:
    """The path of a list with these parameters."""
    return f"/?{urlencode(parameters)}"


def _one_of(text: str, known: Iterable[str]) -> str:
    if text not in known:
        raise InvalidValueError(f"{text!r} is unknown; {nearest(text, known)}")
    return text


def _limit(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= MOST):
        raise InvalidValueError(f"{text!r} is not a number from 1 to {number(MOST)}")
    return int(text)


def _nanoseconds(seconds: float) -> int:
    return int(max(-_LONGEST, min(seconds, _LONGEST)) * 1e9) if seconds == seconds else 0  # noqa: PLR0124 - NaN
