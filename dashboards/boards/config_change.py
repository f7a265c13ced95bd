"""The dashboard "Config change": what did a config change do to each class?"""

from collections.abc import Callable, Mapping, Sequence

from grafana_foundation_sdk.builders import common, stat, table
from grafana_foundation_sdk.models import common as common_model
from grafana_foundation_sdk.models import units

from alerts.links import DashboardUid
from alerts.promql_text import increase, ratio, select, sum_by
from dashboards import style, tables
from dashboards.board import Board
from dashboards.change_windows import AFTER, BEFORE, Window, change_variables, changed_engines, selected_change
from dashboards.label_selectors import ENGINE_LABELS, RANGE, RATE, select_model_class
from dashboards.layout import Row
from dashboards.panels import engine_load, slo_status, traffic
from dashboards.panels.latency import quantile_variable
from dashboards.ranked_values import highest_first
from dashboards.score_interval import Share, significant_change
from dashboards.slo_windows import class_order, class_order_variable
from dashboards.style import BAD, GOOD, MODEL_AND_CLASS, NO_TRAFFIC, PLAIN, describe
from dashboards.tables import DifferenceColumn, ValueColumn
from exporters import signals
from exporters.signals import Label, Outcome, Signal
from exporters.slos import Slo, SloFile

_CLASS_KEY: Mapping[str, str] = {Label.CLASS: "Class"}
_SLO_KEYS: Mapping[str, str] = {Label.SLO: "SLO", Label.CLASS: "Class"}

_MORE_IS_BETTER, _LESS_IS_BETTER, _NEITHER = (BAD, GOOD), (GOOD, BAD), (PLAIN, PLAIN)
_GOOD = {
    _MORE_IS_BETTER: "Good: no decrease.",
    _LESS_IS_BETTER: "Good: no increase.",
    _NEITHER: "Good: no difference, otherwise the other panels differ for this reason too.",
}
_CHANGED = {Label.INSTANCE: "$changed"}
"""The sidecars of the changed engines."""

_ENGINES, _FIGURE = "engines", "figure"
_LATENCIES = (
    ("TTFT p50", 0.5, signals.TTFT),
    ("TTFT p95", 0.95, signals.TTFT),
    ("Queue time p95", 0.95, signals.QUEUE),
    ("TPOT p95", 0.95, signals.TPOT),
    ("ITL p95", 0.95, signals.INTER_CHUNK),
    ("E2E p95", 0.95, signals.DURATION),
)
_KILLED = f"{Outcome.TRUNCATED}|{Outcome.UPSTREAM_ERROR}|{Outcome.UPSTREAM_UNREACHABLE}"
_EMPTY = "no config change, or no traffic around it"
_SOURCE = "From the sidecars' metrics."

_POINTS = "suffix:pp"

_NO_CHANGE = "there is no config change in the time shown, or no traffic around it"
_NOT_SIGNIFICANT = "not significant"
_SIGNIFICANT = "The change is in percentage points (pp), and shown only if its 95 % interval excludes 0."
_RELATIVE = "The change is relative to the value before, and has no interval."

Value = Callable[[Window], str]
"""Returns the query of a value per class in one of the two windows."""

ShareIn = Callable[[Window], Share]
"""Returns the queries of a share per class in one of the two windows."""


