"""The dashboard "Config change": what did a config change do to each class?"""

from collections.abc import Callable, Mapping

from grafana_foundation_sdk.builders import stat, table
from grafana_foundation_sdk.models import units

from alerts.links import DashboardUid
from alerts.promql import increase, ratio, select, sum_by
from dashboards import style, tables
from dashboards.board import Board
from dashboards.change_windows import AFTER, BEFORE, Window, change_variables, selected_change
from dashboards.label_selectors import RATE, select_model_class
from dashboards.layout import Row
from dashboards.panels import engine_load, slo_status, traffic
from dashboards.panels.latency import quantile_variable
from dashboards.style import BAD, GOOD, MODEL_AND_CLASS, NO_TRAFFIC, PLAIN, describe, query
from dashboards.tables import ValueColumn
from exporters import signals
from exporters.signals import Label, Outcome, Signal
from exporters.slos import Slo, SloFile

_CLASS_KEY = {Label.CLASS: "class"}
_SLO_KEYS = {Label.SLO: "SLO", Label.CLASS: "class"}

_MORE_IS_BETTER, _LESS_IS_BETTER, _NEITHER = (BAD, GOOD), (GOOD, BAD), (PLAIN, PLAIN)
_GOOD = {
    _MORE_IS_BETTER: "Good: no decrease.",
    _LESS_IS_BETTER: "Good: no increase.",
    _NEITHER: "Good: no difference, otherwise the other panels differ for this reason too.",
}
_SOURCE = "From the sidecars' metrics."

_NO_CHANGE = "there is no config change in the time shown, or no traffic around it"
_SIGNIFICANCE = "vllm-slo compare --around $change shows which differences are significant."

Value = Callable[[Window], str]
"""Returns the query of a value per class in one of the two windows."""


def rows(spec: SloFile) -> tuple[Row, ...]:
    return (
        Row(
            "Comparison: $length s before and after",
            (
                config_change(),
                goodput(),
                attainment(),
                requests_offered(),
                latency("TTFT p50", 0.5, signals.TTFT),
                latency("TTFT p95", 0.95, signals.TTFT),
                latency("Queue time p95", 0.95, signals.QUEUE),
            ),
        ),
        Row(
            "Side effects",
            (
                latency("TPOT p95", 0.95, signals.TPOT),
                latency("ITL p95", 0.95, signals.INTER_CHUNK),
                latency("E2E p95", 0.95, signals.DURATION),
                client_errors(),
                tokens(),
                cache_hits(),
                preemptions(),
            ),
        ),
        Row(
            "History",
            (
                slo_status.goodput(spec),
                traffic.requests_offered(spec),
                engine_load.prefix_cache(),
                traffic.time_to_first_token(spec),
                traffic.in_flight(spec),
            ),
            is_collapsed=True,
        ),
        Row("Revisions", (by_revision(spec), events_by_revision(spec)), is_collapsed=True),
    )


def config_change() -> stat.Panel:
    text = describe(
        "Settings that changed at the selected time. The window before ends when an engine last responded; the one "
        "after begins when one has responded for half a minute. Both are limited by the time after the config change "
        "and by the next one. Good: only settings that you changed. From the sidecars' metrics.",
        may_be_empty=_NO_CHANGE,
    )
    panel = style.if_absent(
        style.stat_panel("Config change", text, units.DatetimeISO, 24, 4), "no config change in the time range"
    )
    panel.with_target(query(selected_change(), "{{setting}}: {{old}} → {{new}}", instant=True))
    # the revision at the end of each window, because Prometheus returns the old one for five minutes after the change
    for moment, window, legend in (("$before", BEFORE, "until"), ("$after", AFTER, "from")):
        revision = f"group by ({Label.REVISION}) ({signals.ENGINE_CONFIG_INFO.name} {window.end}) * {moment} * 1000"
        panel.with_target(query(revision, f"revision {{{{revision}}}} {legend}", instant=True))
    return panel


def goodput() -> table.Panel:
    before, after = (_increase(signals.GOODPUT_EVENTS, window) for window in (BEFORE, AFTER))
    return _comparison(
        "Goodput",
        "Share of requests that are good for all their SLOs. The last column is the number of judged requests, in the "
        "window with fewer of them.",
        lambda window: _ratio_in(signals.GOODPUT_REQUESTS, signals.GOODPUT_EVENTS, window),
        units.PercentUnit,
        _MORE_IS_BETTER,
        more_columns=(ValueColumn("judged", f"({before} <= {after}) or {after}", units.Short, decimals=0),),
    )


