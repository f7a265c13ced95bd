"""`vllm-slo experiment grade`: the criteria of seed 003, from what experiments have measured."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from alerts.prices import ApiPrice, Prices, add_price_flags, parse_prices
from compose.experiments.grades.criteria import Grade, graded
from compose.experiments.grades.measured_cells import MeasuredCell, read_measured
from compose.experiments.report.tables import Grid, print_grid
from exporters.text.errors import UsageError
from loadgen.results.record import ClientOutcome

_HOUR = 3600.0
_MILLION = 1e6


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="output folders of experiments")
    add_price_flags(parser, "calculate the cost of an hour", "compare it with the cost of the same tokens")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Exit status 1 when a criterion fails; an unknown one does not."""
    prices = _prices(arguments)
    cells = read_measured(arguments.folders)
    found = [*graded(cells, prices)]
    engines = dict.fromkeys(
        f"{cell.experiment.name} by {cell.experiment.engine}{', in virtual time' if cell.experiment.virtual else ''}"
        for cell in cells
    )
    print(f"{len(cells)} valid cells: {'; '.join(engines) or 'none'}")
    for each in found:
        print(f"\n{each.grade.value:<8} {each.item}: {each.criterion}\n         {each.evidence}")
        if each.needed:
            print(f"         needed: {each.needed}")
    if prices and prices.api and (real := [cell for cell in cells if not cell.simulated]):
        print()
        print_grid(cost_table(real, prices.hour, prices.api), Console())
    counts = ", ".join(f"{sum(each.grade is grade for each in found)} {grade.value}" for grade in Grade)
    print(f"\n{counts}")
    return 1 if any(each.grade is Grade.FAIL for each in found) else 0


def _prices(arguments: argparse.Namespace) -> Prices | None:
    prices = parse_prices(arguments.gpu_hour_price, arguments.gpus, arguments.api_price)
    if prices is not None and prices.api is None:
        raise UsageError("--gpu-hour-price: needs a price to compare with; add --api-price IN/OUT")
    return prices


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
