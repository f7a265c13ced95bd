"""Recording rules for autoscalers: how close latencies and waits are to the thresholds of the SLOs."""

from collections.abc import Iterator

from alerts.plan import Plan
from alerts.promql.build import max_by, quantile, regex, select
from alerts.rules.groups import Recording, RuleGroup
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label
from exporters.vocabulary.slo_file import HISTOGRAMS, Latency, Measure

_LABELS = (Label.MODEL, Label.CLASS)


def autoscaling_group(plan: Plan) -> RuleGroup:
    """Ratios to thresholds, so that a scaler needs no threshold of its own; at 1, a latency is at its threshold."""
    return RuleGroup("vllm-slo-autoscaling", plan.direct_interval, tuple(_recordings(plan)))


def _recordings(plan: Plan) -> Iterator[Recording]:
    for slo in plan.spec.slos:
        if not isinstance(slo.sli, Latency):
            continue
        classes = regex(Label.CLASS, "|".join(slo.classes))
        labels: dict[str, str] = {Label.SLO: slo.name}
        # The histogram of itl_p95 counts gaps: its quantile is not that of the requests' own percentiles.
        if slo.measure is not Measure.ITL_P95:
            p90 = quantile(0.9, HISTOGRAMS[slo.measure], plan.step, _LABELS, [classes])
            # `>= 0` drops the NaN of a window without requests.
            yield Recording(signals.SIGNAL_P90, (p90 >= 0) / slo.sli.threshold, labels)
        if slo.measure is Measure.TTFT:
            waits = max_by(select(signals.OLDEST_WAIT, classes), _LABELS)
            yield Recording(signals.OLDEST_WAIT_RATIO, waits / slo.sli.threshold, labels)
