"""The text of an alert on an error budget: what, where, how bad, until when, and the last config change."""

import re

from alerts.promql import increase, sum_by
from exporters import signals
from exporters.quantities import number, spell_duration
from exporters.signals import Label, Recorded
from exporters.slos import Availability, Latency, Measure, Slo, SloFile, ValidOutput

RECENT_CHANGE = 7200.0
"""A config change of the last two hours is named."""

_REPLICAS = 3
_LABELS = "$labels.model $labels.class"


def short_model(longest: int) -> str:
    """The model's name without its organisation, shortened for a title."""
    return f'{{{{ $labels.model | reReplaceAll "^.*/" "" | reReplaceAll "^(.{{{longest - 1}}}).+$" "$1…" }}}}'


MODEL = short_model(24)

SHARE = '{{ if lt $value 10.0 }}{{ printf "%.1f" $value }}{{ else }}{{ printf "%.0f" $value }}{{ end }} %'
"""The value of the alert: bad events in percent."""

_NAMES = {
    Measure.TTFT: "TTFT",
    Measure.TTFT_ANSWER: "answer TTFT",
    Measure.TPOT: "TPOT",
    Measure.ITL_P95: "ITL p95",
    Measure.E2E: "E2E",
    Measure.QUEUE: "queue time",
    Measure.PREFILL: "prefill time",
    Measure.DECODE: "decode time",
}


def miss(slo: Slo) -> str:
    """What a bad request did: `miss TTFT 5 s`."""
    match slo.sli:
        case Availability():
            return "fail"
        case ValidOutput():
            return "return invalid output"
        case Latency(measure, threshold):
            return f"miss {_NAMES[measure]} {spaced(threshold)}"


def spaced(seconds: float) -> str:
    """A duration for readers: `1 h 12 m`."""
    return re.sub(r"([a-z]+)", r" \1 ", spell_duration(seconds)).strip()


def summary(slo: Slo, who: str) -> str:
    """The title: what, where, how bad."""
    return f"{who} on {MODEL}: {SHARE} of requests {miss(slo)}"


def exhaustion(spec: SloFile, slo: Slo, gone_in: str, spent: str) -> str:
    """When the budget of the period is used up at the present error ratio; empty while the budget is not recorded."""
    left = query(signals.SLO_BUDGET_LEFT, slo, "", f" * {number(spec.period * slo.budget * 100)} / %f", "$value")
    duration = '. | first | value | humanizeDuration | reReplaceAll "^([0-9]+)[.0-9]*([a-z]).*$" "$1 $2"'
    return (
        f"{{{{ with {left} }}}}{{{{ if gt (. | first | value) 0.0 }}}}{gone_in}{{{{ {duration} }}}}"
        f"{{{{ else }}}}{spent}{{{{ end }}}}{{{{ end }}}}"
    )


def budget_left(spec: SloFile, slo: Slo) -> str:
    """The share that is left and its time; or how many times the budget is spent."""
    left, spent = (query(signals.SLO_BUDGET_LEFT, slo, "", rest) for rest in (" * 100", " * -1 + 1"))
    period = spaced(spec.period)
    return (
        f"{{{{ with {left} }}}}{{{{ if gt (. | first | value) 0.0 }}}}"
        f' Budget left: {{{{ . | first | value | printf "%.0f" }}}} % of {period}'
        f"{exhaustion(spec, slo, ', gone in ', '')}.{{{{ else }}}}{{{{ with {spent} }}}}"
        f' The budget of {period} is spent {{{{ . | first | value | printf "%.1f" }}}} times.'
        "{{ end }}{{ end }}{{ end }}"
    )


def worst_replicas(slo: Slo, window: float) -> str:
    """The instances with the highest error ratios."""
    recent = spell_duration(window)
    selector = _selector(slo)
    bad, events = (
        sum_by(increase(f"{each.name}{{{selector}}}", recent), [Label.INSTANCE])
        for each in (signals.SLO_BAD, signals.SLO_EVENTS)
    )
    worst = f"query (printf `sort_desc(topk({_REPLICAS}, 100 * {bad} / ({events} > 0) > 0))` {' '.join([_LABELS] * 2)})"
    return (
        f"{{{{ with {worst} }}}} Worst replicas: {{{{ range $i, $each := . }}}}{{{{ if $i }}}}, {{{{ end }}}}"
        '{{ $each.Labels.instance }} {{ printf "%.0f" $each.Value }} %{{ end }}.{{ end }}'
    )


def last_config_change() -> str:
    """The newest config change of the model's engines, if it is recent."""
    changes = f"{signals.ENGINE_CONFIG_CHANGE.name} > time() - {number(RECENT_CHANGE)}"
    return (
        f"{{{{ with query (printf `topk(1, ({changes}) and on (instance, engine) {signals.ENGINE_MODEL.name}"
        '{model=%q})` $labels.model) }} Last config change: {{ . | first | label "setting" }} at '
        '{{ (. | first | value | toTime).UTC.Format "15:04 UTC" }}.{{ end }}'
    )


def query(series: Recorded, slo: Slo, more: str = "", rest: str = "", *values: str) -> str:
    """Reads a recorded series of the SLO, model and class of the alert; `rest` follows the selector."""
    return f"query (printf `{series.name}{{{_selector(slo)}{more}}}{rest}` {' '.join([_LABELS, *values])})"


def _selector(slo: Slo) -> str:
    return f'slo="{slo.name}",model=%q,class=%q'
