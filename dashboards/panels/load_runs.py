"""Panels on load tests: the runs, and the configurations that they name."""

from functools import partial

from grafana_foundation_sdk.builders import table, timeseries
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import units

from alerts.promql.build import call, max_by, on, over, rate, ratio, regex, select, sum_by
from dashboards.grafana import style, tables
from dashboards.grafana.style import GREY, describe
from dashboards.grafana.tables import ValueColumn
from dashboards.panels.first_tokens import first_token_buckets
from dashboards.queries.rates import RANGE, RATE, increase_by, rate_by
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label, Outcome

describe_load = partial(describe, may_be_empty="no load test ran in this time")
_describe_configurations = partial(describe, may_be_empty="no load test in this time names its configuration")
_CONFIGURED = regex(Label.CONFIGURATION, ".+")
_PER_CONFIGURATION = f"{{{{{Label.CONFIGURATION}}}}}"
_OFFERED = "scheduled"
_JUDGED = "From the load generator's counters, also the good requests."


def runs() -> table.Panel:
    text = describe_load(
        "Load tests in the time range. The name of a run is its start in UTC, as in the annotations; its requests and "
        "report are in the folder of `load run --out`. Good: one at a time. From the load generator's counters."
    )
    titles = {Label.RUN: "Run", Label.SCENARIO: "Scenario", Label.CONFIGURATION: "Configuration"}
    runs_in_range = max_by(over("max_over_time", signals.LOAD_RUN, RANGE), titles)
    states = {"0": "ended", "1": "running"}
    state = ValueColumn(
        "State",
        # a killed run has no final 0
        max_by(signals.LOAD_RUN, titles).or_(0 * runs_in_range),
        units.NoUnit,
        mappings=[model.ValueMap({value: model.ValueMappingResult(word) for value, word in states.items()})],
    )
    panel = style.table_panel("Load tests in range", text, units.NoUnit, 24, 6)
    tables.sort_rows(panel, "-Run")
    return tables.join_queries(panel, titles, [state])


def configurations() -> table.Panel:
    text = _describe_configurations(
        "Requests that were scheduled in the time range, by the configuration that their run names, and the shares of "
        "them that ended ok and that were good for all their SLOs. Good: as much as possible; runs with the same "
        f"schedule are comparable. {_JUDGED}"
    )
    titles = {Label.EXPERIMENT: "Experiment", Label.CONFIGURATION: "Configuration"}
    offered, ok, good = (
        increase_by(select(counter, _CONFIGURED, *matchers), *titles)
        for counter, *matchers in (
            (signals.LOAD_SCHEDULED,),
            (signals.LOAD_ENDED, regex(Label.OUTCOME, Outcome.OK)),
            (signals.LOAD_GOOD,),
        )
    )
    columns = [
        ValueColumn("Scheduled", call("round", offered), style.COUNT, decimals=0),
        ValueColumn("Ok", ratio(ok, offered), units.PercentUnit, decimals=1),
        ValueColumn("Good", ratio(good, offered), units.PercentUnit, decimals=1),
    ]
    panel = style.table_panel("Configurations in range", text, units.NoUnit, 24, 7)
    tables.sort_rows(panel, "-Good")
    return tables.join_queries(panel, titles, columns)


def goodput_by_configuration() -> timeseries.Panel:
    text = _describe_configurations(
        "Requests per second that are scheduled (dotted), and that end and are good for all their SLOs, by "
        f"configuration. Good: as many as are scheduled. {_JUDGED}"
    )
    panel = style.time_series_panel(
        *("Goodput by configuration", text, units.RequestsPerSecond, 12),
        (rate_by(select(signals.LOAD_GOOD, _CONFIGURED), Label.CONFIGURATION), _PER_CONFIGURATION),
        (rate_by(select(signals.LOAD_SCHEDULED, _CONFIGURED)), _OFFERED),
    )
    return panel.override_by_name(_OFFERED, [*style.DOTTED, style.fixed_colour(GREY)])


def ttft_by_configuration() -> timeseries.Panel:
    text = _describe_configurations(
        "TTFT p95 of all streams while a run of the configuration lasts; a stream that ended without a first token is "
        "slower than any. Not in it: unary requests, client errors, empty responses, and streams that still wait. "
        "Good: below the threshold of the SLO. From the sidecars' histogram, also of other clients."
    )
    ttft = call("histogram_quantile", 0.95, sum_by(first_token_buckets(rate, RATE), ["le"]))
    running = max_by(select(signals.LOAD_RUN, _CONFIGURED).binary("==", 1), [Label.CONFIGURATION])
    line = (running.binary("*", ttft, on(left=())), _PER_CONFIGURATION)
    panel = style.time_series_panel("TTFT p95 by configuration", text, style.SECONDS, 12, line)
    return style.limit_points(panel)
