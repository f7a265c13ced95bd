"""What the table of engines is made of: families, rows, and how one kind of engine is read."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from exporters.signals import Kind, Signal


def plain(name: str) -> str:
    """A name as all pages have it: in OpenMetrics, Python's client library writes vllm_ where its text has vllm: ."""
    return name.replace(":", "_")


class Merge(Enum):
    """How several samples of one rank and model become one."""

    SUM = "sum"
    """They are parts: by reason, by source, by process."""
    MAX = "max"
    """They are copies: each tells the whole, as one process saw it at its own time."""

    def of(self, values: Iterable[float]) -> float:
        return sum(values) if self is Merge.SUM else max(values)


@dataclass(frozen=True, slots=True)
class Family:
    """A family by its name on the wire (a histogram without its suffixes), and the versions seen to have it."""

    name: str
    since: str | None = None
    until: str | None = None
    only: tuple[str, str] | None = None
    """A label and its value: of a family that is no histogram, only these samples are read."""


@dataclass(frozen=True, slots=True)
class Row:
    """One signal of one engine; of the families only the first that is present is read, so that none counts twice."""

    signal: Signal
    families: tuple[Family, ...]
    merge: Merge
    note: str = ""


@dataclass(frozen=True, slots=True)
class Stated:
    """The KV cache's tokens, as a gauge."""

    name: str


@dataclass(frozen=True, slots=True)
class Blocks:
    """The KV cache's tokens, as two gauges to multiply."""

    blocks: str
    tokens_per_block: str


@dataclass(frozen=True, slots=True)
class Labelled:
    """The KV cache's tokens and all other settings, as the labels of an info metric of vLLM."""

    name: str


Capacity = Stated | Blocks | Labelled


@dataclass(frozen=True, slots=True)
class Engine:
    """One kind of engine: known by how its names begin, with the labels that name its rank and its model."""

    type: str
    marks: tuple[str, ...]
    rows: tuple[Row, ...]
    rank_labels: tuple[str, ...] = ()
    model_label: str | None = None
    capacity: Capacity | None = None
    counts_live: bool = False
    """Whether token counters move as the engine works, or only when a request ends."""
    version_page: tuple[str, str] = ("/version", "version")


def row(signal: Signal, *families: Family | str, merge: Merge | None = None, note: str = "") -> Row:
    """A row; unless it says otherwise, gauges are copies and counts are parts."""
    found = tuple(Family(family) if isinstance(family, str) else family for family in families)
    return Row(signal, found, merge or (Merge.MAX if signal.kind is Kind.GAUGE else Merge.SUM), note)
