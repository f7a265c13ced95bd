"""Sections of an experiment file: predictions, figures of the source, a score, the range of a search, a sweep."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Annotated

from compose.experiments.setup.cell_store import Criterion, ExpectedFigure, Prediction
from exporters.text.yaml_keys import COUNT, Kind, distinct_list_of, matched, read
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

_VALUE = matched(
    "[A-Za-z0-9.-]+",
    lambda found: found[0],
    "cannot be a part of a name; only letters, digits, . and - can; list configurations",
)
_VALUES = distinct_list_of(_VALUE, "is empty; write the values of the flag, such as [64, 128]")


def _sweep(node: Node) -> Mapping[str, tuple[str, ...]]:
    found = {name: _VALUES.read(values) or () for name, values in node.entries()}
    for name, values in node.entries():
        plain = name.lstrip("-").replace("_", "-")
        if name != plain:
            values.problem(f"{name!r} is not the name of a flag; write {plain!r}")
    if not found and not node.reader.problems:
        node.problem("has no flag; add one, such as max-num-seqs: [64, 128]")
    return found


SWEEP = Kind(_sweep, {})


def grid(sweep: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, Mapping[str, str]]]:
    """The flags of each cell, and its name, such as `max-num-seqs=64_block-size=16`."""
    for values in product(*sweep.values()) if sweep else ():
        flags = dict(zip(sweep, values, strict=True))
        yield "_".join(f"{flag}={value}" for flag, value in flags.items()), flags
