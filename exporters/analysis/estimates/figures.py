"""The figures that are compared for each class: their units, and the direction that is an improvement."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from exporters.analysis.estimates.estimates import Estimate, Z, ranks


class Unit(Enum):
    """The unit of a figure: its sign, and its size in seconds, shares or events."""

    PER_SECOND = "/s", 1.0
    PERCENT = "%", 0.01
    SECONDS = "s", 1.0
    MILLISECONDS = "ms", 0.001


class Better(Enum):
    """The direction that is an improvement; neither for the offered load and for tokens, which follow from the load."""

    HIGHER = "higher"
    LOWER = "lower"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True)
class Figure:
    """One row per class; `percent` for a quantile."""

    name: str
    unit: Unit
    better: Better
    percent: int | None = None
    per_request: bool = False
    """Whether it is a distribution over requests that depends on their waits, so its test needs a constant backlog."""

    @property
    def min_events(self) -> int:
        """The number of events from which a quantile has both bounds."""
        if self.percent is None:
            return 0
        q = self.percent / 100
        return next(n for n in range(1, 10_000) if ranks(n, q, n, Z)[0] >= 1 and ranks(n, q, n, Z)[1] <= n)


def attainment(slo: str) -> Figure:
    return Figure(f"SLO {slo}", Unit.PERCENT, Better.HIGHER, per_request=True)


def _percentiles(name: str, unit: Unit) -> tuple[Figure, Figure]:
    return (
        Figure(f"{name} p50", unit, Better.LOWER, 50, per_request=True),
        Figure(f"{name} p95", unit, Better.LOWER, 95, per_request=True),
    )


OFFERED = Figure("offered", Unit.PER_SECOND, Better.NEITHER)
BACKLOG_GROWTH = Figure("backlog growth", Unit.PER_SECOND, Better.LOWER)
"""Growth of the number of requests that wait for their first token."""
COMPLETED = Figure("completed", Unit.PERCENT, Better.HIGHER)
GOODPUT = Figure("goodput", Unit.PERCENT, Better.HIGHER, per_request=True)
TTFT = _percentiles("TTFT", Unit.SECONDS)
TPOT = _percentiles("TPOT", Unit.MILLISECONDS)
TPOT_MEAN = Figure("TPOT mean", Unit.MILLISECONDS, Better.LOWER)
"""Mean over tokens, not over requests."""
ITL = Figure("ITL p95", Unit.MILLISECONDS, Better.LOWER, 50, per_request=True)
"""The median of the requests' own p95."""
E2E = _percentiles("E2E", Unit.SECONDS)
QUEUE = _percentiles("queue", Unit.SECONDS)
CLIENT_ERRORS = Figure("client errors", Unit.PERCENT, Better.LOWER)
OUTPUT_TOKENS = Figure("output tokens", Unit.PER_SECOND, Better.NEITHER)
PROMPT_TOKENS = Figure("prompt tokens", Unit.PER_SECOND, Better.NEITHER)
"""Prompt tokens that are computed, not those from the prefix cache."""
CACHED_TOKENS = Figure("cached tokens", Unit.PER_SECOND, Better.NEITHER)
CACHE_HITS = Figure("cache hits", Unit.PERCENT, Better.HIGHER)
PREEMPTIONS = Figure("preemptions", Unit.PER_SECOND, Better.LOWER)

FROM_ZERO = frozenset({OFFERED, CACHED_TOKENS, PREEMPTIONS})
"""Figures that are 0 without events, which is a measurement."""

ALL_CLASSES = "all classes"
"""The whole engine, beside the classes: no name of a class has a space."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One figure of one class in one window; without data, `estimate` is None."""

    events: int
    estimate: Estimate | None


Measurements = Mapping[str, Mapping[Figure, Measurement]]
"""Measurements by class, in the order of the report."""
