"""The key `find_max` of an experiment file: the range in which the largest rate that meets every SLO is searched."""

import math
from dataclasses import dataclass
from typing import Annotated

from exporters.yaml_keys import COUNT, Key, Kind, read
from exporters.yaml_reader import Node
from loadgen.arrivals import POSITIVE
from loadgen.rate_search import FINEST, Limits

COARSEST = 1.0


def _resolution(node: Node) -> float | None:
    value = node.number()
    if value is not None and not FINEST <= value <= COARSEST:
        node.problem(f"{value:g} is not from {FINEST:g} to {COARSEST:g}; write a share of the rate, such as 0.05")
        return None
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLimits:
    """Rates in requests/s, with all turns of conversations; `requests` of each probe; `resolution` as in `Limits`."""

    lowest: Annotated[float, Key(POSITIVE)]
    highest: Annotated[float, Key(POSITIVE)]
    requests: Annotated[int, Key(COUNT)]
    resolution: Annotated[float, Key(Kind(_resolution, {}))] = 0.05

    @property
    def limits(self) -> Limits:
        """The search starts in the middle, in ratios, from which every answer is equally far."""
        return Limits(math.sqrt(self.lowest * self.highest), self.lowest, self.highest, self.resolution)


def _read(node: Node) -> SearchLimits:
    found = read(SearchLimits, node)
    if not node.reader.problems and found.highest <= found.lowest:
        node.mapping()["highest"].problem(f"{found.highest:g} is not above lowest, {found.lowest:g}")
    return found


FIND_MAX = Kind(_read, {})
