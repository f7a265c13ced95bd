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

    def sums(self, signal: Signal, where: str = "", part: str = "") -> Values:
        """The increase of a counter, or with `part` of the sum of a histogram, by class."""
        name = signal.sum if part else signal.name
        return self.query(f"sum by (class) (increase({name}{where}[{self.length}]))")

    def quantiles(self, signal: Signal, share: float) -> Values:
        return self.query(f"histogram_quantile({share}, sum by (class, le) (increase({signal.bucket}[{self.length}])))")


def engine_evidence(window: SeriesWindow) -> EngineEvidence:
    """Raises UsageError if a query failed."""

    def increase(signal: Signal) -> str:
        return f"sum(increase({signal.name}[{window.length}]))"

    length = window.length
    unusable = f'avg_over_time({signals.ENGINE_STATE.name}{{state=~"wedged|down"}}[{length}])'
    found = {
        "unusable": (f"max(sum by (instance, engine) ({unusable}))", signals.ENGINE_STATE),
        "waiting": (f"max(avg_over_time({signals.ENGINE_WAITING.name}[{length}]))", signals.ENGINE_WAITING),
        "running": (
            f"max(quantile_over_time(0.95, {signals.ENGINE_RUNNING.name}[{length}]))",
            signals.ENGINE_RUNNING,
        ),
        "running_p50": (
            f"max(quantile_over_time(0.5, {signals.ENGINE_RUNNING.name}[{length}]))",
            signals.ENGINE_RUNNING,
        ),
        "kv_use": (
            f"max(quantile_over_time(0.95, {signals.ENGINE_KV_USAGE.name}[{length}]))",
            signals.ENGINE_KV_USAGE,
        ),
        "kv_capacity": (f"max({signals.ENGINE_KV_CAPACITY.name})", signals.ENGINE_KV_CAPACITY),
        "preemptions": (
            f"{increase(signals.ENGINE_PREEMPTIONS)} / {increase(signals.REQUESTS)}",
            signals.ENGINE_PREEMPTIONS,
        ),
        "possible_hits": (
            f"{increase(signals.SHAREABLE_PROMPT_TOKENS)} / {increase(signals.PROMPT_TOKENS)} > 0",
            signals.SHAREABLE_PROMPT_TOKENS,
        ),
        "cache_hits": (
            f"{increase(signals.ENGINE_CACHE_HITS)} / {increase(signals.ENGINE_CACHE_QUERIES)}",
            signals.ENGINE_CACHE_HITS,
        ),
        "draft_acceptance": (
            f"{increase(signals.ENGINE_SPEC_ACCEPTED)} / {increase(signals.ENGINE_SPEC_DRAFTED)}",
            signals.ENGINE_SPEC_ACCEPTED,
        ),
        **{
            name: (f"histogram_quantile(0.5, sum by (le) (increase({signal.bucket}[{length}])))", signal)
            for name, signal in (("queue", signals.ENGINE_QUEUE), ("prefill", signals.ENGINE_PREFILL))
        },
    }
    facts = {
        name: _known(window.query(query).get("", math.nan), signal.name, f"Prometheus has no {signal.name}")
        for name, (query, signal) in found.items()
    }
    return EngineEvidence(settings=_settings(window), **facts)


def _settings(window: SeriesWindow) -> dict[str, str]:
    """The engine's settings; of several engines, their different values are joined by `|`."""
    values: dict[str, set[str]] = {}
    for sample in window.samples(f"last_over_time({signals.ENGINE_SETTING_INFO.name}[{window.length}])"):
        values.setdefault(sample.labels[Label.SETTING], set()).add(sample.labels[Label.VALUE])
    return {name: "|".join(sorted(each)) for name, each in sorted(values.items())}


def _known(value: float, origin: str, missing: str) -> Fact:
    return Fact(value, origin) if math.isfinite(value) else Fact(None, missing)
