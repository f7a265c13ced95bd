"""The text of an alert on an error budget: what, where, how bad, until when, and the last config change."""

import re
from collections.abc import Iterable, Iterator, Mapping

from alerts.plan import Plan
from alerts.promql.build import aggregate, call, equal, increase, on, select, sum_by
from alerts.promql.expression import AlertLabel, AlertValue, Matcher, Selector
from alerts.rules.target_labels import if_found, listed
from alerts.tiers import fit, tiers
from exporters.text.units import number, spell_duration
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label, Recorded, Signal
from exporters.vocabulary.slo_file import Availability, Latency, Measure, Slo, ValidOutput

RECENT_CHANGE = 7200.0
"""A config change of the last two hours is named."""

_REPLICAS = 3


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


def describe(slo: Slo) -> str:
    """The SLO in words: `ttft within 5s for 95 %`."""
    limit = f" within {spell_duration(slo.sli.threshold)}" if isinstance(slo.sli, Latency) else ""
    return f"{slo.measure}{limit} for {percent(slo.objective)}"


def percent(share: float) -> str:
    return f"{number(round(100 * share, 2))} %"


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


def rescaled(slo: Slo, period: float) -> Iterator[str]:
    """A sentence for each tier of the SLO that is rescaled."""
    for published in tiers(period):
        tier = fit(published, slo)
        if tier != published:
            yield (
                f"slo {slo.name}, tier {tier.name}: a burn rate of {number(round(published.factor, 2))} would need "
                f"{percent(published.bad_ratio(slo))} bad events, which is impossible; rescaled to "
                f"{number(round(tier.factor, 2))}, which needs {percent(tier.bad_ratio(slo))}"
            )


def class_of(slos: Iterable[Slo], titles: Mapping[str, str]) -> str:
    """The class of the alert, with its title if it has one; only the titles of classes that the SLOs judge."""
    named = {name: titles[name] for slo in slos for name in slo.classes if name in titles}
    cases = (f'if eq $labels.class "{name}" }}}} ({title}){{{{ ' for name, title in named.items())
    title = f"{{{{ {'else '.join(cases)}end }}}}" if named else ""
    return f"{{{{ $labels.class }}}}{title}"


def summary(slo: Slo, who: str) -> str:
    """The title: what, where, how bad."""
    return f"{who} on {MODEL}: {SHARE} of requests {miss(slo)}"


def exhaustion(plan: Plan, slo: Slo, gone_in: str, spent: str) -> str:
    """When the budget of the period is used up at the present error ratio; empty while the budget is not recorded."""
    left = of_alert(signals.SLO_BUDGET_LEFT, slo) * (plan.spec.period * slo.budget * 100) / AlertValue()
    duration = '. | first | value | humanizeDuration | reReplaceAll "^([0-9]+)[.0-9]*([a-z]).*$" "$1 $2"'
    text = f"{{{{ if gt (. | first | value) 0.0 }}}}{gone_in}{{{{ {duration} }}}}{{{{ else }}}}{spent}{{{{ end }}}}"
    return if_found(left, plan.spec.group_by, text)


def budget_left(plan: Plan, slo: Slo) -> str:
    """The share that is left and its time; or how many times the budget is spent."""
    share, groups, period = of_alert(signals.SLO_BUDGET_LEFT, slo), plan.spec.group_by, spaced(plan.spec.period)
    left = f' Budget left: {{{{ . | first | value | printf "%.0f" }}}} % of {period}'
    left += f"{exhaustion(plan, slo, ', gone in ', '')}."
    times = f' The budget of {period} is spent {{{{ . | first | value | printf "%.1f" }}}} times.'
    spent = if_found(share * -1 + 1, groups, times)
    text = f"{{{{ if gt (. | first | value) 0.0 }}}}{left}{{{{ else }}}}{spent}{{{{ end }}}}"
    return if_found(share * 100, groups, text)


def worst_replicas(plan: Plan, slo: Slo, window: float) -> str:
    """The instances with the highest error ratios."""
    bad, events = (
        sum_by(increase(of_alert(each, slo), window), [Label.INSTANCE])
        for each in (signals.SLO_BAD, signals.SLO_EVENTS)
    )
    worst = call("sort_desc", aggregate("topk", 100 * bad / (events > 0) > 0, parameter=_REPLICAS))
    each = listed('{{ $each.Labels.instance }} {{ printf "%.0f" $each.Value }} %')
    return if_found(worst, plan.spec.group_by, f" Worst replicas: {each}.")


def last_config_change(plan: Plan) -> str:
    """The newest config change of the model's engines, if it is recent."""
    recent = select(signals.ENGINE_CONFIG_CHANGE) > call("time") - RECENT_CHANGE
    engines = select(signals.ENGINE_MODEL, equal(Label.MODEL, AlertLabel(Label.MODEL)))
    newest = aggregate("topk", recent.and_(engines, on(Label.INSTANCE, Label.ENGINE)), parameter=1)
    text = (
        ' Last config change: {{ . | first | label "setting" }} at '
        '{{ (. | first | value | toTime).UTC.Format "15:04 UTC" }}.'
    )
    return if_found(newest, plan.spec.group_by, text)


def of_alert(series: Recorded | Signal, slo: Slo, *more: Matcher) -> Selector:
    """The series of the SLO, model and class of the alert."""
    labels = (equal(label, AlertLabel(label)) for label in (Label.MODEL, Label.CLASS))
    return select(series, equal(Label.SLO, slo.name), *labels, *more)
