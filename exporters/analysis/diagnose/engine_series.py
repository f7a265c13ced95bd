"""Queries of Prometheus over one window, and the series of the engine as evidence; of several engines, the busiest."""

import math
from collections.abc import Mapping

from exporters.analysis.diagnose.evidence import EngineEvidence, Fact
from exporters.analysis.prometheus_api import FlagPrometheus, Sample
from exporters.text.units import spell_duration
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label, Signal

Values = Mapping[str, float]
"""Values by class."""


class SeriesWindow:
    """The series of one Prometheus from `start` to `end` (unix seconds); all queries raise UsageError if they fail."""

    def __init__(self, url: str, start: float, end: float) -> None:
        self.length = spell_duration(max(1, round(end - start)))
        """The duration as a range selector has it."""
        self._end = end
        self._prometheus = FlagPrometheus(url)

    def samples(self, query: str) -> list[Sample]:
        """The result of a query at the end of the window."""
        return self._prometheus.query(query, self._end)

    def query(self, query: str) -> dict[str, float]:
        """The result by class; an aggregate over all classes has the name ``."""
        return {each.labels.get(Label.CLASS, ""): each.value for each in self.samples(query)}

    def sums(self, counter: Signal | str, where: str = "") -> Values:
        """The increase of a counter by class; the series of a histogram are given by name."""
        name = counter if isinstance(counter, str) else counter.name
        return self.query(f"sum by (class) (increase({name}{where}[{self.length}]))")

    def quantiles(self, signal: Signal, share: float) -> Values:
        return self.query(f"histogram_quantile({share}, sum by (class, le) (increase({signal.bucket}[{self.length}])))")


_P95 = "max(quantile_over_time(0.95, {}[{}]))"
_BUCKETS_P50 = "histogram_quantile(0.5, sum by (le) (increase({}_bucket[{}])))"
_FIGURES = (
    (
        "unusable",
        signals.ENGINE_STATE,
        'max(sum by (instance, engine) (avg_over_time({}{{state=~"wedged|down"}}[{}])))',
    ),
    ("waiting", signals.ENGINE_WAITING, "max(avg_over_time({}[{}]))"),
    ("running", signals.ENGINE_RUNNING, _P95),
    ("running_p50", signals.ENGINE_RUNNING, "max(quantile_over_time(0.5, {}[{}]))"),
    ("kv_use", signals.ENGINE_KV_USAGE, _P95),
    ("kv_capacity", signals.ENGINE_KV_CAPACITY, "max({})"),
    ("queue", signals.ENGINE_QUEUE, _BUCKETS_P50),
    ("prefill", signals.ENGINE_PREFILL, _BUCKETS_P50),
)
"""Names of figures, with queries that get the name of the series and the length of the window."""

_RATIOS = (
    ("preemptions", signals.ENGINE_PREEMPTIONS, signals.REQUESTS, ""),
    # The sidecar counts 0 also without hashes.
    ("possible_hits", signals.SHAREABLE_PROMPT_TOKENS, signals.PROMPT_TOKENS, " > 0"),
    ("cache_hits", signals.ENGINE_CACHE_HITS, signals.ENGINE_CACHE_QUERIES, ""),
    ("draft_acceptance", signals.ENGINE_SPEC_ACCEPTED, signals.ENGINE_SPEC_DRAFTED, ""),
)


def engine_evidence(window: SeriesWindow) -> EngineEvidence:
    """Raises UsageError if a query failed."""
    queries = [(name, signal, query.format(signal.name, window.length)) for name, signal, query in _FIGURES]
    for name, part, whole, above in _RATIOS:
        increases = [f"sum(increase({each.name}[{window.length}]))" for each in (part, whole)]
        queries.append((name, part, " / ".join(increases) + above))
    values = {name: (window.query(query).get("", math.nan), signal.name) for name, signal, query in queries}
    facts = {
        name: Fact(value, series) if math.isfinite(value) else Fact(None, f"Prometheus has no {series}")
        for name, (value, series) in values.items()
    }
    return EngineEvidence(settings=_settings(window), **facts)


def _settings(window: SeriesWindow) -> dict[str, str]:
    """The engine's settings; of several engines, their different values are joined by `|`."""
    values: dict[str, set[str]] = {}
    for sample in window.samples(f"last_over_time({signals.ENGINE_SETTING_INFO.name}[{window.length}])"):
        values.setdefault(sample.labels[Label.SETTING], set()).add(sample.labels[Label.VALUE])
    return {name: "|".join(sorted(each)) for name, each in sorted(values.items())}
