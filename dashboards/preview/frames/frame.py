"""Results of queries as data frames of named columns, as in Grafana."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    TIME = "time"
    NUMBER = "number"
    STRING = "string"


@dataclass(frozen=True, slots=True)
class Field:
    """A column; times are in milliseconds, a missing value is None, which is not NaN."""

    name: str
    kind: Kind
    values: list[Any]
    labels: Mapping[str, str] = field(default_factory=dict)
    display_name: str = ""
    """The name that the query's legend gives."""

    @property
    def title(self) -> str:
        return self.display_name or self.name


@dataclass(frozen=True, slots=True)
class Frame:
    """Columns of equal length."""

    ref: str
    fields: tuple[Field, ...]

    @property
    def values(self) -> Iterator[Field]:
        """The columns except times."""
        return (each for each in self.fields if each.kind is not Kind.TIME)

    @property
    def rows(self) -> int:
        return len(self.fields[0].values) if self.fields else 0

    def column(self, title: str) -> Field | None:
        return next((each for each in self.fields if title in (each.title, each.name)), None)

    def take(self, rows: Iterable[int]) -> "Frame":
        """The given rows, in the order of `rows`."""
        indexes = list(rows)
        return Frame(
            self.ref, tuple(replace(each, values=[each.values[row] for row in indexes]) for each in self.fields)
        )


@dataclass(frozen=True, slots=True)
class TimeGrid:
    """The timestamps of a range query in unix seconds; every series has a value or None for each."""

    start: float
    step: float
    points: int


def matrix_frames(ref: str, result: Iterable[Mapping[str, Any]], grid: TimeGrid, legend: str) -> list[Frame]:
    """One frame per series, with a value or None for every timestamp of the grid."""
    times = Field("Time", Kind.TIME, [(grid.start + index * grid.step) * 1000 for index in range(grid.points)])
    frames = []
    for series in result:
        values: list[float | None] = [None] * grid.points
        for timestamp, text in series.get("values", ()):
            index = round((timestamp - grid.start) / grid.step)
            if 0 <= index < grid.points:
                values[index] = float(text)
        frames.append(Frame(ref, (times, _value_field(series["metric"], values, legend))))
    return frames


def vector_frames(ref: str, result: Iterable[Mapping[str, Any]], legend: str) -> list[Frame]:
    """One frame per series, with a single row."""
    frames = []
    for series in result:
        timestamp, text = series["value"]
        value = _value_field(series["metric"], [float(text)], legend)
        frames.append(Frame(ref, (Field("Time", Kind.TIME, [timestamp * 1000]), value)))
    return frames


def table_frames(ref: str, result: Iterable[Mapping[str, Any]], value_name: str) -> list[Frame]:
    """One frame with a row per series, a column per label, and the value last."""
    series = list(result)
    labels = sorted({label for each in series for label in each["metric"]})
    time = Field("Time", Kind.TIME, [each["value"][0] * 1000 for each in series])
    texts = [Field(label, Kind.STRING, [each["metric"].get(label, "") for each in series]) for label in labels]
    value = Field(value_name, Kind.NUMBER, [float(each["value"][1]) for each in series])
    return [Frame(ref, (time, *texts, value))]


def _value_field(metric: Mapping[str, str], values: list[float | None], legend: str) -> Field:
    labels = {label: value for label, value in metric.items() if label != "__name__"}
    return Field("Value", Kind.NUMBER, values, labels, _title(metric, labels, legend))


def _title(metric: Mapping[str, str], labels: Mapping[str, str], legend: str) -> str:
    if legend and legend != "__auto":
        return re.sub(r"\{\{\s*(.+?)\s*\}\}", lambda match: metric.get(match[1], ""), legend)
    if legend and len(labels) == 1:
        return next(iter(labels.values()))
    inner = ", ".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    return metric.get("__name__", "") + (f"{{{inner}}}" if inner or "__name__" not in metric else "")
