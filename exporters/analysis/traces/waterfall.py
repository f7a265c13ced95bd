"""Orders the spans of a trace as a tree, and places them on one time axis."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from exporters.analysis.traces.span_parser import Span


@dataclass(frozen=True, slots=True)
class Axis:
    """The time from the first start to the last end, in unix nanoseconds."""

    start: int
    end: int

    def share(self, time: int) -> float:
        """The position of a time, from 0 to 1."""
        return min(max((time - self.start) / max(self.end - self.start, 1), 0.0), 1.0)


def axis(spans: Sequence[Span]) -> Axis:
    return Axis(min(span.start for span in spans), max(span.end for span in spans))


def tree(spans: Sequence[Span]) -> Iterator[tuple[Span, int]]:
    """Each span once, with its depth: parents before their children, siblings by start.

    A span without a stored parent is a root, and so is the first one of a cycle.
    """
    known = {span.span_id for span in spans}
    children: dict[str | None, list[Span]] = defaultdict(list)
    by_start = sorted(spans, key=lambda span: (span.start, -span.end))
    for span in by_start:
        children[span.parent_id if span.parent_id in known else None].append(span)
    seen: set[str] = set()
    for root in (*children[None], *by_start):
        waiting = [(root, 0)]
        while waiting:
            span, depth = waiting.pop()
            if span.span_id not in seen:
                seen.add(span.span_id)
                yield span, depth
                waiting += [(child, depth + 1) for child in reversed(children[span.span_id])]
