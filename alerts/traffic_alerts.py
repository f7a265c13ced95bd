"""Alerts on client errors, rejections and throughput without goodput."""

from alerts import burn_text
from alerts.alert_annotations import annotated_alert, percent
from alerts.alert_names import AlertName
from alerts.baselines import baseline
from alerts.links import Links
from alerts.promql_text import in_window, increase, ratio, select, sum_by
from alerts.recording_windows import STEP, windows
from alerts.rule_groups import Alert, Recording
from alerts.step_counts import windowed
from alerts.tiers import Severity, tiers
from exporters import signals
from exporters.quantities import number, spell_duration
from exporters.signals import Label, Outcome
from exporters.slos import SloFile

_TICKET_SHARE, _PAGE_SHARE = 0.1, 0.5
"""The shares of failed requests of a class that raise a ticket and a page."""

_STEPS = 3
_ONE_CLASS = Label.INSTANCE, Label.MODEL, Label.CLASS
_SAME = "on (instance, model, class)"
_SURGES = f'{Label.OUTCOME}=~"{Outcome.CLIENT_ERROR}|{Outcome.REJECTED}"'


def lookback(spec: SloFile) -> str:
    """Three steps: long enough for the share of a class at one sidecar."""
    return spell_duration(_STEPS * windows(spec).step)


def requests_recordings(spec: SloFile) -> tuple[Recording, ...]:
    """Recorded once for all alerts, as the request counters have the most series."""
    window = lookback(spec)
    return (
        windowed(
            signals.REQUESTS_IN,
            window,
            sum_by(increase(signals.REQUESTS.name, window), (*_ONE_CLASS, Label.OUTCOME)),
        ),
        windowed(signals.ALL_REQUESTS_IN, window, sum_by(in_window(signals.REQUESTS_IN, window), _ONE_CLASS)),
    )


def surge_recordings(spec: SloFile) -> tuple[Recording, ...]:
    """What the alerts on surges compare. While no share is high, the alerts read no series per class."""
    window, step = lookback(spec), spell_duration(windows(spec).step)
    of_all = in_window(signals.ALL_REQUESTS_IN, window)
    counts, least = _surging(spec), spec.alerting.min_events.page
    latest = sum_by(increase(f"{signals.REQUESTS.name}{{{_SURGES}}}", step), (*_ONE_CLASS, Label.OUTCOME))
    others = f'{signals.REQUESTS_IN.name}{{{Label.WINDOW}="{window}",{Label.OUTCOME}!="{Outcome.CLIENT_ERROR}"}}'
    return (
        windowed(
            signals.SURGE_AT,
            window,
            f"({counts} >= {spec.alerting.min_bad}) / {_SAME} group_left () ({of_all} >= {least}) >= {_TICKET_SHARE}",
        ),
        windowed(signals.SURGE_AT, step, f"{_STEPS} * {latest} / {_SAME} group_left () {of_all} >= {_TICKET_SHARE}"),
        windowed(signals.OTHER_REQUESTS_IN, window, sum_by(others, [Label.CLASS])),
    )


def surge_before(spec: SloFile) -> Recording:
    """Read a day later, so it may be older than the other counts."""
    of_all, by_model = in_window(signals.ALL_REQUESTS_IN, lookback(spec)), (Label.MODEL, Label.CLASS)
    return windowed(
        signals.SURGE_BEFORE,
        lookback(spec),
        f"{sum_by(_surging(spec), (*by_model, Label.OUTCOME))}\n/ on (model, class) group_left () "
        f"({sum_by(of_all, by_model)} >= {spec.alerting.min_events.page}) >= {_TICKET_SHARE / 2}",
    )


def _surging(spec: SloFile) -> str:
    """The requests whose share may surge."""
    return f'{signals.REQUESTS_IN.name}{{{Label.WINDOW}="{lookback(spec)}",{_SURGES}}}'


def sidecar_recordings(spec: SloFile) -> tuple[Recording, ...]:
    """Rates and goodput of each sidecar for the fleet dashboard: few series over a month."""
    ended_requests = sum_by(in_window(signals.ALL_REQUESTS_IN, lookback(spec)), [Label.INSTANCE])
    good, judged = (
        sum_by(increase(each.name, lookback(spec)), [Label.INSTANCE])
        for each in (signals.GOODPUT_REQUESTS, signals.GOODPUT_EVENTS)
    )
    return (
        Recording(signals.REQUESTS_AT, f"{ended_requests} / {number(_STEPS * windows(spec).step)}"),
        Recording(signals.GOODPUT_AT, ratio(good, judged)),
    )


