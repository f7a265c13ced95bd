"""The types of the signal table: engine types, rows, families, and where the KV cache's capacity is."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from exporters.signals import Kind, Signal


def plain_name(name: str) -> str:
    """A name as every format has it: in OpenMetrics, Python's client library writes `vllm_` in place of `vllm:`."""
    return name.replace(":", "_")


class Merge(Enum):
    """How several samples of one rank and model become one."""

    SUM = "sum"
    """The samples are parts: by reason, by source, by process."""
    MAX = "max"
    """The samples are copies: each process exposes the whole value as it last saw it."""

    def apply(self, values: Iterable[float]) -> float:
        return sum(values) if self is Merge.SUM else max(values)


@dataclass(frozen=True, slots=True)
class Family:
    """A family by its exposed name (a histogram without its suffixes), and the versions known to have it."""

    name: str
    since: str | None = None
    until: str | None = None
    only: tuple[str, str] | None = None
    """A label and its value: of a family that is no histogram, only these samples are read."""


@dataclass(frozen=True, slots=True)
class Row:
    """One signal of one engine type; only the first family that is present is read, so that none counts twice."""

    signal: Signal
    families: tuple[Family, ...]
    merge: Merge
    note: str = ""


@dataclass(frozen=True, slots=True)
class CapacityGauge:
    """A gauge of the tokens that the KV cache holds."""

    name: str


@dataclass(frozen=True, slots=True)
class CapacityBlocks:
    """Two gauges whose product is the number of tokens that the KV cache holds."""

    blocks: str
    tokens_per_block: str


@dataclass(frozen=True, slots=True)
class CapacityLabels:
    """An info metric of vLLM with the KV cache's tokens and all its other settings as labels."""

    name: str


Capacity = CapacityGauge | CapacityBlocks | CapacityLabels


@dataclass(frozen=True, slots=True)
class EngineType:
    """One engine program: recognised by the prefixes of its families' names; labels name its rank and its model."""

    name: str
    prefixes: tuple[str, ...]
    rows: tuple[Row, ...]
    rank_labels: tuple[str, ...] = ()
    model_label: str | None = None
    capacity: Capacity | None = None
    counts_live: bool = False
    """Whether token counters grow during a request, or only when it ends."""
    version_page: tuple[str, str] = ("/version", "version")
    """The path and the JSON key."""


def row(signal: Signal, *families: Family | str, merge: Merge | None = None, note: str = "") -> Row:
    """A row; by default, samples of a gauge are copies and samples of a counter are parts."""
    listed = tuple(Family(family) if isinstance(family, str) else family for family in families)
    return Row(signal, listed, merge or (Merge.MAX if signal.kind is Kind.GAUGE else Merge.SUM), note)