def rows(spec: SloFile) -> tuple[Row, ...]:
    return (
        Row(
            "Comparison: $length s before and after",
            (
                config_change(),
                changed().height(6),
                changed_and_unchanged().height(8),
                goodput(),
                requests_offered().span(7).min_width(95),
            ),
        ),
        # rows of eight SLOs and classes, and of one class, without a scrollbar
        Row(
            "SLO attainment and latency",
            (attainment().span(10).height(10), latency().span(14).height(10).min_width(90)),
        ),
        Row(
            "Side effects",
            (
                client_errors().height(7),
                output_tokens().span(7).height(7).min_width(90),
                cache_hits().height(7),
                preemptions().span(7).height(7),
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
        "Settings that changed at the selected time, which is that of the last engine of a rolling change. All engines "
        "have the same two windows: the one before ends when the first changed engine last responded, or earlier if "
        "another was down for longer before its change; the one after begins when the last one has responded for half "
        "a minute. The time between, when some engines have the old settings and some the new ones, is in neither. "
        "Both are limited by the time after the config change and by the next one. Good: only settings that you "
        "changed. From the sidecars' metrics.",
        may_be_empty=_NO_CHANGE,
    )
    panel = style.if_absent(
        style.stat_panel("Config change", text, units.DatetimeISO, 9, 6), "no config change in the time range"
    )
    # names of settings are long: one line for each value
    panel.orientation(common_model.VizOrientation.HORIZONTAL)
    panel.text(common.VizTextDisplayOptions().title_size(14).value_size(16))
    # the revision at the end of each window, because Prometheus returns the old one for five minutes after the change
    info = select(signals.ENGINE_CONFIG_INFO, _CHANGED, regex=True)
    revisions = (
        (f"group by ({Label.REVISION}) ({info} {window.end}) * {moment} * 1000", f"revision {{{{revision}}}} {legend}")
        for moment, window, legend in (("$before", BEFORE, "until"), ("$after", AFTER, "from"))
    )
    return highest_first(panel, (selected_change(), "{{setting}}: {{old}} → {{new}}"), *revisions)


def changed() -> table.Panel:
    text = describe(
        "The engines of the config change: the time of the change, and the goodput of the sidecar in front before and "
        "after it. Failed are requests that ended with an error of the engine between the two windows: those that the "
        f"restart killed. {_SIGNIFICANT} Good: no decrease, and no failed request. {_SOURCE}",
        may_be_empty=_NO_CHANGE,
    )
    panel = tables.if_empty(style.table_panel("Changed engines", text, units.Short, 15, 7), _EMPTY)
    engines = changed_engines()

    def of_sidecar(query: str) -> str:
        return f"({query}) * on ({Label.INSTANCE}) group_right () group by ({', '.join(ENGINE_LABELS)}) ({engines})"

    goodput = [
        _share_in(signals.GOODPUT_REQUESTS, signals.GOODPUT_EVENTS, window, (Label.INSTANCE,))
        for window in (BEFORE, AFTER)
    ]
    failed = select(signals.REQUESTS, {**MODEL_AND_CLASS, **_CHANGED, Label.OUTCOME: _KILLED}, regex=True)
    failed = sum_by(f"increase({failed}[${{gap}}s] @ $after)", [Label.INSTANCE])
    before, after = (of_sidecar(share.value) for share in goodput)
    columns = (
        ValueColumn("Changed", f"{engines} * 1000", units.DatetimeISO, width=165),
        *_before_and_after(before, after, units.PercentUnit, 85),
        _significant(of_sidecar(f"100 * {significant_change(*goodput)}"), _MORE_IS_BETTER),
        ValueColumn("Failed", of_sidecar(failed), style.COUNT, decimals=0, steps=((0.5, BAD),), width=65),
    )
    tables.sort_rows(panel, "Changed", "Engine")
    return tables.join_queries(
        panel, {Label.ENGINE: "Engine", Label.INSTANCE: "Sidecar"}, columns, rows=f"({engines})", widest=(Label.ENGINE,)
    )


def changed_and_unchanged() -> table.Panel:
    """The unchanged engines show what else changed at the same time, such as the load."""
    of_changed = f'{Label.INSTANCE}=~"$changed"'
    of_unchanged = f'{Label.INSTANCE}!~"$changed",{Label.INSTANCE}=~"$instance"'

    def of_both(query: str) -> str:
        others = f"({query.replace(of_changed, of_unchanged)}) and on () count({changed_engines()})"
        return " or ".join(
            f'label_replace({each}, "{_ENGINES}", "{name}", "", "")'
            for name, each in (("changed", query), ("unchanged", others))
        )

    goodput = [_share_in(signals.GOODPUT_REQUESTS, signals.GOODPUT_EVENTS, window) for window in (BEFORE, AFTER)]
    text = describe(
        "Goodput of the changed engines, and of the others in the same two windows. If both changed alike, the reason "
        f"is not the config change. {_SIGNIFICANT} Good: no decrease. {_SOURCE}",
        may_be_empty=_NO_CHANGE,
    )
    panel = tables.if_empty(style.table_panel("Changed and unchanged engines", text, units.PercentUnit, 9, 7), _EMPTY)
    before, after = (of_both(share.value) for share in goodput)
    columns = (
        *_before_and_after(before, after, units.PercentUnit),
        _significant(of_both(f"100 * {significant_change(*goodput)}"), _MORE_IS_BETTER),
    )
    return _by_class(panel, {**_CLASS_KEY, _ENGINES: "Engines"}, columns)


def goodput() -> table.Panel:
    before, after = (_increase(signals.GOODPUT_EVENTS, window) for window in (BEFORE, AFTER))
    return _comparison_of_shares(
        "Goodput",
        "Share of requests that are good for all their SLOs. The last column is the number of judged requests, in the "
        "window with fewer of them.",
        lambda window: _share_in(signals.GOODPUT_REQUESTS, signals.GOODPUT_EVENTS, window),
        _MORE_IS_BETTER,
        # no row for a class without requests
        more_columns=(
            ValueColumn("Judged", f"(({before} <= {after}) or {after}) > 0", style.COUNT, no_value="0", decimals=0),
        ),
    )


def attainment() -> table.Panel:
    return _comparison_of_shares(
        "SLO attainment",
        "Share of good events of each SLO. A request that hangs is bad as soon as it exceeds its threshold.",
        lambda window: _share_in(signals.SLO_BAD, signals.SLO_EVENTS, window, tuple(_SLO_KEYS)),
        _MORE_IS_BETTER,
        keys=_SLO_KEYS,
        of_complement=True,
    )


def requests_offered() -> table.Panel:
    open_requests = select(signals.IN_FLIGHT, {**MODEL_AND_CLASS, **_CHANGED}, regex=True)

    def arrival_rate(window: Window) -> str:
        end, start = (sum_by(f"{open_requests} {at}", _CLASS_KEY) for at in (window.end, window.start))
        return f"clamp_min({_increase(signals.REQUESTS, window)} + {end} - {start}, 0) / $length"

    panel = _comparison(
        "Requests offered",
        "Requests that arrived per second.",
        arrival_rate,
        units.RequestsPerSecond,
    )
    return tables.hide_zero_rows(panel, 2)


def latency() -> table.Panel:
    def quantiles(window: Window) -> str:
        return " or ".join(
            f"label_replace(histogram_quantile({q:g}, {_increase(histogram.bucket, window, (Label.CLASS, 'le'))}), "
            f'"{_FIGURE}", "{name}", "", "")'
            for name, q, histogram in _LATENCIES
        )

    return _comparison(
        "Latency quantiles",
        "p50 and p95: 50 % and 95 % of the requests took no longer. Requests that did not get that far are excluded: "
        "see goodput. Whether a latency changed significantly for its threshold is shown by SLO attainment.",
        quantiles,
        units.Seconds,
        _LESS_IS_BETTER,
        24,
        keys={_FIGURE: "Figure", **_CLASS_KEY},
    )


def client_errors() -> table.Panel:
    """Without an interval, which would count all requests, the dearest query of the dashboard, three times as often."""

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
        5,
    )


def output_tokens() -> table.Panel:
    panel = _comparison(
        "Output tokens per second",
        "Completion tokens, counted when a request ends; they follow the requests offered.",
        lambda window: f"{_increase(signals.COMPLETION_TOKENS, window)} / $length",
        style.COUNT,
    )
    return tables.hide_zero_rows(panel.decimals(0), 2)


def cache_hits() -> table.Panel:
    return _comparison(
        "Prefix cache hits",
        "Share of prompt tokens found in the prefix cache; 0 % also if the engine does not report them.",
        lambda window: _ratio_in(signals.CACHED_TOKENS, signals.PROMPT_TOKENS, window),
        units.PercentUnit,
        _MORE_IS_BETTER,
        5,
    )


def preemptions() -> table.Panel:
    """By engine, because the engine's metrics have no class."""

    def preempted(window: Window) -> str:
        of_model = {Label.MODEL: MODEL_AND_CLASS[Label.MODEL], **_CHANGED}
        series = select(signals.ENGINE_PREEMPTIONS, of_model, regex=True)
        return sum_by(f"increase({series}{window.whole})", [Label.ENGINE])

    return _comparison(
        "Preemptions",
        "Running requests preempted in each window because the KV cache was full, of all classes. Engines that do not "
        "count preemptions have no row.",
        preempted,
        style.COUNT,
        _LESS_IS_BETTER,
        6,
        keys={Label.ENGINE: "Engine"},
    ).decimals(0)


def by_revision(spec: SloFile) -> table.Panel:
    text = describe(
        "Share of good events under each configuration: a row per revision, the newest first, and a column per SLO "
        "and class. Times without an engine, and times in which a sidecar saw two revisions, are "
        "excluded. Good: at or above the objective (green). From the sidecars' counters.",
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
    panel = style.table_panel("Events by revision", text, style.COUNT, 24, 7).decimals(0)
    return _by_revision(panel, _while_active(signals.SLO_EVENTS), spec)


def _by_revision(panel: table.Panel, expression: str, spec: SloFile) -> table.Panel:
    joined = f"({expression}) * on ({Label.REVISION}) group_left ({Label.VALUE}) {_start_of_revision()}"
    column_names = f'label_join({joined}, "{Label.CLASS}", " ", "{Label.SLO}", "{Label.CLASS}")'
    style.if_absent(panel, NO_TRAFFIC)
    return tables.pivot(
        panel, column_names, Label.REVISION, Label.CLASS, order=tuple(_columns(spec)), first_by=Label.VALUE
    )


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


def _start_of_revision() -> str:
    """Unix time as the label `value`, to sort by; the start of the range for an older revision."""
    start = f"min_over_time(timestamp({signals.ENGINE_CONFIG_INFO.name})[{RANGE}:{RATE}])"
    return f'count_values by ({Label.REVISION}) ("{Label.VALUE}", min by ({Label.REVISION}) ({start}))'


def _comparison(
    title: str,
    text: str,
    value: Value,
    unit: str,
    colours: tuple[str, str] = _NEITHER,
    width: int = 8,
    *,
    keys: Mapping[str, str] = _CLASS_KEY,
    more_columns: tuple[ValueColumn, ...] = (),
) -> table.Panel:
    """Columns for before, after and the change, which has no colour because it has no interval."""
    before, after = value(BEFORE), value(AFTER)
    # computed by Grafana: a query would ask for both windows again
    if unit == units.PercentUnit:
        change = DifferenceColumn("Change", "After", "Before", _POINTS, times=100, decimals=1)
        meaning = "The change is in percentage points (pp), and has no interval."
    else:
        change = DifferenceColumn("Change", "After", "Before", units.PercentUnit, is_relative=True, decimals=1)
        meaning = _RELATIVE
    columns = _before_and_after(before, after, unit)
    return _table(title, f"{text} {meaning} {_GOOD[colours]}", unit, width, keys, (*columns, change, *more_columns))


def _comparison_of_shares(
    title: str,
    text: str,
    share: ShareIn,
    colours: tuple[str, str],
    width: int = 8,
    *,
    keys: Mapping[str, str] = _CLASS_KEY,
    more_columns: tuple[ValueColumn, ...] = (),
    of_complement: bool = False,
) -> table.Panel:
    """As `_comparison`, with a change only if its interval excludes 0, in `colours`; or of 1 minus the share."""
    before, after = (f"1 - {each}" if of_complement else each for each in (share(BEFORE).value, share(AFTER).value))
    points = f"{'-100' if of_complement else '100'} * {significant_change(share(BEFORE), share(AFTER))}"
    change = _significant(points, colours)
    columns = (*_before_and_after(before, after, units.PercentUnit), change, *more_columns)
    return _table(title, f"{text} {_SIGNIFICANT} {_GOOD[colours]}", units.PercentUnit, width, keys, columns)


def _significant(points: str, colours: tuple[str, str]) -> ValueColumn:
    """A change in percentage points that is absent if it is not significant, in the colours of a fall and a rise."""
    fall, rise = colours
    return ValueColumn(
        "Change", points, _POINTS, no_value=_NOT_SIGNIFICANT, decimals=1, base=fall, steps=((0, rise),), width=115
    )


def _before_and_after(before: str, after: str, unit: str, width: int | None = None) -> tuple[ValueColumn, ValueColumn]:
    return (
        ValueColumn("Before", before, unit, no_value=NO_TRAFFIC, width=width),
        ValueColumn("After", after, unit, no_value=NO_TRAFFIC, width=width),
    )


def _table(
    title: str,
    text: str,
    unit: str,
    width: int,
    keys: Mapping[str, str],
    columns: tuple[ValueColumn | DifferenceColumn, ...],
) -> table.Panel:
    text = describe(f"{text} {_SOURCE}", may_be_empty=_NO_CHANGE)
    panel = style.table_panel(title, text, unit, width, 8)
    tables.if_empty(panel, _EMPTY)
    if Label.CLASS in keys:
        return _by_class(panel, keys, columns)
    return tables.join_queries(tables.sort_rows(panel, *keys.values()), keys, columns)


def _by_class(
    panel: table.Panel, keys: Mapping[str, str], columns: Sequence[ValueColumn | DifferenceColumn]
) -> table.Panel:
    """In the order of the SLO file, without classes that have neither a value before nor one after."""
    return tables.hide_empty_rows(tables.join_queries(panel, keys, columns, order_by=class_order()), 2)


def _ratio_in(part: Signal, whole: Signal, window: Window) -> str:
    return _share_in(part, whole, window).value


def _share_in(part: Signal, whole: Signal, window: Window, by: tuple[Label | str, ...] = (Label.CLASS,)) -> Share:
    return Share(_increase(part, window, by), _increase(whole, window, by))


def _increase(
    counter: Signal | str,
    window: Window,
    by: tuple[Label | str, ...] = (Label.CLASS,),
    where: Mapping[Label, str] | None = None,
) -> str:
    return sum_by(
        f"increase({select(counter, {**MODEL_AND_CLASS, **_CHANGED, **(where or {})}, regex=True)}{window.whole})", by
    )


BOARD = Board(
    uid=DashboardUid.CONFIG_CHANGE,
    title="Config change",
    description="Equal windows before and after a config change, per class.",
    own_variables=lambda spec: (
        *change_variables(spec.scrape_interval),
        quantile_variable(),
        class_order_variable(spec.class_names),
    ),
    rows=rows,
    # a day of raw counters of 20 engines would take Prometheus 6 s
    time_from="now-2h",
)
