"""Recording rules for autoscalers: how close latencies and waits are to the thresholds of the SLOs."""

from collections.abc import Iterator

from alerts.promql import max_by, quantile, select
from alerts.recording_windows import direct_interval, windows
from alerts.rule_groups import Recording, RuleGroup
from exporters import signals
from exporters.quantities import number, spell_duration
from exporters.signals import Label
from exporters.slos import HISTOGRAMS, Latency, Measure, Slo, SloFile

_LABELS = (Label.MODEL, Label.CLASS)


def autoscaling_group(spec: SloFile) -> RuleGroup:
    """Ratios to thresholds, so that a scaler needs no threshold of its own; at 1, a latency is at its threshold."""
    return RuleGroup("vllm-slo-autoscaling", direct_interval(spec), tuple(_recordings(spec)))


def _recordings(spec: SloFile) -> Iterator[Recording]:
    for slo in spec.slos:
        if not isinstance(slo.sli, Latency):
            continue
        # The histogram of itl_p95 counts gaps: its quantile is not that of the requests' own percentiles.
        if slo.measure is not Measure.ITL_P95:
            yield _ratio(signals.SIGNAL_P90, _p90(slo, spec), slo.sli.threshold, slo)
        if slo.measure is Measure.TTFT:
            waits = max_by(select(signals.OLDEST_WAIT, _classes(slo), regex=True), _LABELS)
            yield _ratio(signals.OLDEST_WAIT_RATIO, waits, slo.sli.threshold, slo)


def _p90(slo: Slo, spec: SloFile) -> str:
    """`>= 0` drops the NaN of a window without requests."""
    window = spell_duration(windows(spec).step)
    return f"({quantile(0.9, HISTOGRAMS[slo.measure], window, _LABELS, _classes(slo))} >= 0)"


def _ratio(series: signals.Recorded, seconds: str, threshold: float, slo: Slo) -> Recording:
    return Recording(series, f"{seconds} / {number(threshold)}", {Label.SLO: slo.name})


def _classes(slo: Slo) -> dict[Label, str]:
    return {Label.CLASS: "|".join(slo.classes)}
