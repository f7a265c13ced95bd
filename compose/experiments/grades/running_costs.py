"""The cost of an hour of a GPU beside that of the same tokens from an API."""

from collections.abc import Sequence
from dataclasses import dataclass

from alerts.prices import ApiPrice
from compose.experiments.grades.measured_cells import MeasuredCell
from compose.experiments.report.tables import Grid
from loadgen.results.record import ClientOutcome

_HOUR = 3600.0
_MILLION = 1e6


@dataclass(frozen=True, slots=True)
class RunningCost:
    """The tokens of completed requests in an hour at the rate of a cell, in millions, and what an API costs for them.

    Prompt tokens from the prefix cache count as others: APIs have prices of their own for them.
    """

    prompt: float
    completion: float
    api: float

    @classmethod
    def of(cls, cell: MeasuredCell, api: ApiPrice) -> "RunningCost":
        hours = cell.run.seconds / _HOUR
        ended = [record for record in cell.sent if record.outcome is ClientOutcome.OK]
        prompt = sum(record.prompt_tokens or 0 for record in ended) / _MILLION / hours
        completion = sum(record.completion_tokens or 0 for record in ended) / _MILLION / hours
        return cls(prompt, completion, prompt * api.prompt + completion * api.completion)


def cost_table(cells: Sequence[MeasuredCell], hour: float, api: ApiPrice) -> Grid:
    """A row for each cell; all figures are of one hour, whose GPUs cost `hour`."""
    rows = []
    for cell in cells:
        cost = RunningCost.of(cell, api)
        ratio = f"{hour / cost.api:.2f}" if cost.api else "-"
        figures = (f"{cost.prompt:.2f}", f"{cost.completion:.2f}", f"{hour:.2f}", f"{cost.api:.2f}", ratio)
        rows.append([f"{cell.name}, repeat {cell.cell.repeat}", *figures])
    headings = ("cell", "prompt tokens, M", "completion tokens, M", "GPU", "API", "GPU / API")
    return Grid("one hour", headings, rows, labels=1)
