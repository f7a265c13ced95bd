"""What the records of a run do not contain: the gaps between all chunks, and the chunks in each second."""

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

import msgspec

from loadgen.client.completion import CompletionResponse
from loadgen.results.gap_histogram import GapHistogram
from loadgen.results.record import ClientOutcome, Record


class ChunkTotals(msgspec.Struct):
    """Gaps between chunks with a choice, and such chunks by second of the run, of the streams that ended ok."""

    gaps: GapHistogram = msgspec.field(default_factory=GapHistogram)
    seconds: dict[int, int] = {}

    def add(self, first: float, gaps: Sequence[float]) -> None:
        """Count a stream by the time of its first chunk, in seconds since the start of the run, and its gaps."""
        self.gaps.add(gaps)
        for second, count in Counter(map(int, accumulate(gaps, initial=first))).items():
            self.seconds[second] = self.seconds.get(second, 0) + count

    def add_response(self, record: Record, response: CompletionResponse) -> None:
        """Count the stream of a request, if it ended ok."""
        if record.outcome is ClientOutcome.OK and record.first_choice is not None:
            self.add(record.first_choice, response.choice_gaps)

    def merge(self, other: "ChunkTotals") -> None:
        """Add the streams of another process whose run started at the same time."""
        self.gaps.merge(other.gaps)
        for second, count in other.seconds.items():
            self.seconds[second] = self.seconds.get(second, 0) + count
