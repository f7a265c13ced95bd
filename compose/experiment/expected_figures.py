"""The sections of an experiment file with what is expected: predictions, and the figures of the source."""

from dataclasses import dataclass
from typing import Annotated

from compose.experiment.cell_store import Direction, ExpectedFigure, Metric, Prediction
from exporters.yaml_keys import COUNT, TEXT, Key, Kind, choice, read
from exporters.yaml_reader import Node
from loadgen.arrivals import POSITIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prediction:
    """A direction from a baseline, or an interval."""

    configuration: Annotated[str, Key(TEXT)]
    request_class: Annotated[str, Key(TEXT, name="class")] = ""
    metric: Annotated[Metric, Key(choice(Metric))]
    rate: Annotated[float | None, Key(POSITIVE)] = None
    concurrency: Annotated[int | None, Key(COUNT)] = None
    baseline: Annotated[str | None, Key(TEXT)] = None
    direction: Annotated[Direction | None, Key(choice(Direction))] = None
    low: Annotated[float | None, Key(Kind(Node.number, {}))] = None
    high: Annotated[float | None, Key(Kind(Node.number, {}))] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Expected:
    configuration: Annotated[str, Key(TEXT)]
    request_class: Annotated[str, Key(TEXT, name="class")] = ""
    metric: Annotated[Metric, Key(choice(Metric))]
    rate: Annotated[float | None, Key(POSITIVE)] = None
    concurrency: Annotated[int | None, Key(COUNT)] = None
    value: Annotated[float, Key(Kind(Node.number, {}))]
    note: Annotated[str, Key(TEXT)] = ""


def _prediction(node: Node) -> Prediction:
    found = read(_Prediction, node)
    by_direction = found.direction is not None and found.baseline is not None
    by_interval = found.low is not None or found.high is not None
    if not node.reader.problems and by_direction == by_interval:
        node.problem("needs baseline and direction, or low or high; write one of them")
    return Prediction(**{name: getattr(found, name) for name in Prediction.__struct_fields__})


def _expected(node: Node) -> ExpectedFigure:
    found = read(_Expected, node)
    return ExpectedFigure(**{name: getattr(found, name) for name in ExpectedFigure.__struct_fields__})


PREDICTION = Kind(_prediction, {})
EXPECTED = Kind(_expected, {})
