"""The score of the T4 challenge (seed 002): weighted throughput, latencies and success of each cell.

The challenge gives weights and limits and no normalisation. Here throughput has its full weight at the reference, in
proportion and without an upper limit. A latency has its full weight below its limit, and limit / value of it above.
Success has its weight or nothing, as it must be 100 %. The 15 points for code and documentation are not measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table

from compose.experiment.cell_store import CellStatus, StoredCell
from loadgen.request_record import Record, read_records, read_run
from loadgen.summary import TOTAL, summarise_class

REFERENCE = 3332.0
"""Output tokens/s to beat."""
THROUGHPUT, TPOT, TTFT, SUCCESS = 40.0, 20.0, 15.0, 10.0
"""Weights in points."""
TPOT_LIMIT, TTFT_LIMIT = 0.050, 2.0
"""Limits of the 99th percentiles in seconds."""


@dataclass(frozen=True, slots=True)
class Score:
    """Points by criterion."""

    throughput: float
    tpot: float
    ttft: float
    success: float

    @property
    def total(self) -> float:
        return self.throughput + self.tpot + self.ttft + self.success


def score(records: Sequence[Record], seconds: float, reference: float = REFERENCE) -> Score:
    """The score of a run of this length; a percentile that falls on a failed request has no points."""
    total = summarise_class(TOTAL, records)
    return Score(
        throughput=THROUGHPUT * total.completion_tokens / seconds / reference if seconds else 0.0,
        tpot=_latency(TPOT, total.tpot.p99, TPOT_LIMIT),
        ttft=_latency(TTFT, total.ttft.p99, TTFT_LIMIT),
        success=SUCCESS if total.offered and total.ok == total.offered else 0.0,
    )


def _latency(weight: float, value: float | None, limit: float) -> float:
    if value is None:
        return 0.0
    return weight if value < limit else weight * limit / value


def table(cells: Sequence[StoredCell], reference: float) -> Table:
    """The scores of all cells, the best first; cells without a valid measurement have none."""
    drawn = Table(box=box.SIMPLE, pad_edge=False)
    drawn.add_column("cell")
    for heading in ("throughput", "TPOT p99", "TTFT p99", "success", "total"):
        drawn.add_column(heading, justify="right")
    scored = [(each, _score_of(each, reference)) for each in cells]
    for each, found in sorted(scored, key=lambda pair: -(pair[1].total if pair[1] else 0.0)):
        name = f"{each.cell.configuration}{each.cell.level.text}, repeat {each.cell.repeat}"
        if found is None:
            drawn.add_row(name, each.cell.status.value)
            continue
        points = (found.throughput, found.tpot, found.ttft, found.success, found.total)
        drawn.add_row(name, *(f"{value:.1f}" for value in points))
    return drawn


def _score_of(stored: StoredCell, reference: float) -> Score | None:
    if stored.cell.status is not CellStatus.DONE:
        return None
    return score(read_records(stored.folder), read_run(stored.folder).seconds, reference)
