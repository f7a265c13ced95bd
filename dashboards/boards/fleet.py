"""The dashboard "Fleet": all engines in one table, and the settings in which they differ.

A row is one engine of one sidecar (`instance` and `engine`), because the engines of two sidecars may have the same
address. Latency and goodput are measured per sidecar, so the engines behind one gateway have the same values.
"""

from grafana_foundation_sdk.builders import table, timeseries
from grafana_foundation_sdk.models import common as common_model
from grafana_foundation_sdk.models import units

from alerts.engine_alerts import KV_CACHE_FULL
from alerts.links import DashboardUid, PanelTitle
from alerts.promql_text import max_by, quantile, rate, ratio, sum_by
from dashboards import style, tables
from dashboards.board import Board
from dashboards.data_links import to_board
from dashboards.label_selectors import (
    ENGINE_LABELS,
    PER_ENGINE,
    RATE,
    cache_hit_ratio,
    select_engine,
    select_sidecar,
    sidecar_job,
)
from dashboards.layout import Row
from dashboards.panels.engine_load import kv_cache_panel
from dashboards.panels.latency import thresholds_of
from dashboards.panels.slo_status import goodput_limits, goodput_lines
from dashboards.style import BAD, GOOD, NO_TRAFFIC, WARN, describe, query
from dashboards.tables import LabelColumns, ValueColumn
from exporters import signals
from exporters.signals import UP, Label, Outcome, Signal
from exporters.slos import Measure, SloFile
from exporters.verdicts import SERVER_FAULT

_KEYS = {Label.ENGINE: "Engine", Label.INSTANCE: "Sidecar"}
_TYPE_AND_VERSION = {Label.ENGINE_TYPE: "Type", Label.VERSION: "Version"}
_FAILURES = "|".join(sorted({*SERVER_FAULT, Outcome.REJECTED}))


def rows(spec: SloFile) -> tuple[Row, ...]:
    return (
        Row("Engine comparison", (engines(spec),)),
        Row("History", (goodput(spec), requests(), waiting(), kv_cache())),
        Row("Settings", (settings(),)),
    )


def engines(spec: SloFile) -> table.Panel:
    text = (
        "A row per engine. Engines that are down come first, then the worst "
        "goodput; engines without traffic come last. A click on an engine or sidecar opens its dashboard. Goodput, "
        "requests, failures and TTFT are those of the sidecar in front, over about the last minute; engines behind one "
        "gateway share them. TTFT excludes requests without a first token; it is red above the lowest threshold of the "
        "SLO file. Config drift: settings whose value differs from that of most of the engines shown. Good: equal "
        "rows. From the sidecars and the engines' metrics."
    )
    text = describe(text, may_be_empty=f"there is {NO_TRAFFIC}, or the engines do not expose it")
    panel = tables.if_empty(style.table_panel("Engines", text, units.Short, 24, 8), "no engine").interval("1m")
    up = _max(signals.ENGINE_UP)
    tables.join_queries(panel, _KEYS, _columns(spec), order_by=_order(), rows=up, widest=(Label.ENGINE, Label.VERSION))
    engine = to_board(DashboardUid.ENGINE, Label.INSTANCE, Label.ENGINE)
    tables.link_cells(panel, Label.ENGINE, "Open the engine", engine)
    return tables.link_cells(panel, Label.INSTANCE, "Open the sidecar", to_board(DashboardUid.SIDECAR, Label.INSTANCE))


def _order() -> str:
    """Goodput, below 0 for an engine that is down, and above 1 without traffic."""
    up = _max(signals.ENGINE_UP)
    return f"(({up} == 0) - 1) or {_per_engine(_goodput_ratio())} or (2 * {up})"


def _goodput_ratio() -> str:
    counters = (signals.GOODPUT_REQUESTS, signals.GOODPUT_EVENTS)
    good, judged = (sum_by(rate(select_sidecar(each), RATE), [Label.INSTANCE]) for each in counters)
    return ratio(good, judged)