def attainment() -> table.Panel:
    return _comparison(
        "SLO attainment",
        "Share of good events of each SLO. A request that hangs is bad as soon as it exceeds its threshold.",
        lambda window: f"1 - {_ratio_in(signals.SLO_BAD, signals.SLO_EVENTS, window, tuple(_SLO_KEYS))}",
        units.PercentUnit,
        _MORE_IS_BETTER,
        keys=_SLO_KEYS,
    )


def requests_offered() -> table.Panel:
    def arrival_rate(window: Window) -> str:
        end, start = (
            sum_by(f"{select_model_class(signals.IN_FLIGHT)} {at}", _CLASS_KEY) for at in (window.end, window.start)
        )
        return f"clamp_min({_increase(signals.REQUESTS, window)} + {end} - {start}, 0) / $length"

    return _comparison(
        "Requests offered",
        "Requests that arrived per second.",
        arrival_rate,
        units.RequestsPerSecond,
    )


def latency(name: str, q: float, histogram: Signal, width: int = 8) -> table.Panel:
    def quantile(window: Window) -> str:
        return f"histogram_quantile({q:g}, {_increase(histogram.bucket, window, (Label.CLASS, 'le'))})"

    text = (
        f"{q * 100:g} % of the requests took no longer. Requests that did not get that far are excluded: see goodput."
    )
    return _comparison(name, text, quantile, units.Seconds, _LESS_IS_BETTER, width)


def client_errors() -> table.Panel:
    def share(window: Window) -> str:
        client_errors = {Label.OUTCOME: Outcome.CLIENT_ERROR}
        return ratio(_increase(signals.REQUESTS, window, where=client_errors), _increase(signals.REQUESTS, window))

    return _comparison(
        "Client errors",
        "Share of requests with the outcome client_error. They are no SLO events, so a setting that rejects valid "
        "requests shows only here.",
        share,
        units.PercentUnit,
        _LESS_IS_BETTER,
        6,
    )


def tokens() -> table.Panel:
    return _comparison(
        "Tokens",
        "Prompt and completion tokens per second, counted when a request ends; they follow the requests offered.",
        lambda window: (
            f"({_increase(signals.PROMPT_TOKENS, window)} + {_increase(signals.COMPLETION_TOKENS, window)}) / $length"
        ),
        "tokens/s",
        width=6,
    )


def cache_hits() -> table.Panel:
    return _comparison(
        "Prefix cache hits",
        "Share of prompt tokens found in the prefix cache; 0 % also if the engine does not report them.",
        lambda window: _ratio_in(signals.CACHED_TOKENS, signals.PROMPT_TOKENS, window),
        units.PercentUnit,
        _MORE_IS_BETTER,
        6,
    )


def preemptions() -> table.Panel:
    """By engine, because the engine's metrics have no class."""

    def preempted(window: Window) -> str:
        series = select(signals.ENGINE_PREEMPTIONS, {Label.MODEL: MODEL_AND_CLASS[Label.MODEL]}, regex=True)
        return sum_by(f"increase({series}{window.whole})", [Label.ENGINE])

    return _comparison(
        "Preemptions",
        "Running requests preempted in each window because the KV cache was full, of all classes. Engines that do not "
        "count preemptions have no row.",
        preempted,
        units.Short,
        _LESS_IS_BETTER,
        6,
        keys={Label.ENGINE: "engine"},
    )


def by_revision(spec: SloFile) -> table.Panel:
    text = describe(
        "Share of good events under each configuration: a row per revision, a column per SLO and class. Times without "
        "an engine, and times in which a sidecar saw two revisions, are excluded. Good: at or above the objective "
        "(green). From the sidecars' counters.",
        may_be_empty=NO_TRAFFIC,
    )
    bad, all_events = (_while_active(counter) for counter in (signals.SLO_BAD, signals.SLO_EVENTS))
    panel = style.table_panel("Attainment by revision", text, units.PercentUnit, 24, 7).decimals(1)
    for column, slo in _columns(spec).items():
        panel.override_by_name(column, tables.threshold_colours(BAD, (slo.objective, GOOD)))
    return _by_revision(panel, f"1 - {ratio(bad, all_events)}", spec)


