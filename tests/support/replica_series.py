"""Every exposed series of two replicas for `promtool`: healthy, then with a fault at the first replica."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from exporters.text.units import number
from exporters.vocabulary.signals import SIGNALS, UP, Kind, Label, Signal
from tests.support.promtool import constant, counter

BAD, GOOD = "s:1", "s:2"
_LABELS = {Label.MODEL: "org/m", Label.CLASS: "siso", Label.SLO: "ttft", Label.OUTCOME: "ok", Label.RANK: "0"}
"""Other labels have their name as their value."""

_USUAL: dict[str, float] = {
    "llm_requests_total": 10,
    "llm_slo_events_total": 10,
    "llm_completion_tokens_total": 100,
    "llm_engine_prompt_tokens_total": 1000,
    "llm_engine_prefix_cache_hits_tokens_total": 600,
    "llm_engine_prefix_cache_queries_tokens_total": 1000,
    "llm_engine_kv_cache_usage_ratio": 0.5,
    "llm_sidecar_client_connections_limit": 1000,
    "llm_sidecar_certificate_expiry_timestamp_seconds": 3e7,
    **dict.fromkeys(
        (
            "llm_slo_bad_events_total",
            "llm_engine_requests_waiting",
            "llm_engine_preemptions_total",
            "llm_engine_start_time_seconds",
            "llm_engine_scrape_errors_total",
            "llm_engine_last_good_scrape_age_seconds",
            "llm_oldest_wait_seconds",
            "llm_sidecar_dropped_records_total",
            "llm_sidecar_dropped_log_lines_total",
            "llm_sidecar_lost_requests_total",
            "llm_sidecar_restarts_total",
            "llm_sidecar_unmetered_requests_total",
            "llm_sidecar_task_errors_total",
            "llm_sidecar_follow_lag_bytes",
            "llm_sidecar_dropped_spans_total",
            "llm_engine_kv_transfer_failures_total",
        ),
        0,
    ),
}
"""The value of a healthy replica; of a counter, its growth per scrape. Otherwise 1."""


@dataclass(frozen=True, slots=True)
class Fault:
    """The value of a series during the fault, of a counter its growth per scrape.

    With `labels`, it is a series that exists beside the healthy one. A gauge may change by `growth` per scrape.
    """

    series: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)
    growth: float = 0.0


def replicas(healthy: int, faulty: int, *faults: Fault) -> dict[str, str]:
    """The series of both replicas; the first has the faults after `healthy` scrapes, for `faulty` scrapes."""
    series: dict[str, str] = {}
    by_name = {fault.series: fault for fault in faults}
    for name, signal, more in _names():
        usual = _USUAL.get(name, 1)
        declared = signal.labels if signal else ()
        labels: dict[str, str] = {str(label): _LABELS.get(label, str(label)) for label in declared}
        labels.update(more)
        is_gauge = signal is None or signal.kind is Kind.GAUGE

        def values(before: float, during: Fault, *, is_gauge: bool = is_gauge) -> str:
            if is_gauge:
                rising = f"{number(during.value)}+{number(during.growth)}x{faulty - 1}"
                return f"{constant(before, healthy - 1)} {rising}"
            return counter((before, healthy), (during.value, faulty), start=1000)

        for instance in (BAD, GOOD):
            series[_key(name, instance, labels)] = values(usual, Fault(name, usual))
        if fault := by_name.get(name):
            series[_key(name, BAD, {**labels, **fault.labels})] = values(0 if fault.labels else usual, fault)
    return series


def _names() -> Iterator[tuple[str, Signal | None, Mapping[str, str]]]:
    """Each name of a series, its signal, and the labels that the signal does not declare."""
    yield UP, None, {}
    for signal in SIGNALS:
        if signal.kind is Kind.HISTOGRAM:
            yield signal.sum, signal, {}
            yield signal.count, signal, {}
            yield signal.bucket, signal, {"le": "1"}
            yield signal.bucket, signal, {"le": "+Inf"}
        else:
            yield signal.name, signal, {}


def _key(name: str, instance: str, labels: Mapping[str, str]) -> str:
    every = {"job": "vllm-slo-sidecar", **labels, "instance": instance}
    if "engine" in every:
        every["engine"] = f"engine of {instance}"
    pairs = ",".join(f'{label}="{value}"' for label, value in every.items())
    return f"{name}{{{pairs}}}"