def _columns(spec: SloFile) -> tuple[ValueColumn | LabelColumns, ...]:
    by_sidecar = [Label.INSTANCE]
    ended = sum_by(rate(select_sidecar(signals.REQUESTS), RATE), by_sidecar)
    failed = sum_by(rate(select_sidecar(signals.REQUESTS, {Label.OUTCOME: _FAILURES}), RATE), by_sidecar)
    late = tuple((seconds, BAD) for seconds in thresholds_of(spec, Measure.TTFT)[:1])

    def ttft(q: float) -> str:
        value = quantile(q, signals.TTFT, RATE, by_sidecar, {Label.INSTANCE: "$instance"})
        # without requests it is NaN, which a table would show
        return _per_engine(f"{value} >= 0")

    return (
        ValueColumn(
            "State", _state(spec), units.NoUnit, base=BAD, steps=((1, GOOD),), mappings=style.UP_DOWN_MAPPINGS, width=53
        ),
        ValueColumn(
            "Goodput",
            _per_engine(_goodput_ratio()),
            units.PercentUnit,
            no_value=NO_TRAFFIC,
            decimals=1,
            base=BAD,
            steps=goodput_limits(spec),
            width=85,
        ),
        ValueColumn("Requests", _per_engine(ended), units.RequestsPerSecond, decimals=2, width=95),
        ValueColumn(
            "Failed",
            _per_engine(ratio(failed, ended)),
            units.PercentUnit,
            no_value=NO_TRAFFIC,
            decimals=1,
            steps=_failure_limits(spec),
            width=85,
        ),
        ValueColumn("TTFT p50", ttft(0.5), units.Seconds, no_value=NO_TRAFFIC, steps=late, width=85),
        ValueColumn("TTFT p95", ttft(0.95), units.Seconds, no_value=NO_TRAFFIC, steps=late, width=85),
        ValueColumn("Running", _sum(signals.ENGINE_RUNNING), style.COUNT, decimals=0, width=75),
        ValueColumn("Waiting", _sum(signals.ENGINE_WAITING), style.COUNT, decimals=0, width=75),
        ValueColumn(
            "KV cache",
            _max(signals.ENGINE_KV_USAGE),
            units.PercentUnit,
            decimals=0,
            steps=((KV_CACHE_FULL, WARN),),
            width=80,
        ),
        ValueColumn(
            "Cache hits", cache_hit_ratio(select_engine, ENGINE_LABELS), units.PercentUnit, decimals=0, width=90
        ),
        ValueColumn("Config drift", _odd_settings(), style.COUNT, decimals=0, steps=((1, WARN),), width=105),
        LabelColumns(
            f"count by ({', '.join([*ENGINE_LABELS, *_TYPE_AND_VERSION])}) ({select_engine(signals.ENGINE_INFO)})",
            _TYPE_AND_VERSION,
        ),
    )


def _per_engine(sidecar_query: str) -> str:
    """The value of a sidecar, repeated for each of its engines."""
    engines = f"group by ({', '.join(ENGINE_LABELS)}) ({select_engine(signals.ENGINE_UP)})"
    return f"({sidecar_query}) * on ({Label.INSTANCE}) group_right () {engines}"


def _state(spec: SloFile) -> str:
    """1 for an engine that is up; a sidecar that is down has one row, because it exposes no engine."""
    down = f"{select_sidecar(UP, sidecar_job(spec))} == 0"
    row = f'label_replace({down}, "{Label.ENGINE}", "sidecar down", "", "")'
    return f"{_max(signals.ENGINE_UP)} or {max_by(row, ENGINE_LABELS)}"


def _odd_settings() -> str:
    settings_series, value = select_engine(signals.ENGINE_SETTING_INFO), f"{Label.SETTING}, {Label.VALUE}"
    half = f"0.5 * count by ({Label.SETTING}) ({settings_series})"
    usual = f"count by ({value}) ({settings_series}) > on ({Label.SETTING}) group_left () {half}"
    odd = f"count by ({', '.join(ENGINE_LABELS)}) ({settings_series} unless on ({value}) ({usual}))"
    return f"{odd} or 0 * {_max(signals.ENGINE_UP)}"


