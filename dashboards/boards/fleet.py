"""The dashboard "Fleet": all engines in one table, and the settings in which they differ.

A row is one engine of one sidecar (`instance` and `engine`), because the engines of two sidecars may have the same
address. Latency and goodput are measured per sidecar, so the engines behind one gateway have the same values.
"""

from collections.abc import Sequence

from grafana_foundation_sdk.builders import stat, table, timeseries
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import units

from alerts.causes.engine import KV_CACHE_FULL
from alerts.links import DashboardUid, PanelTitle
from alerts.plan import Plan
from alerts.promql.build import aggregate, count_by, either, equal, max_by, on, quantile, ratio, regex, select, sum_by
from alerts.promql.expression import Expression
from dashboards.boards.board import Board
from dashboards.grafana import style, tables
from dashboards.grafana.layout import Row
from dashboards.grafana.links import to_board
from dashboards.grafana.style import BAD, LAST_MINUTE, NO_TRAFFIC, WARN
from dashboards.grafana.tables import LabelColumns, ValueColumn
from dashboards.panels.engine_load import kv_cache_panel
from dashboards.panels.latency import thresholds_of
from dashboards.panels.slo_status import goodput_limits, goodput_lines
from dashboards.queries.labels import join_labels, with_label
from dashboards.queries.rates import (
    ENGINE_LABELS,
    PER_ENGINE,
    RATE,
    at_sidecars,
    cache_hit_ratio,
    goodput_ratio,
    rate_by,
)
from exporters.engines.condition.rule import State
from exporters.vocabulary import signals
from exporters.vocabulary.signals import UP, Label, Outcome
from exporters.vocabulary.slo_file import Measure, SloFile
from exporters.vocabulary.verdicts import SERVER_FAULT

_KEYS = {Label.ENGINE: "Engine", Label.INSTANCE: "Sidecar"}
_TYPE_AND_VERSION = {Label.ENGINE_TYPE: "Type", Label.VERSION: "Version"}
_UP, _KV_USAGE = (max_by(gauge, ENGINE_LABELS) for gauge in (signals.ENGINE_UP, signals.ENGINE_KV_USAGE))
_CODES = {state: code for code, state in enumerate(style.ENGINE_STATE_COLOURS)}
_CODE = max_by(
    either(
        (select(signals.ENGINE_STATE, equal(Label.STATE, state)).binary("==", 1) * code)
        for state, code in _CODES.items()
    ),
    ENGINE_LABELS,
)
_SETTINGS, _VALUE = select(signals.ENGINE_SETTING_INFO), (Label.SETTING, Label.VALUE)
_NO_COLUMN = f"there is {NO_TRAFFIC}, or the engines do not expose it"
_FAILURES = "|".join(sorted({*SERVER_FAULT, Outcome.REJECTED}))


def rows(plan: Plan) -> tuple[Row, ...]:
    spec = plan.spec
    return (
        Row("Fleet at a glance", (states(), engines(spec))),
        Row("History", (goodput(spec), requests(), waiting(), kv_cache())),
        Row("Latency, versions and settings", (details(spec), settings())),
    )


def states() -> stat.Panel:
    """Counts that show the state of a fleet whose table is longer than the screen."""
    text = "Number of engines in each state. Good: all serve. From the sidecars' metrics."
    panel = style.stat_panel("Engines by state now", text, style.COUNT, 24, 4, decimals=0)
    for state, colour in style.ENGINE_STATE_COLOURS.items():
        count = aggregate("sum", select(signals.ENGINE_STATE, equal(Label.STATE, state)))
        limits = style.thresholds(style.PLAIN, (1, colour)).build()
        panel.with_target(style.query(count, state, instant=True))
        panel.override_by_name(state, [model.DynamicConfigValue("thresholds", limits)])
    return panel


def engines(spec: SloFile) -> table.Panel:
    text = (
        "A row per engine. Engines that do not serve come first, then the worst goodput; engines without traffic come "
        "last. A click on an engine or sidecar opens its dashboard. Traffic is the share of the prompt and output "
        "tokens of all engines shown. Goodput is that of the sidecar in front; engines behind one gateway share it. "
        "Good: all serve, and equal rows. From the sidecars and the engines' metrics."
    )
    panel = style.table_panel("Engines", text, units.Short, 24, 14, may_be_empty=_NO_COLUMN)
    return _of_engines(panel, _columns(spec), Label.ENGINE)


