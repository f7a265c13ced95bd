"""Which of the requests that were found are printed, and in which order, in bounded memory."""

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from exporters.analysis.requests.conditions import Row
from exporters.analysis.requests.log_fields import TEXTS

MOST_SORTED = 100_000
"""Requests that are sorted in memory if there is no limit: about 100 MB."""

Match = tuple[Row, bytes]


@dataclass(slots=True)
class Selection:
    """The first `limit` requests by the field `sort`; without it, the last ones of the log, or all if unlimited."""

    sort: str | None
    ascending: bool
    limit: int | None
    found: int = field(default=0, init=False)
    """Requests that were found."""

    def lines(self, matches: Iterable[Match]) -> Iterable[bytes]:
        """The lines of the selected requests; those without a value of the sorted field are last."""
        counted = self._count(matches)
        if self.sort is None:
            lines = (line for _, line in counted)
            return lines if self.limit is None else deque(lines, maxlen=self.limit)
        name, smallest_first = self.sort, self.ascending or self.sort in TEXTS

        def key(match: Match) -> tuple[object, ...]:
            value = getattr(match[0], name)
            return (smallest_first,) if value is None else (not smallest_first, value)

        first = heapq.nsmallest if smallest_first else heapq.nlargest
        return [line for _, line in first(self.limit or MOST_SORTED, counted, key=key)]

    def _count(self, matches: Iterable[Match]) -> Iterator[Match]:
        for match in matches:
            self.found += 1
            yield match
