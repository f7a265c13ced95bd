"""The sections of an experiment file: predictions, figures of the source, a score, and the range of a search."""

import math
from dataclasses import dataclass, fields
from functools import partial
from typing import Annotated, Any, TypeVar

from compose.experiments.setup.cell_store import Criterion, Direction, ExpectedFigure, Metric, Prediction, Scoring
from exporters.text.yaml_keys import COUNT, TEXT, Key, Kind, choice, read
from exporters.text.yaml_reader import Node
from loadgen.schedule.phases import POSITIVE
from loadgen.search.rate_search import FINEST, Limits

_T = TypeVar("_T")
_NUMBER = Kind(Node.number, {})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    configuration: Annotated[str, Key(TEXT)]
    request_class: Annotated[str, Key(TEXT, name="class")] = ""
    metric: Annotated[Metric, Key(choice(Metric))]
    rate: Annotated[float | None, Key(POSITIVE)] = None
    concurrency: Annotated[int | None, Key(COUNT)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prediction(_Claim):
    """A direction from a baseline, or an interval."""

    baseline: Annotated[str | None, Key(TEXT)] = None
    direction: Annotated[Direction | None, Key(choice(Direction))] = None
    low: Annotated[float | None, Key(_NUMBER)] = None
    high: Annotated[float | None, Key(_NUMBER)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Expected(_Claim):
    value: Annotated[float, Key(_NUMBER)]
    note: Annotated[str, Key(TEXT)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Criterion:
    metric: Annotated[Metric, Key(choice(Metric))]
    points: Annotated[float, Key(POSITIVE)]
    by: Annotated[Scoring, Key(choice(Scoring))]
    value: Annotated[float, Key(POSITIVE)]


def _read(keys: type, made: type[_T], node: Node) -> _T:
    """Read the keys of a mapping, and make the value that is stored."""
    found: Any = read(keys, node)
    return made(**{field.name: getattr(found, field.name) for field in fields(keys)})


def _prediction(node: Node) -> Prediction:
    found = _read(_Prediction, Prediction, node)
    by_direction = found.direction is not None and found.baseline is not None
    by_interval = found.low is not None or found.high is not None
    if not node.reader.problems and by_direction == by_interval:
        node.problem("needs baseline and direction, or low or high; write one of them")
    return found


PREDICTION = Kind(_prediction, {})
EXPECTED = Kind(partial(_read, _Expected, ExpectedFigure), {})
CRITERION = Kind(partial(_read, _Criterion, Criterion), {})

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


def _search_limits(node: Node) -> SearchLimits:
    found = read(SearchLimits, node)
    if not node.reader.problems and found.highest <= found.lowest:
        node.mapping()["highest"].problem(f"{found.highest:g} is not above lowest, {found.lowest:g}")
    return found


FIND_MAX = Kind(_search_limits, {})
