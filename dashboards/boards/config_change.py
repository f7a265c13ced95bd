"""The dashboard "Config change": what did a config change do to each class?"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import starmap

from grafana_foundation_sdk.builders import table
from grafana_foundation_sdk.models import units

from alerts.links import DashboardUid
from alerts.plan import Plan
from alerts.promql.build import aggregate, call, equal, max_by, not_regex, on, regex, select, sum_by
from alerts.promql.change import map_selectors
from alerts.promql.expression import Expression, Selector, Variable
from dashboards.boards.board import Board
from dashboards.grafana import style, tables
from dashboards.grafana.layout import Row
from dashboards.grafana.style import BAD, GOOD
from dashboards.grafana.tables import DifferenceColumn, ValueColumn
from dashboards.panels import revisions
from dashboards.queries.labels import with_label
from dashboards.queries.rates import ENGINE_LABELS
from dashboards.queries.score_interval import Share, quantile_changed, significant_change
from dashboards.windows.change import (
    AFTER,
    BEFORE,
    Window,
    at,
    change_variables,
    changed_engines,
    selected_change,
    spelled,
)
from dashboards.windows.slo import class_order, class_order_variable
from exporters.text.units import number
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label, Outcome, Signal

_CLASS_KEY: Mapping[str, str] = {Label.CLASS: "Class"}
_SLO_KEYS: Mapping[str, str] = {Label.SLO: "SLO", Label.CLASS: "Class"}

_CHANGED = regex(Label.INSTANCE, "$changed")
_UNCHANGED = (not_regex(Label.INSTANCE, "$changed"), regex(Label.INSTANCE, "$instance"))
"""The sidecars of the changed engines, and the others."""

_LATENCIES = (
    ("TTFT p50", 0.5, signals.TTFT),
    ("TTFT p95", 0.95, signals.TTFT),
    ("Queue time p95", 0.95, signals.QUEUE),
    ("TPOT p95", 0.95, signals.TPOT),
    ("ITL p95", 0.95, signals.INTER_CHUNK),
    ("E2E p95", 0.95, signals.DURATION),
)
_KILLED = f"{Outcome.TRUNCATED}|{Outcome.UPSTREAM_ERROR}|{Outcome.UPSTREAM_UNREACHABLE}"
_SOURCE = "From the sidecars' metrics."

_POINTS = "suffix:pp"

_NOT_SIGNIFICANT, _CHANGE_WIDTH = "not significant", 130
_NO_CHANGE = "there is no config change in the time shown, or no traffic around it"
_SIGNIFICANT = "The change is in percentage points (pp), and shown only if its 95 % interval excludes 0."
_IN_POINTS = "The change is in percentage points (pp), and has no interval."
_RELATIVE = "The change is relative to the value before, and has no interval."

_MORE_IS_BETTER = "Good: no decrease."
_LESS_IS_BETTER = "Good: no increase."
_NEITHER = "Good: no difference, otherwise the other panels differ for this reason too."

Columns = tuple[ValueColumn, ValueColumn, ValueColumn | DifferenceColumn]
"""The value before, the value after, and the change."""


def rows(plan: Plan) -> tuple[Row, ...]:
    spec = plan.spec
    return (
        Row("Comparison: $length s before and after", (config_change(), goodput(), changed())),
        # rows of eight SLOs and classes without a scrollbar
        Row("SLO attainment and load", (attainment().height(10), requests_offered().height(10))),
        Row("Latency quantiles", tuple(starmap(latency, _LATENCIES))),
        Row("Side effects", (client_errors(), cache_hits(), output_tokens(), preemptions())),
        Row("Revisions", (revisions.attainment(spec), revisions.events(spec)), is_collapsed=True),
    )


def config_change() -> table.Panel:
    text = (
        "Settings that changed at the selected time, which is that of the last engine of a rolling change. All engines "
        "have the same two windows: the one before ends when the first changed engine last responded, or earlier if "
        "another was down for longer before its change; the one after begins when the last one has responded for half "
        "a minute. The time between, when some engines have the old settings and some the new ones, is in neither. "
        "Both are limited by the time after the config change and by the next one. Good: only settings that you "
        "changed. From the sidecars' metrics."
    )
    panel = style.table_panel("Config change", text, style.DATE, 24, 5, may_be_empty=_NO_CHANGE)
    # the revision at the end of each window, because Prometheus returns the old one for five minutes after the change
    info = select(signals.ENGINE_CONFIG_INFO, _CHANGED)
    until, since = (
        call(
            *("label_replace", aggregate("group", window.at_end(info), by=[Label.REVISION]) * Variable(moment) * 1000),
            *(Label.SETTING, f"revision $1 {word}", Label.REVISION, "(.*)"),
        )
        for window, moment, word in ((BEFORE, "$before", "until"), (AFTER, "$after", "from"))
    )
    events = max_by(spelled(selected_change()).or_(until).or_(since), [Label.SETTING])
    tables.sort_rows(panel, "Time", "Change")
    columns = [ValueColumn("Time", events, style.DATE, width=165)]
    return tables.join_queries(panel, {Label.SETTING: "Change"}, columns, widest=(Label.SETTING,))


def changed() -> table.Panel:
    text = (
        "The engines of the config change: the time of the change, and the goodput of the sidecar in front before and "
        "after it. Failed are requests that ended with an error of the engine between the two windows: those that the "
        f"restart killed. {_SIGNIFICANT} Good: no decrease, and no failed request. {_SOURCE}"
    )
    panel = style.table_panel("Changed engines", text, style.COUNT, 24, 6, may_be_empty=_NO_CHANGE)
    engines = changed_engines()

    def of_sidecar(value: Expression) -> Expression:
        return value.binary("*", aggregate("group", engines, by=ENGINE_LABELS), on(Label.INSTANCE, right=()))

    killed = select(signals.REQUESTS, _CHANGED, regex(Label.OUTCOME, _KILLED), window="${gap}s")
    failed = sum_by(call("increase", at(killed, "$after")), [Label.INSTANCE])
    columns = (
        ValueColumn("Changed", engines * 1000, style.DATE, width=165),
        *_shares(_goodput(Label.INSTANCE), of=of_sidecar, width=85),
        ValueColumn("Failed", of_sidecar(failed), style.COUNT, decimals=0, steps=((0.5, BAD),)),
    )
    keys = {Label.ENGINE: "Engine", Label.INSTANCE: "Sidecar"}
    tables.sort_rows(panel, "Changed", "Engine")
    return tables.join_queries(panel, keys, columns, rows=engines, widest=(Label.ENGINE,))


def goodput() -> table.Panel:
    """The unchanged engines, if there are any, show what else changed at the same time, such as the load."""

    def of_both(value: Expression) -> Expression:
        others = map_selectors(value, _of_unchanged).and_(aggregate("count", changed_engines()), on())
        return with_label(value, "engines", "changed").or_(with_label(others, "engines", "unchanged"))

    before, after = (_increase(signals.GOODPUT_EVENTS, window, Label.CLASS) for window in (BEFORE, AFTER))
    # no row for a class without requests
    fewer = with_label((before <= after).or_(after), "engines", "changed") > 0
    return _comparison(
        "Goodput",
        "Share of requests that are good for all their SLOs, at the changed engines and, in the same two windows, at "
        "the others. If both changed alike, the reason is not the config change. Judged is the number of judged "
        "requests at the changed engines, in the window with fewer of them.",
        _shares(_goodput(Label.CLASS), of=of_both, width=85),
        _MORE_IS_BETTER,
        24,
        keys={**_CLASS_KEY, "engines": "Engines"},
        last=ValueColumn("Judged", fewer, style.COUNT, decimals=0),
    )


def _of_unchanged(selector: Selector) -> Selector:
    matchers = (_UNCHANGED if each == _CHANGED else (each,) for each in selector.matchers)
    return replace(selector, matchers=tuple(each for group in matchers for each in group))


def attainment() -> table.Panel:
    return _comparison(
        "SLO attainment",
        "Share of good events of each SLO. A request that hangs is bad as soon as it exceeds its threshold.",
        _shares(_share(signals.SLO_BAD, signals.SLO_EVENTS, *_SLO_KEYS), is_bad=True),
        _MORE_IS_BETTER,
        keys=_SLO_KEYS,
    )


def requests_offered() -> table.Panel:
    open_requests = select(signals.IN_FLIGHT, _CHANGED)

    def arrival_rate(window: Window) -> Expression:
        end, start = (sum_by(at_edge(open_requests), [Label.CLASS]) for at_edge in (window.at_end, window.at_start))
        arrived = _increase(signals.REQUESTS, window, Label.CLASS) + end - start
        return call("clamp_min", arrived, 0) / Variable("$length")

    columns = _values(arrival_rate, units.RequestsPerSecond)
    panel = _comparison("Requests offered", "Requests that arrived per second.", columns)
    return tables.hide_zero_rows(panel.min_width(95), 2)


def latency(title: str, q: float, histogram: Signal) -> table.Panel:
    before, after = (
        call("histogram_quantile", q, _increase(histogram.bucket, window, Label.CLASS, "le"))
        for window in (BEFORE, AFTER)
    )
    change = ValueColumn(
        *("Change", (after / before - 1).and_(_quantile_changed(q, histogram)), units.PercentUnit),
        no_value=_NOT_SIGNIFICANT,
        decimals=1,
        base=GOOD,
        steps=((0, BAD),),
        width=_CHANGE_WIDTH,
    )
    panel = _comparison(
        title,
        f"{number(100 * q)} % of the requests took no longer. Requests that did not get that far are excluded: see "
        "goodput.",
        (*_before_and_after(before, after, style.SECONDS), change),
        _LESS_IS_BETTER,
        significance="The change is relative, and shown only if the shares of requests below the quantile differ with "
        "95 % confidence.",
    )
    # rows of four classes
    return panel.height(7)


def _quantile_changed(q: float, histogram: Signal) -> Expression:
    before, after = (_increase(histogram.bucket, window, Label.CLASS, "le") for window in (BEFORE, AFTER))
    whole = select(histogram.bucket, equal("le", "+Inf"))
    counts = _increase(whole, BEFORE, Label.CLASS), _increase(whole, AFTER, Label.CLASS)
    return quantile_changed(q, (before, after), counts)


def client_errors() -> table.Panel:
    """Client errors without an interval, which would need the most expensive query of the dashboard three times."""
    errors = select(signals.REQUESTS, regex(Label.OUTCOME, Outcome.CLIENT_ERROR))

    share = _share(errors, signals.REQUESTS, Label.CLASS)
    return _comparison(
        "Client errors",
        "Share of requests with the outcome client_error. They are not SLO events, so a setting that rejects valid "
        "requests shows only here.",
        _values(lambda window: share(window).value, units.PercentUnit),
        _LESS_IS_BETTER,
    )


def output_tokens() -> table.Panel:
    def tokens(window: Window) -> Expression:
        return _increase(signals.COMPLETION_TOKENS, window, Label.CLASS) / Variable("$length")

    panel = _comparison(
        "Output tokens per second",
        "Completion tokens, counted when a request ends; they follow the requests offered.",
        _values(tokens, style.COUNT),
    )
    return tables.hide_zero_rows(panel.decimals(0), 2)


def cache_hits() -> table.Panel:
    share = _share(signals.CACHED_TOKENS, signals.PROMPT_TOKENS, Label.CLASS)
    return _comparison(
        "Prefix cache hits",
        "Share of prompt tokens found in the prefix cache; 0 % also if the engine does not report them.",
        _values(lambda window: share(window).value, units.PercentUnit),
        _MORE_IS_BETTER,
    )


def preemptions() -> table.Panel:
    """Preemptions by engine, because the engine's metrics have no class."""
    return _comparison(
        "Preemptions",
        "Running requests preempted in each window because the KV cache was full, of all classes. Engines that do not "
        "count preemptions have no row.",
        _values(lambda window: _increase(signals.ENGINE_PREEMPTIONS, window, Label.ENGINE), style.COUNT),
        _LESS_IS_BETTER,
        keys={Label.ENGINE: "Engine"},
    ).decimals(0)