def traffic_alerts(spec: SloFile, links: Links) -> tuple[Alert, ...]:
    client = (
        "No SLO counts a 4xx. Either a client repeats invalid requests, or a config change is bad: served model name, "
        "context, key. Look first at the config changes, then at `status` in the request log."
    )
    rejected = (
        "The engine or a gateway answers 429 or 503: it sheds load. Look first at requests waiting and at the limits "
        "in front of the engine."
    )
    errors, lost = Outcome.CLIENT_ERROR, _others_lost(spec)
    half = f"{_share(errors, lookback(spec))} >= {_PAGE_SHARE}\nand on (class) {lost}"
    return (
        _surge(spec, links, AlertName.CLIENT_ERRORS, errors, client, Severity.PAGE, f"and on (class) {lost}"),
        _surge(spec, links, AlertName.CLIENT_ERRORS, errors, client, Severity.TICKET, f"unless {_SAME} ({half})"),
        # A ticket only: where rejections are bad events, they page as a burn.
        _surge(spec, links, AlertName.REJECTIONS, Outcome.REJECTED, rejected, Severity.TICKET),
    )


def _share(outcome: Outcome, window: str) -> str:
    """Without the labels `outcome` and `window`."""
    return sum_by(select(signals.SURGE_AT, {Label.OUTCOME: outcome, Label.WINDOW: window}), _ONE_CLASS)


def _others_lost(spec: SloFile) -> str:
    """Of a class, less than half of the requests that a week ago, else an hour ago, did not end as client errors.

    A client that repeats invalid requests does not displace the requests of others, a bad config change does. Over all
    models: requests for a name that is no longer served have the model `other`.
    """
    others = in_window(signals.OTHER_REQUESTS_IN, lookback(spec))
    week, hour = (spell_duration(each) for each in (windows(spec).week, tiers(spec.period)[0].long))
    return f"({others} < {_PAGE_SHARE} * ({others} offset {week} or {others} offset {hour}))"


def _surge(
    spec: SloFile,
    links: Links,
    name: AlertName,
    outcome: Outcome,
    meaning: str,
    severity: Severity,
    condition: str = "",
) -> Alert:
    """The share of an outcome in a class of a model at one sidecar, if it was less than half of that a day ago.

    It ends when fewer requests of the last step end so. The day before is summed over all sidecars, as a new one has
    no history, and needs as many events.
    """
    low = _PAGE_SHARE if severity is Severity.PAGE else _TICKET_SHARE
    day, step, least = spell_duration(windows(spec).day), windows(spec).step, spec.alerting.min_events.page
    before = select(signals.SURGE_BEFORE, {Label.OUTCOME: outcome, Label.WINDOW: lookback(spec)})
    who = f"{{{{ $labels.class }}}} requests to {burn_text.MODEL} at {{{{ $labels.instance }}}}"
    return annotated_alert(
        name,
        severity,
        f"{_share(outcome, lookback(spec))} >= {low}\n"
        f"and {_SAME} {_share(outcome, spell_duration(step))} >= {low}\n"
        f"unless on (model, class) {before} offset {day} >= {low / 2}" + (f"\n{condition}" if condition else ""),
        links,
        f"{{{{ $value | humanizePercentage }}}} of {{{{ $labels.class }}}} requests end as {outcome}: "
        f"{burn_text.MODEL} at {{{{ $labels.instance }}}}",
        f"In the last {lookback(spec)}, {{{{ $value | humanizePercentage }}}} of {who} ended as {outcome}; {day} ago "
        f"it was less than {percent(low / 2)}. A {severity} from {percent(low)} of at least {least} requests on"
        + (", if the class lost half of its other requests. " if severity is Severity.PAGE else ". ")
        + meaning,
    )


def busy_but_useless(spec: SloFile, links: Links) -> Alert:
    """Fires at twice the bad share that the SLOs allow; at exactly that share it would often fire by chance."""
    lengths, hour = windows(spec), tiers(spec.period)[0].long
    window, least = spell_duration(hour), spec.alerting.min_events.ticket
    and_same_class = "and on (model, class)"
    goodput, events, requests = (
        in_window(series, window)
        for series in (signals.GOODPUT_RATIO, signals.GOODPUT_EVENTS_IN, signals.GOODPUT_REQUESTS_IN)
    )
    tokens = sum_by(f"sum_over_time({in_window(signals.TOKENS_IN, STEP)}[{window}])", [Label.MODEL, Label.CLASS])
    who = "{{ $labels.class }} requests to {{ $labels.model }}"
    return annotated_alert(
        AlertName.BUSY_BUT_USELESS,
        Severity.TICKET,
        f"{goodput} < on (class) group_left () (2 * {signals.GOODPUT_OBJECTIVE.name} - 1)\n"
        f"{and_same_class} ({events} >= {least}) - {requests} >= {spec.alerting.min_bad}\n"
        f"{and_same_class} {tokens} / {round(hour / lengths.step)} > {baseline(signals.TOKENS_MEDIAN, spec)}",
        links,
        f"{who}: more tokens than usual, but only {{{{ $value | humanizePercentage }}}} of the requests are good",
        f"In the last {window}, {who} made more completion tokens than in the median busy hour of the last "
        f"{spell_duration(lengths.week)}, yet only {{{{ $value | humanizePercentage }}}} of them were good for all "
        "their SLOs, which misses the objective more than twice over. Every graph of throughput looks fine; "
        f"users do not get what they were promised. Needs {least} judged requests and {spec.alerting.min_bad} that "
        "were not good. Look first at goodput beside throughput, and at the class whose prompts are the longest.",
    )