def events_by_revision(spec: SloFile) -> table.Panel:
    text = describe(
        "SLO events under each configuration, of which the other table shows the share of good ones. Good: hundreds; "
        "shares of few events vary by chance. From the sidecars' counters.",
        may_be_empty=NO_TRAFFIC,
    )
    panel = style.table_panel("Events by revision", text, units.Short, 24, 7).decimals(0)
    return _by_revision(panel, _while_active(signals.SLO_EVENTS), spec)


def _by_revision(panel: table.Panel, expression: str, spec: SloFile) -> table.Panel:
    column_names = f'label_join({expression}, "{Label.CLASS}", " ", "{Label.SLO}", "{Label.CLASS}")'
    style.if_absent(panel, NO_TRAFFIC)
    return tables.pivot(panel, column_names, Label.REVISION, Label.CLASS, order=tuple(_columns(spec)))


def _columns(spec: SloFile) -> dict[str, Slo]:
    return {f"{slo.name} {name}": slo for slo in spec.slos for name in slo.classes}


def _while_active(counter: Signal) -> str:
    """The increase over the time range by revision; counts intervals in which an engine was up with one revision."""
    on_instance = f"on ({Label.INSTANCE})"
    revisions = f"count_over_time({signals.ENGINE_CONFIG_INFO.name}[{RATE}])"
    revisions = f"group by ({Label.INSTANCE}, {Label.REVISION}) ({revisions})"
    single = f"count by ({Label.INSTANCE}) ({revisions}) == 1"
    up = f"max by ({Label.INSTANCE}) (min_over_time({signals.ENGINE_UP.name}[{RATE}])) == 1"
    active = f"{revisions} and {on_instance} {single} and {on_instance} {up}"
    growth = sum_by(increase(select_model_class(counter), RATE), (Label.INSTANCE, Label.CLASS, Label.SLO))
    joined = f"{growth} * {on_instance} group_left ({Label.REVISION}) ({active})"
    return sum_by(f"sum_over_time(({joined})[$__range:{RATE}])", (Label.CLASS, Label.SLO, Label.REVISION))


def _comparison(
    title: str,
    text: str,
    value: Value,
    unit: str,
    colours: tuple[str, str] = _NEITHER,
    width: int = 8,
    *,
    keys: Mapping[Label, str] = _CLASS_KEY,
    more_columns: tuple[ValueColumn, ...] = (),
) -> table.Panel:
    """Columns for before, after and the change; `colours` are those of a decrease and an increase."""
    before, after = value(BEFORE), value(AFTER)
    if unit == units.PercentUnit:
        change, least, meaning = f"({after}) - ({before})", 0.01, "The change is in percentage points"
    else:
        change, least, meaning = f"({after}) / (({before}) > 0) - 1", 0.1, "The change is a share of what was before"
    fall, rise = colours
    text = describe(f"{text} {meaning}. {_SIGNIFICANCE} {_GOOD[colours]} {_SOURCE}", may_be_empty=_NO_CHANGE)
    panel = style.table_panel(title, text, unit, width, 8)
    tables.if_empty(panel, "no config change, or no traffic around it")
    return tables.join_queries(
        tables.sort_rows(panel, tuple(keys.values())[-1]),
        keys,
        (
            ValueColumn("before", before, unit, no_value=NO_TRAFFIC),
            ValueColumn("after", after, unit, no_value=NO_TRAFFIC),
            ValueColumn(
                "change", change, units.PercentUnit, no_value="-", base=fall, steps=((-least, PLAIN), (least, rise))
            ),
            *more_columns,
        ),
    )


def _ratio_in(part: Signal, whole: Signal, window: Window, by: tuple[Label, ...] = (Label.CLASS,)) -> str:
    return ratio(_increase(part, window, by), _increase(whole, window, by))


def _increase(
    counter: Signal | str,
    window: Window,
    by: tuple[Label | str, ...] = (Label.CLASS,),
    where: Mapping[Label, str] | None = None,
) -> str:
    return sum_by(f"increase({select(counter, {**MODEL_AND_CLASS, **(where or {})}, regex=True)}{window.whole})", by)


BOARD = Board(
    uid=DashboardUid.CONFIG_CHANGE,
    title="Config change",
    description="Equal windows before and after a config change, per class.",
    own_variables=lambda _: (*change_variables(), quantile_variable()),
    rows=rows,
    # a day of raw counters of 20 engines would take Prometheus 6 s
    time_from="now-2h",
)
