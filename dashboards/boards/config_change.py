"""The dashboard "Flip compare": what did a change of the engine's configuration do to each class?"""

from collections.abc import Callable, Mapping

from grafana_foundation_sdk.builders import common, stat, table
from grafana_foundation_sdk.models import units

from alerts.links import DashboardUid
from alerts.promql import increase, ratio, select, sum_by
from dashboards import style, tables
from dashboards.board import Board
from dashboards.change_windows import AFTER, BEFORE, VARIABLES, Side, chosen_flip
from dashboards.label_selectors import RATE, selected
from dashboards.layout import Row
from dashboards.panels import engine_load, slo_status, traffic
from dashboards.style import BAD, GOOD, NO_TRAFFIC, PLAIN, SELECTED, describe, query
from dashboards.tables import Figure
from exporters import signals
from exporters.signals import Label, Outcome, Signal
from exporters.slos import Slo, SloFile

_OF_CLASS = {Label.CLASS: "class"}
_OF_SLO = {Label.SLO: "SLO", Label.CLASS: "class"}

_MORE_IS_BETTER, _LESS_IS_BETTER = (BAD, GOOD), (GOOD, BAD)

_NO_FLIP = "there is no flip in the time shown, or no traffic around it"
_CHANCE = "vllm-slo compare --around $flip tells which changes are more than chance."

Value = Callable[[Side], str]
"""A figure of every class in one of the two windows."""


def rows(spec: SloFile) -> tuple[Row, ...]:
    return (
        Row(
            "Did it help? $length s before it against $length s after it",
            (
                flip(),
                goodput(),
                attainment(),
                offered(),
                latency("TTFT p50", 0.5, signals.TTFT),
                latency("TTFT p95", 0.95, signals.TTFT),
                latency("Queue time p95", 0.95, signals.QUEUE),
            ),
        ),
        Row(
            "What else changed?",
            (latency("TPOT p95", 0.95, signals.TPOT, 6), client_errors(), tokens(), cache_hits()),
        ),
        Row(
            "How did it go over time?",
            (
                slo_status.goodput(spec),
                traffic.offered(spec),
                engine_load.prefix_cache(),
                traffic.time_to_first_token(spec),
                traffic.in_flight(spec),
            ),
        ),
        Row("Which configuration kept the promises?", (by_revision(spec), events_by_revision(spec))),
    )


def flip() -> stat.Panel:
    text = describe(
        "What changed, when, and what is left out?",
        "Every setting that changed at that moment. The window before ends when an engine last answered, the one after "
        "begins when one has answered for half a minute; both are as short as the time after the flip, or as the time "
        "to the next one.",
        may_be_empty=_NO_FLIP,
    )
    panel = style.figure("Flip", text, units.DatetimeISO, 24, 4).no_value("no flip in the time shown")
    panel.with_target(query(chosen_flip(), "{{setting}}: {{old}} → {{new}}", instant=True))
    # after: the revision at the end, because the one before is still found for five minutes where it has just gone
    for moment, side, legend in (("$before", BEFORE, "until"), ("$after", AFTER, "from")):
        shown = f"group by ({Label.REVISION}) ({signals.ENGINE_CONFIG_INFO.name} {side.end}) * {moment} * 1000"
        panel.with_target(query(shown, f"revision {{{{revision}}}} {legend}", instant=True))
    return panel


def goodput() -> table.Panel:
    one, other = (_grown(signals.GOODPUT_EVENTS, side) for side in (BEFORE, AFTER))
    return _compared(
        "Goodput",
        "Which share of requests is good for all its SLOs?",
        "The last column is how many were judged, on the side that has fewer of them: few of them say little.",
        lambda side: _share(signals.GOODPUT_REQUESTS, signals.GOODPUT_EVENTS, side),
        units.PercentUnit,
        _MORE_IS_BETTER,
        more=(Figure(title="judged", expression=f"({one} <= {other}) or {other}", unit=units.Short, decimals=0),),
    )


