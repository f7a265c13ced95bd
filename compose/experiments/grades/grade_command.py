"""`vllm-slo experiment grade`: the criteria of seed 003, from what experiments have measured."""

import argparse
from pathlib import Path

from rich.console import Console

from alerts.prices import Prices, add_price_flags, parse_prices
from compose.experiments.grades.criteria import Grade, graded
from compose.experiments.grades.measured_cells import read_measured
from compose.experiments.grades.running_costs import cost_table
from compose.experiments.report.tables import print_grid
from exporters.text.errors import UsageError


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
