"""Tables of the results: the median of the rounds, the median ratio to the peer, the minimum and the maximum."""

import math
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from exporters.text.errors import UsageError


@dataclass(frozen=True, slots=True)
class Quantity:
    """One row: the value of each proxy in each round."""

    name: str
    values: Mapping[str, list[float]]

    def ratio(self, proxy: str, peer: str) -> float:
        """The median ratio; only values of the same round are compared, because machines drift."""
        pairs = zip(self.values[proxy], self.values[peer], strict=True)
        return statistics.median([ours / theirs if theirs else math.nan for ours, theirs in pairs])


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one measure; the first proxy is the peer for all ratios."""

    title: str
    quantities: list[Quantity]
    notes: list[str] = field(default_factory=list)

    def show(self, console: Console) -> None:
        peer, *others = self.quantities[0].values
        table = Table()
        table.add_column(f"ratios to {peer}", no_wrap=True)
        for proxy in (peer, *others):
            table.add_column(proxy, justify="right")
        for quantity in self.quantities:
            cells = [
                _spread(
                    values, f"  x{_short(quantity.ratio(one, peer))}" if one != peer and peer in quantity.values else ""
                )
                if (values := quantity.values.get(one))
                else ""
                for one in (peer, *others)
            ]
            table.add_row(quantity.name, *cells)
        console.print(self.title, table, sep="\n", soft_wrap=True)
        for note in self.notes:
            console.print(f"  unreliable: {note}", soft_wrap=True)
        console.print()


def exit_status(bench: Callable[[], int]) -> int:
    """The status of a bench; 2 if the machine lacks a requirement or a program does not start, with the message."""
    try:
        return bench()
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def print_results(results: Iterable[Result]) -> None:
    """Print all tables; without a terminal they are 120 columns wide."""
    console = Console()
    if not console.is_terminal:
        console.width = 120
    for result in results:
        result.show(console)


def _spread(values: list[float], ratio: str = "") -> str:
    low, middle, high = (_short(value) for value in (min(values), statistics.median(values), max(values)))
    return f"{middle}{ratio}" + (f"\n{low}..{high}" if len(values) > 1 else "")


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
