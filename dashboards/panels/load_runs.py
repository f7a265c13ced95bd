"""Panels on load tests: the runs, and the configurations that they name."""

from collections.abc import Mapping
from functools import partial

from grafana_foundation_sdk.builders import common, table, timeseries
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import units

from alerts.promql_text import increase, max_by, rate, ratio, select, sum_by
from dashboards import style, tables
from dashboards.label_selectors import RANGE, RATE
from dashboards.panels.first_tokens import first_token_buckets
from dashboards.style import GREY, MODEL_AND_CLASS, describe, query
from dashboards.tables import ValueColumn
from exporters import signals
from exporters.signals import Label, Outcome, Signal

NO_TEST = "no load test"
describe_load = partial(describe, may_be_empty="no load test ran in this time")
_NO_CONFIGURATION = "no load test with --configuration"
_describe_configurations = partial(describe, may_be_empty="no load test in this time names its configuration")
_CONFIGURED = {Label.CONFIGURATION: ".+"}
_PER_CONFIGURATION = f"{{{{{Label.CONFIGURATION}}}}}"
_OFFERED = "scheduled"
_JUDGED = "From the load generator's counters, also the good requests."


def select_load(counter: Signal, where: Mapping[Label, str] | None = None) -> str:
    """Selects by class only: the series of the load generator have no model."""
    return select(counter, {Label.CLASS: MODEL_AND_CLASS[Label.CLASS], **(where or {})}, regex=True)


def runs() -> table.Panel:
    text = describe_load(
        "Load tests in the time range. The name of a run is its start in UTC, as in the annotations; its requests and "
        "report are in the folder of `load run --out`. Good: one at a time. From the load generator's counters."
    )
    titles = {Label.RUN: "Run", Label.SCENARIO: "Scenario", Label.CONFIGURATION: "Configuration"}
    runs_in_range = max_by(f"max_over_time({signals.LOAD_RUN.name}[{RANGE}])", titles)
    states = {"0": "ended", "1": "running"}
    state = ValueColumn(
        "State",
        # a killed run has no final 0
        f"{max_by(signals.LOAD_RUN.name, titles)} or 0 * {runs_in_range}",
        units.NoUnit,
        mappings=[model.ValueMap({value: model.ValueMappingResult(word) for value, word in states.items()})],
    )
    newest_first = common.TableSortByFieldState().display_name("Run").desc(True)
    panel = tables.if_empty(style.table_panel("Load tests", text, units.NoUnit, 24, 6), NO_TEST).sort_by([newest_first])
    return tables.join_queries(panel, titles, [state])


def configurations() -> table.Panel:
    text = _describe_configurations(
        "Requests that were scheduled in the time range, by the configuration that their run names, and the shares of "
        "them that ended ok and that were good for all their SLOs. Good: as much as possible; runs with the same "
        f"schedule are comparable. {_JUDGED}"
    )
    titles = {Label.EXPERIMENT: "Experiment", Label.CONFIGURATION: "Configuration"}
    offered, ok, good = (
        sum_by(increase(select_load(counter, {**_CONFIGURED, **where}), RANGE), titles)
        for counter, where in (
            (signals.LOAD_SCHEDULED, {}),
            (signals.LOAD_ENDED, {Label.OUTCOME: Outcome.OK}),
            (signals.LOAD_GOOD, {}),
        )
    )
    columns = [
        ValueColumn("Scheduled", f"round({offered})", style.COUNT, decimals=0),
        ValueColumn("Ok", ratio(ok, offered), units.PercentUnit, decimals=1),
        ValueColumn("Good", ratio(good, offered), units.PercentUnit, decimals=1),
    ]
    best_first = common.TableSortByFieldState().display_name("Good").desc(True)
    panel = tables.if_empty(style.table_panel("Configurations compared", text, units.NoUnit, 24, 7), _NO_CONFIGURATION)
    return tables.join_queries(panel.sort_by([best_first]), titles, columns)


def goodput_by_configuration() -> timeseries.Panel:
    text = _describe_configurations(
        "Requests per second that are scheduled (dotted), and that end and are good for all their SLOs, by "
        f"configuration. Good: as many as are scheduled. {_JUDGED}"
    )
    offered, good = (
        sum_by(rate(select_load(counter, _CONFIGURED), RATE), by)
        for counter, by in ((signals.LOAD_SCHEDULED, []), (signals.LOAD_GOOD, [Label.CONFIGURATION]))
    )
    panel = style.time_series_panel("Goodput by configuration", text, units.RequestsPerSecond, 12)
    panel.with_target(query(good, _PER_CONFIGURATION)).with_target(query(offered, _OFFERED))
    return panel.override_by_name(_OFFERED, [*style.DOTTED, style.fixed_colour(GREY)]).no_value(_NO_CONFIGURATION)


def ttft_by_configuration() -> timeseries.Panel:
    text = _describe_configurations(
        "TTFT p95 of all streams while a run of the configuration lasts; a stream that ended without a first token is "
        "slower than any. Not in it: unary requests, client errors, empty responses, and streams that still wait. "
        "Good: below the threshold of the SLO. From the sidecars' histogram, also of other clients."
    )
    ttft = f"histogram_quantile(0.95, {sum_by(first_token_buckets(rate, RATE), ['le'])})"
    running = max_by(f"{select(signals.LOAD_RUN, _CONFIGURED, regex=True)} == 1", [Label.CONFIGURATION])
    panel = style.limit_points(style.time_series_panel("TTFT p95 by configuration", text, units.Seconds, 12))
    panel.with_target(query(f"{running} * on () group_left () {ttft}", _PER_CONFIGURATION))
    return panel.no_value(_NO_CONFIGURATION)
