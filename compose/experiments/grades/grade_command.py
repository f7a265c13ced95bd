"""`vllm-slo experiment grade`: the criteria of seed 003, from what experiments have measured."""

import argparse
from pathlib import Path

from rich.console import Console

from compose.experiments.grades.criteria import Grade, graded
from compose.experiments.grades.measured_cells import read_measured
from compose.experiments.grades.running_costs import Prices, cost_table
from compose.experiments.report.tables import print_grid
from exporters.text.errors import UsageError
from loadgen.run.settings import number

_PRICES = {
    "gpu_hour": "price of an hour of all GPUs of the engine",
    "api_prompt": "price of a million prompt tokens of an API, in the same currency",
    "api_completion": "price of a million completion tokens of that API",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="output folders of experiments")
    for name, text in _PRICES.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=_price, metavar="PRICE", help=text)
    parser.set_defaults(run=run)


def _price(text: str) -> float:
    if not 0 < (value := number(text)) < float("inf"):
        raise argparse.ArgumentTypeError(f"invalid price {text!r}; write a number above 0, such as 2.5")
    return value


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
    if prices is not None and (real := [cell for cell in cells if not cell.simulated]):
        print()
        print_grid(cost_table(real, prices), Console())
    counts = ", ".join(f"{sum(each.grade is grade for each in found)} {grade.value}" for grade in Grade)
    print(f"\n{counts}")
    return 1 if any(each.grade is Grade.FAIL for each in found) else 0


def _prices(arguments: argparse.Namespace) -> Prices | None:
    given = {name: getattr(arguments, name) for name in _PRICES}
    missing = [f"--{name.replace('_', '-')}" for name, value in given.items() if value is None]
    if 0 < len(missing) < len(given):
        raise UsageError(f"{', '.join(missing)}: missing; the costs need all of the three prices, or none")
    return None if missing else Prices(**given)