def _comparison(
    title: str,
    text: str,
    columns: Columns,
    good: str = _NEITHER,
    width: int = 12,
    *,
    keys: Mapping[str, str] = _CLASS_KEY,
    last: ValueColumn | None = None,
    significance: str = _SIGNIFICANT,
) -> table.Panel:
    """A row for each set of keys; classes are in the order of the SLO file, without those that have no value."""
    before, _, change = columns
    if isinstance(change, DifferenceColumn):
        significance = _RELATIVE if change.is_relative else _IN_POINTS
    text = f"{text} {significance} {good} {_SOURCE}"
    panel = style.table_panel(title, text, before.unit, width, 8, may_be_empty=_NO_CHANGE)
    shown = (*columns, last) if last else columns
    if Label.CLASS in keys:
        return tables.hide_empty_rows(tables.join_queries(panel, keys, shown, order_by=class_order()), 2)
    return tables.join_queries(tables.sort_rows(panel, *keys.values()), keys, shown)


def _values(value: Callable[[Window], Expression], unit: str) -> Columns:
    """The change has no colour because it has no interval. Grafana computes it: a query would ask for both again."""
    change = DifferenceColumn("Change", "After", "Before", units.PercentUnit, is_relative=True, decimals=1)
    if unit == units.PercentUnit:
        change = DifferenceColumn("Change", "After", "Before", _POINTS, times=100, decimals=1)
    return (*_before_and_after(value(BEFORE), value(AFTER), unit), change)


