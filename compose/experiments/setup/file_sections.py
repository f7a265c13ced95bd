"""The sections of an experiment file: predictions, figures of the source, a score, and the range of a search."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from compose.experiments.setup.cell_store import Criterion, ExpectedFigure, Prediction
from exporters.text.yaml_keys import COUNT, Kind, read
from exporters.text.yaml_reader import Node
from loadgen.schedule.phases import POSITIVE
from loadgen.search.rate_search import FINEST, Limits


def _prediction(node: Node) -> Prediction:
    found = read(Prediction, node)
    by_direction = found.direction is not None and found.baseline is not None
    by_interval = found.low is not None or found.high is not None
    if not node.reader.problems and by_direction == by_interval:
        node.problem("needs baseline and direction, or low or high; write one of them")
    return found


PREDICTION = Kind(_prediction, {})
EXPECTED = Kind(partial(read, ExpectedFigure), {})
CRITERION = Kind(partial(read, Criterion), {})

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

    lowest: Annotated[float, POSITIVE]
    highest: Annotated[float, POSITIVE]
    requests: Annotated[int, COUNT]
    resolution: Annotated[float, Kind(_resolution, {})] = 0.05

    @property
    def limits(self) -> Limits:
        """The search starts in the middle, in ratios, from which every answer is equally far."""
        return Limits(math.sqrt(self.lowest * self.highest), self.lowest, self.highest, self.resolution)


def _search_limits(node: Node) -> SearchLimits:
    found = read(SearchLimits, node)
    if not node.reader.problems and found.highest <= found.lowest:
        node.mapping()["highest"].problem(f"{found.highest:g} is not above lowest, {found.lowest:g}")
    return found


FIND_MAX = Kind(_search_limits, {})
