"""Alerts on client errors, rejections and throughput without goodput."""

from collections.abc import Mapping

from alerts.alert_annotations import annotated_alert, percent
from alerts.alert_names import AlertName
from alerts.baselines import baseline
from alerts.links import Links
from alerts.promql import in_window, increase, ratio, select, sum_by
from alerts.recording_windows import windows
from alerts.rule_groups import Alert, Recording
from alerts.tiers import Severity, tiers
from exporters import signals
from exporters.quantities import number, spell_duration
from exporters.signals import Label, Outcome
from exporters.slos import SloFile

_TICKET_SHARE, _PAGE_SHARE = 0.1, 0.5
"""The shares of failed requests of a class that raise a ticket and a page."""


def lookback(spec: SloFile) -> str:
    """Three steps: long enough for the share of a class at one sidecar."""
    return spell_duration(3 * windows(spec).step)


def requests_recording(spec: SloFile) -> Recording:
    """Recorded once for all alerts, as the request counters have the most series."""
    return Recording(
        signals.REQUESTS_IN,
        sum_by(increase(signals.REQUESTS.name, lookback(spec)), (Label.INSTANCE, Label.CLASS, Label.OUTCOME)),
        {Label.WINDOW: lookback(spec)},
    )


def sidecar_recordings(spec: SloFile) -> tuple[Recording, ...]:
    """Rates and goodput of each sidecar for the fleet dashboard: few series over a month."""
    ended_requests = sum_by(in_window(signals.REQUESTS_IN, lookback(spec)), [Label.INSTANCE])
    good, judged = (
        sum_by(increase(each.name, lookback(spec)), [Label.INSTANCE])
        for each in (signals.GOODPUT_REQUESTS, signals.GOODPUT_EVENTS)
    )
    return (
        Recording(signals.REQUESTS_AT, f"{ended_requests} / {number(3 * windows(spec).step)}"),
        Recording(signals.GOODPUT_AT, ratio(good, judged)),
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
    client_errors = AlertName.CLIENT_ERRORS, Outcome.CLIENT_ERROR, client
    return (
        _surge(spec, links, *client_errors, Severity.PAGE, (_PAGE_SHARE, 1.0)),
        _surge(spec, links, *client_errors, Severity.TICKET, (_TICKET_SHARE, _PAGE_SHARE)),
        # A ticket only: where rejections are bad events, they page as a burn.
        _surge(spec, links, AlertName.REJECTIONS, Outcome.REJECTED, rejected, Severity.TICKET, (_TICKET_SHARE, 1.0)),
        _busy_but_useless(spec, links),
    )


def _surge(
    spec: SloFile,
    links: Links,
    name: AlertName,
    outcome: Outcome,
    meaning: str,
    severity: Severity,
    between: tuple[float, float],
) -> Alert:
    """The share of an outcome in a class at one sidecar, if it was less than half of that a day ago on all sidecars.

    By class and not by model: requests for a model name that is no longer served have the model `other`. The day
    before is summed over all sidecars, as a new one has no history.
    """
    day, least = spell_duration(windows(spec).day), spec.alerting.min_events.page
    low, high = between

    def count(by: list[Label], outcomes: Mapping[Label, str], offset: str = "") -> str:
        return sum_by(f"{select(signals.REQUESTS_IN, {Label.WINDOW: lookback(spec), **outcomes})}{offset}", by)

    per_class, outcomes_of = [Label.INSTANCE, Label.CLASS], {Label.OUTCOME: outcome}
    offset = f" offset {day}"
    return annotated_alert(
        name,
        severity,
        f"{count(per_class, outcomes_of)} / ({count(per_class, {})} >= {least}) >= {low}"
        + (f" < {high}\n" if high < 1 else "\n")
        + f"and on (instance, class) {count(per_class, outcomes_of)} >= {spec.alerting.min_bad}\n"
        f"unless on (class) {count([Label.CLASS], outcomes_of, offset)} / {count([Label.CLASS], {}, offset)} "
        f">= {low / 2}",
        links,
        f"{{{{ $value | humanizePercentage }}}} of {{{{ $labels.class }}}} requests at {{{{ $labels.instance }}}} "
        f"end as {outcome}",
        f"In the last {lookback(spec)}, {{{{ $value | humanizePercentage }}}} of {{{{ $labels.class }}}} requests "
        f"at {{{{ $labels.instance }}}} ended as {outcome}; {day} ago it was less than {percent(low / 2)}. A "
        f"{severity} from {percent(low)} of at least {least} requests on. {meaning}",
    )


def _busy_but_useless(spec: SloFile, links: Links) -> Alert:
    """Fires at twice the bad share that the SLOs allow; at exactly that share it would often fire by chance."""
    lengths, hour = windows(spec), tiers(spec.period)[0].long
    window, least = spell_duration(hour), spec.alerting.min_events.ticket
    and_same_class = "and on (model, class)"
    goodput, events, requests = (
        in_window(series, window)
        for series in (signals.GOODPUT_RATIO, signals.GOODPUT_EVENTS_IN, signals.GOODPUT_REQUESTS_IN)
    )
    tokens = sum_by(increase(signals.COMPLETION_TOKENS.name, window), [Label.MODEL, Label.CLASS])
    who = "{{ $labels.class }} requests to {{ $labels.model }}"
    return annotated_alert(
        AlertName.BUSY_BUT_USELESS,
        Severity.TICKET,
        f"{goodput} < on (class) group_left () (2 * {signals.GOODPUT_OBJECTIVE.name} - 1)\n"
        f"{and_same_class} {events} >= {least}\n"
        f"{and_same_class} ({events} - {requests}) >= {spec.alerting.min_bad}\n"
        f"{and_same_class} {tokens} / {round(hour / lengths.step)} > {baseline(signals.TOKENS_MEDIAN, spec)}",
        links,
        f"{who}: more tokens than usual, but only {{{{ $value | humanizePercentage }}}} of the requests are good",
        f"In the last {window}, {who} made more completion tokens than in the median busy hour of the last "
        f"{spell_duration(lengths.week)}, yet only {{{{ $value | humanizePercentage }}}} of them were good for all "
        "their SLOs, which misses the objective more than twice over. Every graph of throughput looks fine; "
        f"users do not get what they were promised. Needs {least} judged requests and {spec.alerting.min_bad} that "
        "were not good. Look first at goodput beside throughput, and at the class whose prompts are the longest.",
    )