def attainment() -> table.Panel:
    return _compared(
        "SLO attainment",
        "Which share of its events is good for each SLO?",
        "A request that hangs is a bad one already.",
        lambda side: f"1 - {_share(signals.SLO_BAD, signals.SLO_EVENTS, side, tuple(_OF_SLO))}",
        units.PercentUnit,
        _MORE_IS_BETTER,
        keys=_OF_SLO,
    )


def offered() -> table.Panel:
    def arrived(side: Side) -> str:
        end, start = (sum_by(f"{selected(signals.IN_FLIGHT)} {at}", _OF_CLASS) for at in (side.end, side.start))
        return f"clamp_min({_grown(signals.REQUESTS, side)} + {end} - {start}, 0) / $length"

    return _compared(
        "Requests offered",
        "Was the same asked of it on both sides?",
        "Requests that arrived per second. Where that differs, so may all the rest, without any flip.",
        arrived,
        units.RequestsPerSecond,
    )


def latency(name: str, q: float, histogram: Signal, width: int = 8) -> table.Panel:
    def quantile(side: Side) -> str:
        return f"histogram_quantile({q:g}, {_grown(histogram.bucket, side, (Label.CLASS, 'le'))})"

    text = f"{q * 100:g} % of the requests took no longer. Those that never got so far are in no quantile: see goodput."
    return _compared(name, "Is it faster?", text, quantile, units.Seconds, _LESS_IS_BETTER, width)


def client_errors() -> table.Panel:
    def share(side: Side) -> str:
        refused = {Label.OUTCOME: Outcome.CLIENT_ERROR}
        return ratio(_grown(signals.REQUESTS, side, where=refused), _grown(signals.REQUESTS, side))

    return _compared(
        "Client errors",
        "Are more requests refused as wrong?",
        "They are no event of any SLO, so a setting that refuses good requests shows only here.",
        share,
        units.PercentUnit,
        _LESS_IS_BETTER,
        6,
    )


def tokens() -> table.Panel:
    return _compared(
        "Tokens",
        "How much work does it do?",
        "Prompt and completion tokens per second, counted when a request ends; they follow what is offered.",
        lambda side: f"({_grown(signals.PROMPT_TOKENS, side)} + {_grown(signals.COMPLETION_TOKENS, side)}) / $length",
        "tokens/s",
        width=6,
    )


def cache_hits() -> table.Panel:
    return _compared(
        "Prefix cache hits",
        "How much prompt work does the cache save?",
        "Prompt tokens that came from the cache; 0 % also where the engine does not tell.",
        lambda side: _share(signals.CACHED_TOKENS, signals.PROMPT_TOKENS, side),
        units.PercentUnit,
        _MORE_IS_BETTER,
        6,
    )


def by_revision(spec: SloFile) -> table.Panel:
    text = describe(
        "Which share of events was good under each configuration?",
        "A row a revision, a column an SLO of a class, coloured by its objective. Moments without an engine count for "
        "none, nor do those in which a sidecar saw two revisions.",
        may_be_empty=NO_TRAFFIC,
    )
    bad, all_events = (_while_active(counter) for counter in (signals.SLO_BAD, signals.SLO_EVENTS))
    panel = style.sheet("Attainment by revision", text, units.PercentUnit, 24, 7).decimals(1).no_value(NO_TRAFFIC)
    for column, slo in _columns(spec).items():
        panel.override_by_name(column, tables.coloured(BAD, (slo.objective, GOOD)))
    return _by_revision(panel, f"1 - {ratio(bad, all_events)}", spec)


def events_by_revision(spec: SloFile) -> table.Panel:
    text = describe(
        "How much does each of these shares stand on?", "Events of each SLO and class.", may_be_empty=NO_TRAFFIC
    )
    panel = style.sheet("Events by revision", text, units.Short, 24, 7).decimals(0).no_value(NO_TRAFFIC)
    return _by_revision(panel, _while_active(signals.SLO_EVENTS), spec)