def details(spec: SloFile) -> table.Panel:
    text = (
        "A row per engine. Failures and TTFT are those of the sidecar in front; engines behind one gateway share them. "
        "TTFT excludes requests without a first token; it is red above the lowest threshold of the SLO file. Drift: "
        "settings whose value differs from that of most of the engines shown. Good: equal rows. From the sidecars and "
        "the engines' metrics."
    )
    panel = style.table_panel("Engine details", text, units.Short, 24, 8, may_be_empty=_NO_COLUMN)
    return _of_engines(panel, _detail_columns(spec), Label.ENGINE, Label.VERSION)


def _of_engines(panel: table.Panel, columns: Sequence[ValueColumn | LabelColumns], *widest: Label) -> table.Panel:
    """A row per engine of a sidecar, sorted by trouble."""
    tables.join_queries(style.over_last_minute(panel), _KEYS, columns, order_by=_order(), rows=_UP, widest=widest)
    engine = to_board(DashboardUid.ENGINE, Label.INSTANCE, Label.ENGINE)
    tables.link_cells(panel, Label.ENGINE, "Open the engine", engine)
    return tables.link_cells(panel, Label.INSTANCE, "Open the sidecar", to_board(DashboardUid.SIDECAR, Label.INSTANCE))


def _order() -> Expression:
    """The urgency of the state of an engine that does not serve, goodput, and above 1 without traffic."""
    urgent = (_CODES[State.SATURATED] > _CODE) - len(State)
    return urgent.or_(_per_engine(goodput_ratio(Label.INSTANCE))).or_(2 * aggregate("group", _UP, by=ENGINE_LABELS))


def _columns(spec: SloFile) -> tuple[ValueColumn, ...]:
    prompt, output = (
        rate_by(each, *ENGINE_LABELS) for each in (signals.ENGINE_PROMPT_TOKENS, signals.ENGINE_GENERATION_TOKENS)
    )
    tokens = prompt + output
    return (
        ValueColumn(
            "State",
            _state(spec),
            units.NoUnit,
            base=BAD,
            steps=tuple((code, style.ENGINE_STATE_COLOURS[state]) for state, code in _CODES.items() if code),
            mappings=style.ENGINE_STATE_MAPPINGS,
            width=85,
        ),
        ValueColumn("Waiting now", sum_by(signals.ENGINE_WAITING, ENGINE_LABELS), units.NoUnit, decimals=0, width=110),
        ValueColumn("Running now", sum_by(signals.ENGINE_RUNNING, ENGINE_LABELS), units.NoUnit, decimals=0, width=110),
        ValueColumn(
            *("KV cache now", _KV_USAGE, units.PercentUnit), decimals=0, steps=((KV_CACHE_FULL, WARN),), width=115
        ),
        ValueColumn(
            f"Traffic {LAST_MINUTE}",
            tokens.binary("/", aggregate("sum", tokens) > 0, on(left=())),
            units.PercentUnit,
            decimals=1,
            width=115,
        ),
        ValueColumn(
            f"Goodput {LAST_MINUTE}",
            _per_engine(goodput_ratio(Label.INSTANCE)),
            units.PercentUnit,
            decimals=1,
            base=BAD,
            steps=goodput_limits(spec),
            width=120,
        ),
    )


def _detail_columns(spec: SloFile) -> tuple[ValueColumn | LabelColumns, ...]:
    ended = rate_by(signals.REQUESTS, Label.INSTANCE)
    failed = rate_by(select(signals.REQUESTS, regex(Label.OUTCOME, _FAILURES)), Label.INSTANCE)
    late = tuple((seconds, BAD) for seconds in thresholds_of(spec, Measure.TTFT)[:1])

    # without requests it is NaN, which a table would show
    ttft = _per_engine(quantile(0.95, signals.TTFT, RATE, [Label.INSTANCE]) >= 0)
    return (
        ValueColumn(
            f"Failed {LAST_MINUTE}",
            _per_engine(ratio(failed, ended)),
            units.PercentUnit,
            decimals=1,
            steps=_failure_limits(spec),
            width=110,
        ),
        ValueColumn(f"TTFT p95 {LAST_MINUTE}", ttft, style.SECONDS, steps=late, width=130),
        ValueColumn(
            f"Cache hits {LAST_MINUTE}", cache_hit_ratio(*ENGINE_LABELS), units.PercentUnit, decimals=0, width=140
        ),
        ValueColumn("Drift", _odd_settings(), units.NoUnit, decimals=0, steps=((1, WARN),), width=60),
        LabelColumns(count_by(signals.ENGINE_INFO, [*ENGINE_LABELS, *_TYPE_AND_VERSION]), _TYPE_AND_VERSION),
    )


