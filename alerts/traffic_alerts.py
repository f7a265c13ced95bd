"""Alerts on client errors, rejections and throughput without goodput."""

from collections.abc import Mapping

from alerts.alert_annotations import annotations, percent
from alerts.alert_names import AlertName
from alerts.baselines import baseline
from alerts.links import Links
from alerts.promql import increase, ratio, select, sum_by
from alerts.recording_windows import windows
from alerts.rule_groups import Alert, Recording
from alerts.tiers import Severity, tiers
from exporters.quantities import number, spell_duration
from exporters.signals import (
    COMPLETION_TOKENS,
    GOODPUT_AT,
    GOODPUT_EVENTS,
    GOODPUT_EVENTS_IN,
    GOODPUT_OBJECTIVE,
    GOODPUT_RATIO,
    GOODPUT_REQUESTS,
    GOODPUT_REQUESTS_IN,
    REQUESTS,
    REQUESTS_AT,
    REQUESTS_IN,
    TOKENS_MEDIAN,
    Label,
    Outcome,
)
from exporters.slos import SloFile

_TICKET_SHARE, _PAGE_SHARE = 0.1, 0.5
"""The shares of refused requests of a class that raise a ticket and a page."""


def lookback(spec: SloFile) -> str:
    """Three steps: long enough for the share of a class at one sidecar."""
    return spell_duration(3 * windows(spec).step)


def requests_recording(spec: SloFile) -> Recording:
    """Recorded once for all alerts, as the request counters have the most series."""
    return Recording(
        REQUESTS_IN,
        sum_by(increase(REQUESTS.name, lookback(spec)), (Label.INSTANCE, Label.CLASS, Label.OUTCOME)),
        {Label.WINDOW.value: lookback(spec)},
    )


def sidecar_recordings(spec: SloFile) -> tuple[Recording, ...]:
    """Rates and goodput of each sidecar for the fleet dashboard: few series over a month."""
    ended_requests = sum_by(select(REQUESTS_IN, {Label.WINDOW: lookback(spec)}), [Label.INSTANCE])
    good, judged = (
        sum_by(increase(each.name, lookback(spec)), [Label.INSTANCE]) for each in (GOODPUT_REQUESTS, GOODPUT_EVENTS)
    )
    return (
        Recording(REQUESTS_AT, f"{ended_requests} / {number(3 * windows(spec).step)}"),
        Recording(GOODPUT_AT, ratio(good, judged)),
    )


def traffic_alerts(spec: SloFile, links: Links) -> tuple[Alert, ...]:
    client = (
        "It is the client's fault by its status (4xx), so no SLO counts it; but so many at once, in a class that had "
        "them not, is the sign of a bad config change: another served model name, a smaller context, a new key. Look "
        "first at the config changes, then at `outcome` and `status` in the request log."
    )
    rejected = (
        "The engine or a gateway answers 429 or 503: it sheds load. Look first at requests waiting and at the limits "
        "in front of the engine."
    )
    return (
        _surge(spec, links, AlertName.CLIENT_ERRORS, Outcome.CLIENT_ERROR, Severity.PAGE, (_PAGE_SHARE, 1.0), client),
        _surge(
            spec,
            links,
            AlertName.CLIENT_ERRORS,
            Outcome.CLIENT_ERROR,
            Severity.TICKET,
            (_TICKET_SHARE, _PAGE_SHARE),
            client,
        ),
        # A ticket only: where shed load is a fault, it is bad for every SLO and pages as a burn.
        _surge(spec, links, AlertName.REJECTIONS, Outcome.REJECTED, Severity.TICKET, (_TICKET_SHARE, 1.0), rejected),
        _busy_but_useless(spec, links),
    )