def goodput(spec: SloFile) -> timeseries.Panel:
    text = (
        "Share of requests good for all their SLOs, by sidecar. Good: above the upper line. The lines are the lowest "
        f"objective and twice its budget. Gaps are {NO_TRAFFIC}. From the recording rules."
    )
    panel = style.ratio_panel(PanelTitle.GOODPUT_BY_SIDECAR, text, 12)
    panel.with_target(query(select_sidecar(signals.GOODPUT_AT), "{{instance}}")).no_value(NO_TRAFFIC)
    worst_first = style.table_legend(common_model.LegendPlacement.BOTTOM, "lastNotNull", "min")
    panel.legend(worst_first.sort_by("Min").sort_desc(False))
    return style.with_threshold_lines(panel, *goodput_lines(spec))


def requests() -> timeseries.Panel:
    text = "Requests that end per second, by sidecar. Good: evenly distributed. From the recording rules."
    return style.time_series_panel("Requests by sidecar", text, units.RequestsPerSecond, 12).with_target(
        query(select_sidecar(signals.REQUESTS_AT), "{{instance}}")
    )


def waiting() -> timeseries.Panel:
    text = describe(
        "Requests in the queue of each engine. One long queue among empty ones is a problem of routing. Good: close "
        "to 0. From the engines' metrics.",
        may_be_empty="some engines expose no queue",
    )
    return style.time_series_panel("Waiting by engine", text, units.Short, 12).with_target(
        query(_sum(signals.ENGINE_WAITING), PER_ENGINE)
    )


def kv_cache() -> timeseries.Panel:
    text = (
        "Share of the KV cache in use, of the fullest rank of each engine. Good: below the line. From the engines' "
        "metrics."
    )
    return kv_cache_panel("KV cache by engine", text, _max(signals.ENGINE_KV_USAGE), PER_ENGINE, 12)


def settings() -> table.Panel:
    text = describe(
        "A column for each setting of which the engines shown report more than one value. If only the fingerprint "
        "differs, a flag that the engine does not report by name differs. The engine with the rarest values is first. "
        "Good: no column. From the engines' metrics.",
        may_be_empty="all engines shown have the same settings",
    )
    settings_series = select_engine(signals.ENGINE_SETTING_INFO)
    value = f"{Label.SETTING}, {Label.VALUE}"
    values = f"count by ({Label.SETTING}) (count by ({value}) ({settings_series}))"
    differing = f"{settings_series} and on ({Label.SETTING}) ({values} > 1)"
    rarity = f"{settings_series} * on ({value}) group_left () (1 / count by ({value}) ({settings_series}))"
    rarity = f"on ({', '.join(ENGINE_LABELS)}) group_left () {sum_by(rarity, ENGINE_LABELS)}"
    engine_names = (
        f'label_join(({differing}) * {rarity}, "{Label.ENGINE}", " at ", "{Label.ENGINE}", "{Label.INSTANCE}")'
    )
    panel = style.table_panel("Settings that differ", text, units.String, 24, 5)
    tables.if_empty(panel, "all engines have the same settings")
    # two addresses
    return tables.pivot(panel, engine_names, Label.ENGINE, Label.SETTING, Label.VALUE, width=360, first_by="Value")


def _failure_limits(spec: SloFile) -> tuple[tuple[float, str], ...]:
    """The error budget of availability, and twice that."""
    budgets = [slo.budget for slo in spec.slos if slo.measure is Measure.AVAILABILITY]
    return ((max(budgets), WARN), (2 * max(budgets), BAD)) if budgets else ()


def _sum(gauge: Signal) -> str:
    return sum_by(select_engine(gauge), ENGINE_LABELS)


def _max(gauge: Signal) -> str:
    return max_by(select_engine(gauge), ENGINE_LABELS)


BOARD = Board(
    uid=DashboardUid.FLEET,
    title="Fleet",
    description="All engines side by side: what users get from each, how full it is, and how it is set.",
    rows=rows,
)
