"""What the engine was doing during one request: the requests of the same log that overlap with it in time."""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from exporters.analysis.requests.conditions import Condition, Row
from exporters.analysis.requests.selection import Match
from exporters.text.errors import UsageError
from exporters.text.units import from_milliseconds

FIELDS = ("ttft_ms",)
"""Fields that a span needs, in addition to the required ones."""


@dataclass(frozen=True, slots=True)
class Span:
    """The times of a request in Unix seconds; `first_token` is None if there was none, or without a stream."""

    start: float
    first_token: float | None
    end: float
    stream: bool

    def overlap(self, other: "Span") -> float:
        """Seconds for which both requests were open; negative if they did not overlap."""
        return min(self.end, other.end) - max(self.start, other.start)


@dataclass(slots=True)
class Load:
    """The other requests that were in flight at one moment; when a unary request has its first token is unknown."""

    moment: str
    at: float
    waiting: int = 0
    streaming: int = 0
    unary: int = 0

    @property
    def in_flight(self) -> int:
        return self.waiting + self.streaming + self.unary

    def add(self, other: Span) -> None:
        if not other.start <= self.at < other.end:
            return
        if not other.stream:
            self.unary += 1
        elif other.first_token is None or other.first_token > self.at:
            self.waiting += 1
        else:
            self.streaming += 1


@dataclass(frozen=True, slots=True)
class Surroundings:
    """A request with those that overlap with it."""

    loads: tuple[Load, ...]
    others: int
    lines: tuple[bytes, ...]
    """The request and the others that overlap for longest, in order of arrival."""


def named(name: str) -> Condition:
    """The request has this `request_id` or `record`."""
    return Condition(
        ("request_id", "record"), lambda row: name in (row.request_id, row.record), (msgspec.json.encode(name),)
    )


def only_one(matches: Iterable[Match], name: str) -> Match:
    """The request that was found.

    Raises:
        UsageError: there is none, or there are several.
    """
    found = [match for _, match in zip(range(5), matches, strict=False)]
    if not found:
        raise UsageError(f"--around: no request has the request_id or record {name!r}")
    if len(found) > 1:
        records = ", ".join(f"{row.record} ({row.time.isoformat()})" for row, _ in found)
        raise UsageError(
            f"--around: several requests have the request_id {name!r}; write one of their records: {records}"
        )
    return found[0]


def span(row: Row) -> Span:
    start = row.time.timestamp()
    ttft = from_milliseconds(row.ttft_ms) if row.stream else None
    return Span(start, None if ttft is None else start + ttft, start + row.e2e_ms / 1000, row.stream)


def overlaps(request: Span) -> Condition:
    def test(row: Row) -> bool:
        start = row.time.timestamp()
        return bool(start <= request.end and start + row.e2e_ms / 1000 >= request.start)

    return Condition(FIELDS, test)


def surroundings(target: Span, line: bytes, matches: Iterable[Match], limit: int) -> Surroundings:
    """Keep at most `limit` requests, including the request itself; the other `matches` overlap with it."""
    moments = (("arrival", target.start), ("first token", target.first_token), ("end", target.end))
    loads = tuple(Load(moment, at) for moment, at in moments if at is not None)
    count = 0

    def others() -> Iterator[tuple[float, float, bytes]]:
        nonlocal count
        for each, text in matches:
            if text != line:
                count += 1
                other = span(each)
                for load in loads:
                    load.add(other)
                yield target.overlap(other), other.start, text

    # One more than is kept: for none, heapq would read none, and nothing would be counted.
    longest = heapq.nlargest(limit, others(), key=lambda other: other[0])[: limit - 1]
    kept = sorted([*((start, text) for _, start, text in longest), (target.start, line)], key=lambda each: each[0])
    return Surroundings(loads, count, tuple(text for _, text in kept))