def _surge(
    spec: SloFile,
    links: Links,
    name: AlertName,
    outcome: Outcome,
    severity: Severity,
    between: tuple[float, float],
    meaning: str,
) -> Alert:
    """The share of an outcome in a class at one sidecar, if it was less than half of it a day ago over all sidecars.

    By class and not by model, as requests for a name that is no longer served are those of the model `other`. The day
    before is asked of all sidecars, as a new one has none.
    """
    lengths = windows(spec)
    day, least = spell_duration(lengths.day), spec.alerting.min_events.page
    low, high = between

    def count(by: list[Label], outcomes: Mapping[Label, str], offset: str = "") -> str:
        return sum_by(f"{select(REQUESTS_IN, {Label.WINDOW: lookback(spec), **outcomes})}{offset}", by)

    per_class, outcomes_of = [Label.INSTANCE, Label.CLASS], {Label.OUTCOME: outcome}
    offset = f" offset {day}"
    return Alert(
        name,
        f"{count(per_class, outcomes_of)} / ({count(per_class, {})} >= {least}) >= {low}"
        + (f" < {high}\n" if high < 1 else "\n")
        + f"and on (instance, class) {count(per_class, outcomes_of)} >= {spec.alerting.min_bad}\n"
        f"unless on (class) {count([Label.CLASS], outcomes_of, offset)} / {count([Label.CLASS], {}, offset)} "
        f">= {low / 2}",
        {Label.SEVERITY.value: severity.value},
        annotations(
            name,
            links,
            f"{{{{ $value | humanizePercentage }}}} of {{{{ $labels.class }}}} requests at {{{{ $labels.instance }}}} "
            f"end as {outcome}",
            f"In the last {lookback(spec)}, {{{{ $value | humanizePercentage }}}} of {{{{ $labels.class }}}} requests "
            f"at {{{{ $labels.instance }}}} ended as {outcome}; {day} ago it was less than {percent(low / 2)}. A "
            f"{severity} from {percent(low)} of at least {least} requests on. {meaning}",
        ),
    )


def _busy_but_useless(spec: SloFile, links: Links) -> Alert:
    """Fires at twice the bad share that the SLOs allow; at exactly that share it would often fire by chance."""
    lengths, hour = windows(spec), tiers(spec.period)[0].long
    window, least = spell_duration(hour), spec.alerting.min_events.ticket
    and_same_class = "and on (model, class)"

    def in_window(series: str) -> str:
        return select(series, {Label.WINDOW: window})

    tokens = sum_by(increase(COMPLETION_TOKENS.name, window), [Label.MODEL, Label.CLASS])
    events, requests = in_window(GOODPUT_EVENTS_IN.name), in_window(GOODPUT_REQUESTS_IN.name)
    who = "{{ $labels.class }} requests to {{ $labels.model }}"
    return Alert(
        AlertName.BUSY_BUT_USELESS,
        f"{in_window(GOODPUT_RATIO.name)} < on (class) group_left () (2 * {GOODPUT_OBJECTIVE.name} - 1)\n"
        f"{and_same_class} {events} >= {least}\n"
        f"{and_same_class} ({events} - {requests}) >= {spec.alerting.min_bad}\n"
        f"{and_same_class} {tokens} / {round(hour / lengths.step)} > {baseline(TOKENS_MEDIAN, spec)}",
        {Label.SEVERITY.value: Severity.TICKET.value},
        annotations(
            AlertName.BUSY_BUT_USELESS,
            links,
            f"{who}: more tokens than usual, but only {{{{ $value | humanizePercentage }}}} of the requests are good",
            f"In the last {window}, {who} made more completion tokens than in the median busy hour of the last "
            f"{spell_duration(lengths.week)}, yet only {{{{ $value | humanizePercentage }}}} of them were good for all "
            "their SLOs, which misses the objective more than twice over. Every graph of throughput looks fine; "
            f"users do not get what they were promised. Needs {least} judged requests and {spec.alerting.min_bad} that "
            "were not good. Look first at goodput beside throughput, and at the class whose prompts are the longest.",
        ),
    )
