"""The types of the signal table: engine types, rows, families, and the source of the KV cache's capacity."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from exporters.vocabulary.signals import Kind, Signal


def plain_name(name: str) -> str:
    """The name without colons: in OpenMetrics, Python's client library writes `vllm_` instead of `vllm:`."""
    return name.replace(":", "_")


class Merge(Enum):
    """How several samples of one rank and model are combined."""

    SUM = "sum"
    """The samples are parts: by reason, by source, by process."""
    MAX = "max"
    """The samples are copies: each process exposes its last known total."""

    def apply(self, values: Iterable[float]) -> float:
        return sum(values) if self is Merge.SUM else max(values)


@dataclass(frozen=True, slots=True)
class Family:
    """A family by its exposed name (a histogram without suffixes), and the versions that have it."""

    name: str
    since: str | None = None
    until: str | None = None
    only: tuple[str, str] | None = None
    """A label and its value: only samples with this label are read; not for histograms."""


@dataclass(frozen=True, slots=True)
class Split:
    """A label of the engine that is the last label of our signal."""

    label: str
    values: Mapping[str, str | None]
    """The engine's values and ours: samples with None are not read, and all other values become `other`."""


def split_by(label: str, *values: str) -> Split:
    """A split that keeps these values."""
    return Split(label, {value: value for value in values})


@dataclass(frozen=True, slots=True)
class Row:
    """One signal of one engine type; only the first family in the exposition is read, so that no value counts twice."""

    signal: Signal
    families: tuple[Family, ...]
    merge: Merge
    note: str = ""
    split: Split | None = None


@dataclass(frozen=True, slots=True)
class CapacityGauges:
    """Gauges whose product is the capacity of the KV cache in tokens."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CapacityLabels:
    """An info metric of vLLM, whose labels are the capacity of the KV cache and settings."""

    name: str


@dataclass(frozen=True, slots=True)
class EngineType:
    """One engine program, recognised by the prefixes of its families; with its labels for rank and model."""

    name: str
    prefixes: tuple[str, ...]
    rows: tuple[Row, ...]
    rank_labels: tuple[str, ...] = ()
    model_label: str | None = None
    capacity: CapacityGauges | CapacityLabels | None = None
    lora_info: str | None = None
    """A gauge whose labels list LoRA adapters and whose value is the time of that list; old lists stay exposed."""
    counts_live: bool = False
    """Whether token counters grow during a request, or only when it ends."""
    version_endpoint: tuple[str, str] = ("/version", "version")
    """The path, and the JSON key of the response."""


def row(
    signal: Signal, *families: Family | str, merge: Merge | None = None, split: Split | None = None, note: str = ""
) -> Row:
    """A row; by default, samples of a gauge are copies and samples of a counter are parts."""
    listed = tuple(Family(family) if isinstance(family, str) else family for family in families)
    return Row(signal, listed, merge or (Merge.MAX if signal.kind is Kind.GAUGE else Merge.SUM), note, split)