def _shares(
    share: Callable[[Window], Share],
    *,
    of: Callable[[Expression], Expression] = lambda value: value,
    is_bad: bool = False,
    width: int | None = None,
) -> Columns:
    """The share of good events, also if `share` is of bad ones; no change is shown if its interval contains 0."""
    shares = share(BEFORE), share(AFTER)
    before, after = (of(1 - each.value if is_bad else each.value) for each in shares)
    points = of((-100 if is_bad else 100) * significant_change(*shares))
    change = ValueColumn(
        *("Change", points, _POINTS),
        no_value=_NOT_SIGNIFICANT,
        decimals=1,
        base=BAD,
        steps=((0, GOOD),),
        width=_CHANGE_WIDTH,
    )
    return (*_before_and_after(before, after, units.PercentUnit, width), change)


def _before_and_after(
    before: Expression, after: Expression, unit: str, width: int | None = None
) -> tuple[ValueColumn, ValueColumn]:
    return (
        ValueColumn("Before", before, unit, width=width),
        ValueColumn("After", after, unit, width=width),
    )


def _goodput(label: Label) -> Callable[[Window], Share]:
    return _share(signals.GOODPUT_REQUESTS, signals.GOODPUT_EVENTS, label)


def _share(part: Selector | Signal, whole: Signal, *by: str) -> Callable[[Window], Share]:
    return lambda window: Share(_increase(part, window, *by), _increase(whole, window, *by))


def _increase(counter: Selector | Signal | str, window: Window, *by: str) -> Expression:
    """The increase at the changed engines."""
    selector = counter if isinstance(counter, Selector) else select(counter)
    of_changed = replace(selector, matchers=(_CHANGED, *selector.matchers))
    return sum_by(call("increase", window.whole(of_changed)), by)


BOARD = Board(
    uid=DashboardUid.CONFIG_CHANGE,
    title="Config change",
    description="Equal windows before and after a config change, per class.",
    own_variables=lambda spec: (
        *change_variables(spec.scrape_interval),
        class_order_variable(spec.class_names),
    ),
    rows=rows,
    # a day of raw counters of 20 engines would take Prometheus 6 s
    time_from="now-2h",
)