def _per_engine(of_sidecar: Expression) -> Expression:
    """The value of a sidecar, repeated for each of its engines."""
    engines = aggregate("group", signals.ENGINE_UP, by=ENGINE_LABELS)
    return of_sidecar.binary("*", engines, on(Label.INSTANCE, right=()))


def _state(spec: SloFile) -> Expression:
    """The number of the state of an engine; a sidecar that is down has one row, because it exposes no engine."""
    down = with_label(at_sidecars(UP, spec).binary("==", 0), Label.ENGINE, "sidecar down")
    return _CODE.or_(max_by(down, ENGINE_LABELS))


def _odd_settings() -> Expression:
    half = 0.5 * count_by(_SETTINGS, [Label.SETTING])
    usual = count_by(_SETTINGS, _VALUE).binary(">", half, on(Label.SETTING, left=()))
    return count_by(_SETTINGS.unless(usual, on(*_VALUE)), ENGINE_LABELS).or_(0 * _UP)


def goodput(spec: SloFile) -> timeseries.Panel:
    text = (
        "Share of requests good for all their SLOs, by sidecar. Good: above the upper line. The lines are the lowest "
        f"objective and twice its budget. Gaps are {NO_TRAFFIC}. From the recording rules."
    )
    line = (signals.GOODPUT_AT, "{{instance}}")
    panel = style.ratio_panel(PanelTitle.GOODPUT_BY_SIDECAR, text, 12, line)
    panel.legend(style.ranked_legend("min", "Min", descending=False))
    return style.with_threshold_lines(panel, *goodput_lines(spec))


def requests() -> timeseries.Panel:
    text = "Requests that end per second, by sidecar. Good: evenly distributed. From the recording rules."
    line = (signals.REQUESTS_AT, "{{instance}}")
    return _ranked(style.time_series_panel("Requests by sidecar", text, units.RequestsPerSecond, 12, line))


def waiting() -> timeseries.Panel:
    text = (
        "Requests in the queue of each engine. One long queue among empty ones is a problem of routing. Good: close "
        "to 0. From the engines' metrics."
    )
    panel = style.time_series_panel(
        *("Waiting by engine", text, units.Short, 24),
        (sum_by(signals.ENGINE_WAITING, ENGINE_LABELS), PER_ENGINE),
        may_be_empty="some engines expose no queue",
    )
    return _ranked(panel)


def kv_cache() -> timeseries.Panel:
    text = (
        "Share of the KV cache in use, of the fullest rank of each engine. Good: below the line. From the engines' "
        "metrics."
    )
    return _ranked(kv_cache_panel("KV cache by engine", text, _KV_USAGE, PER_ENGINE, 24))


def _ranked(panel: timeseries.Panel) -> timeseries.Panel:
    return panel.legend(style.ranked_legend("max", "Max"))


def settings() -> table.Panel:
    text = (
        "A column for each setting of which the engines shown report more than one value. If only the fingerprint "
        "differs, a flag that the engine does not report by name differs. The engine with the rarest values is first. "
        "Good: no column. From the engines' metrics."
    )
    engines_with = count_by(_SETTINGS, _VALUE)
    differing = _SETTINGS.and_(count_by(engines_with, [Label.SETTING]) > 1, on(Label.SETTING))
    rarity = sum_by(_SETTINGS.binary("*", 1 / engines_with, on(*_VALUE, left=())), ENGINE_LABELS)
    of_engine = differing.binary("*", rarity, on(*ENGINE_LABELS, left=()))
    engine_names = join_labels(of_engine, Label.ENGINE, " at ", Label.ENGINE, Label.INSTANCE)
    reason = "all engines shown have the same settings"
    panel = style.table_panel("Settings that differ", text, units.String, 24, 5, may_be_empty=reason).min_width(215)
    # two addresses
    return tables.pivot(panel, engine_names, Label.ENGINE, Label.SETTING, Label.VALUE, width=310, first_by="Value")


def _failure_limits(spec: SloFile) -> tuple[tuple[float, str], ...]:
    """The error budget of availability, and twice that."""
    budgets = [slo.budget for slo in spec.slos if slo.measure is Measure.AVAILABILITY]
    return ((max(budgets), WARN), (2 * max(budgets), BAD)) if budgets else ()


BOARD = Board(
    uid=DashboardUid.FLEET,
    title="Fleet",
    description="All engines side by side: what users get from each, how full it is, and how it is set.",
    rows=rows,
)
