"""The panel on TTFT of all streams, with those that never got a token."""

import re
from collections.abc import Callable

from grafana_foundation_sdk.builders import timeseries
from grafana_foundation_sdk.models import dashboard as model

from alerts.promql.build import Window, call, max_by, rate, regex, select, sum_by
from alerts.promql.expression import Expression, Selector
from dashboards.grafana import style
from dashboards.grafana.layout import Variable as BoardVariable
from dashboards.grafana.style import BAD, GREY
from dashboards.panels.latency import quantile_lines, thresholds_of
from dashboards.queries.labels import with_label
from dashboards.queries.rates import PER_CLASS, RATE
from dashboards.windows.slo import hidden_constant
from exporters.text.units import number
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label, Outcome
from exporters.vocabulary.slo_file import Latency, Measure, SloFile

_TTFT_SLOS = "$ttft_slos"
_FAILED = "|".join(outcome for outcome in Outcome if outcome not in {Outcome.OK, Outcome.CLIENT_ERROR})
"""Outcomes of streams that should have had a token: not those of empty responses and of invalid requests."""


def first_tokens_of_all_streams(spec: SloFile) -> timeseries.Panel:
    """A stream without a token is in the bucket `+Inf`, for which `histogram_quantile` gives the highest bound."""
    thresholds = thresholds_of(spec, Measure.TTFT)
    highest = max(*signals.TTFT.bounds, *thresholds)
    text = (
        "Time to first token of streams, by class; a stream that ended without a first token (rejected, timed out, "
        f"failed, or aborted by the client) is slower than any. At {number(highest)} s, the grey line, the quantile "
        "stands for no token, or for a longer time. Not in it: unary requests, client errors, empty responses, and "
        "streams that still wait, see Oldest wait."
    )
    panel = quantile_lines("TTFT of all streams", text, first_token_buckets(rate, RATE), spec)
    panel.mappings([model.ValueMap({number(highest): model.ValueMappingResult("no token", index=0)})])
    lines = {**dict.fromkeys(thresholds, BAD), highest: GREY}
    return style.with_threshold_lines(panel, *lines.items())


def ttft_and_thresholds(spec: SloFile) -> timeseries.Panel:
    """The p95 of each class, and in its colour the threshold that its SLO has in the rules."""
    highest = max(*signals.TTFT.bounds, *thresholds_of(spec, Measure.TTFT))
    text = (
        "95 % of the streams of a class had their first token in this time; the dashed line of the same colour is the "
        "threshold of its SLO. A stream that ended without a first token is slower than any: at "
        f"{number(highest)} s, more than 5 % had none. Not in it: unary requests, client errors, and streams that "
        "still wait, see Oldest wait. Good: below the threshold. From the sidecars' histograms and the recording rules."
    )
    p95 = call("histogram_quantile", 0.95, first_token_buckets(rate, RATE)) >= 0
    threshold = max_by(select(signals.SLO_THRESHOLD, regex(Label.SLO, _TTFT_SLOS)), [Label.CLASS, Label.SLO])
    # a logarithmic scale has no 0
    panel = style.time_series_panel(
        *("TTFT p95", text, style.SECONDS, 8),
        (p95, PER_CLASS),
        (threshold, "{{class}} {{slo}}"),
        height=5,
        signed=True,
    )
    dashed = model.DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [10, 6]})
    unlisted = model.DynamicConfigValue("custom.hideFrom", {"legend": True, "tooltip": False, "viz": False})
    panel = style.colour_by_class(style.logarithmic(style.limit_points(panel)), spec)
    return panel.override_by_query("B", [dashed, unlisted])


def ttft_slos_variable(spec: SloFile) -> BoardVariable:
    """A hidden constant: the SLOs whose threshold is one of TTFT."""
    names = (re.escape(slo.name) for slo in spec.slos if isinstance(slo.sli, Latency) and slo.measure is Measure.TTFT)
    return hidden_constant(_TTFT_SLOS.removeprefix("$"), "|".join(names))


def first_token_buckets(function: Callable[[Selector, Window], Expression], window: str) -> Expression:
    """The buckets of TTFT by class, with streams without a token in `+Inf`; `function` is `rate` or `increase`."""
    with_token = function(select(signals.TTFT.bucket), window)
    without = function(select(signals.WITHOUT_FIRST_TOKEN, regex(Label.OUTCOME, _FAILED)), window)
    # `or` compares each series of one side with those of the other, so both are summed first
    summed, by_outcome = sum_by(with_token, [Label.CLASS, "le"]), sum_by(without, [Label.CLASS, Label.OUTCOME])
    # the label `outcome` keeps both sides
    return sum_by(summed.or_(with_label(by_outcome, "le", "+Inf")), [Label.CLASS, "le"])