def _by_revision(panel: table.Panel, expression: str, spec: SloFile) -> table.Panel:
    named = f'label_join({expression}, "{Label.CLASS}", " ", "{Label.SLO}", "{Label.CLASS}")'
    return tables.crossed(panel, named, Label.REVISION, Label.CLASS, order=tuple(_columns(spec)))


def _columns(spec: SloFile) -> dict[str, Slo]:
    return {f"{slo.name} {name}": slo for slo in spec.slos for name in slo.classes}


def _while_active(counter: Signal) -> str:
    """Growth over the time shown, stretch by stretch, by the one revision that a sidecar saw while an engine was up."""
    at = f"on ({Label.INSTANCE})"
    seen = f"count_over_time({signals.ENGINE_CONFIG_INFO.name}[{RATE}])"
    seen = f"group by ({Label.INSTANCE}, {Label.REVISION}) ({seen})"
    alone = f"count by ({Label.INSTANCE}) ({seen}) == 1"
    up = f"max by ({Label.INSTANCE}) (min_over_time({signals.ENGINE_UP.name}[{RATE}])) == 1"
    grown = sum_by(increase(selected(counter), RATE), (Label.INSTANCE, Label.CLASS, Label.SLO))
    joined = f"{grown} * {at} group_left ({Label.REVISION}) ({seen} and {at} {alone} and {at} {up})"
    return sum_by(f"sum_over_time(({joined})[$__range:{RATE}])", (Label.CLASS, Label.SLO, Label.REVISION))


def _compared(
    title: str,
    question: str,
    reading: str,
    value: Value,
    unit: str,
    colours: tuple[str, str] = (PLAIN, PLAIN),
    width: int = 8,
    *,
    keys: Mapping[Label, str] = _OF_CLASS,
    more: tuple[Figure, ...] = (),
) -> table.Panel:
    """Before, after and the change; `colours` are those of a fall and of a rise."""
    before, after = value(BEFORE), value(AFTER)
    if unit == units.PercentUnit:
        change, least, meaning = f"({after}) - ({before})", 0.01, "The change is in percentage points"
    else:
        change, least, meaning = f"({after}) / (({before}) > 0) - 1", 0.1, "The change is a share of what was before"
    fall, rise = colours
    by_name = common.TableSortByFieldState().display_name(_OF_CLASS[Label.CLASS]).desc(False)
    text = describe(question, f"{reading} {meaning}. {_CHANCE}", may_be_empty=_NO_FLIP)
    return tables.joined(
        style.sheet(title, text, unit, width, 8).sort_by([by_name]).no_value("no flip, or no traffic around it"),
        keys,
        (
            Figure(title="before", expression=before, unit=unit, empty=NO_TRAFFIC),
            Figure(title="after", expression=after, unit=unit, empty=NO_TRAFFIC),
            Figure(
                title="change",
                expression=change,
                unit=units.PercentUnit,
                empty="-",
                base=fall,
                steps=((-least, PLAIN), (least, rise)),
            ),
            *more,
        ),
    )


def _share(part: Signal, whole: Signal, side: Side, by: tuple[Label, ...] = (Label.CLASS,)) -> str:
    return ratio(_grown(part, side, by), _grown(whole, side, by))


def _grown(
    counter: Signal | str,
    side: Side,
    by: tuple[Label | str, ...] = (Label.CLASS,),
    where: Mapping[Label, str] | None = None,
) -> str:
    return sum_by(f"increase({select(counter, {**SELECTED, **(where or {})}, regex=True)}{side.whole})", by)


BOARD = Board(
    uid=DashboardUid.CONFIG_CHANGE,
    title="Flip compare",
    description="Equal windows before and after a change of the engine's configuration, per class.",
    variables=(Label.MODEL, Label.CLASS),
    extra=VARIABLES,
    rows=rows,
    since="now-2h",  # a day of raw counters of 20 engines would take Prometheus 6 s
    refresh="1m",
)
