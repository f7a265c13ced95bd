"""Alerts on client errors, rejections and throughput without goodput."""

from alerts.links import DashboardUid, PanelTitle
from alerts.plan import STEP, Plan
from alerts.promql.build import ago, equal, in_window, increase, not_equal, on, over, ratio, regex, select, sum_by
from alerts.promql.expression import Expression, Selector
from alerts.recording.baselines import baseline
from alerts.rules import wording
from alerts.rules.annotations import alert
from alerts.rules.groups import Alert, Recording, windowed
from alerts.rules.wording import percent
from alerts.tiers import Severity
from exporters.text.units import spell_duration
from exporters.vocabulary import signals
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.signals import Label, Outcome

_TICKET_SHARE, _PAGE_SHARE = 0.1, 0.5
"""The shares of failed requests of a class that raise a ticket and a page."""

_ONE_CLASS = Label.INSTANCE, Label.MODEL, Label.CLASS
_SAME, _SAME_CLASS = on(*_ONE_CLASS), on(Label.MODEL, Label.CLASS)
_OF_ALL = on(*_ONE_CLASS, left=())
_SURGES = regex(Label.OUTCOME, f"{Outcome.CLIENT_ERROR}|{Outcome.REJECTED}")


def requests_recordings(plan: Plan) -> tuple[Recording, ...]:
    """Recorded once for all alerts, as the request counters have the most series."""
    window = plan.lookback
    by_outcome = sum_by(increase(signals.REQUESTS, window), (*_ONE_CLASS, Label.OUTCOME))
    return (
        windowed(signals.REQUESTS_IN, window, by_outcome),
        windowed(signals.ALL_REQUESTS_IN, window, sum_by(in_window(signals.REQUESTS_IN, window), _ONE_CLASS)),
    )


def surge_recordings(plan: Plan) -> tuple[Recording, ...]:
    """What the alerts on surges compare. While no share is high, the alerts read no series per class."""
    window, of_all = plan.lookback, in_window(signals.ALL_REQUESTS_IN, plan.lookback)
    enough = _surging(plan) >= plan.spec.alerting.min_bad
    share = enough.binary("/", of_all >= plan.spec.alerting.min_events.page, _OF_ALL)
    latest = sum_by(increase(select(signals.REQUESTS, _SURGES), plan.step), (*_ONE_CLASS, Label.OUTCOME))
    share_of_step = (round(plan.lookback / plan.step) * latest).binary("/", of_all, _OF_ALL)
    others = in_window(signals.REQUESTS_IN, window, not_equal(Label.OUTCOME, Outcome.CLIENT_ERROR))
    return (
        windowed(signals.SURGE_AT, window, share >= _TICKET_SHARE),
        windowed(signals.SURGE_AT, plan.step, share_of_step >= _TICKET_SHARE),
        windowed(signals.OTHER_REQUESTS_IN, window, sum_by(others, [Label.CLASS])),
    )


def surge_before(plan: Plan) -> Recording:
    """The shares of failed requests, which are read a day later, so they may be older than the other counts."""
    by_model = (Label.MODEL, Label.CLASS)
    of_all = sum_by(in_window(signals.ALL_REQUESTS_IN, plan.lookback), by_model)
    share = sum_by(_surging(plan), (*by_model, Label.OUTCOME)).binary(
        "/", of_all >= plan.spec.alerting.min_events.page, on(*by_model, left=())
    )
    return windowed(signals.SURGE_BEFORE, plan.lookback, share >= _TICKET_SHARE / 2)


def _surging(plan: Plan) -> Selector:
    """The requests whose share may surge."""
    return in_window(signals.REQUESTS_IN, plan.lookback, _SURGES)


def sidecar_recordings(plan: Plan) -> tuple[Recording, ...]:
    """Rates and goodput of each sidecar for the fleet dashboard: few series over a month."""
    ended = sum_by(in_window(signals.ALL_REQUESTS_IN, plan.lookback), [Label.INSTANCE])
    good, judged = (
        sum_by(increase(each, plan.lookback), [Label.INSTANCE])
        for each in (signals.GOODPUT_REQUESTS, signals.GOODPUT_EVENTS)
    )
    goodput = (Recording(signals.GOODPUT_AT, ratio(good, judged)),) if plan.has_sidecar else ()
    return (Recording(signals.REQUESTS_AT, ended / plan.lookback), *goodput)


def traffic_alerts(plan: Plan) -> tuple[Alert, ...]:
    client = (
        "No SLO counts a 4xx. Either a client repeats invalid requests, or a config change is bad: served model name, "
        "context, key. Look first at the config changes, then at `status` in the request log."
    )
    rejected = (
        "The engine or a gateway answers 429 or 503: it sheds load. Look first at requests waiting and at the limits "
        "in front of the engine."
    )
    errors, lost, of_class = Outcome.CLIENT_ERROR, _others_lost(plan), on(Label.CLASS)
    page, ticket = (_surge(plan, errors, severity) for severity in (Severity.PAGE, Severity.TICKET))
    pages = (_share(errors, plan.lookback) >= _PAGE_SHARE).and_(lost, of_class)
    return (
        _surge_alert(plan, AlertName.CLIENT_ERRORS, errors, page.and_(lost, of_class), client, Severity.PAGE),
        _surge_alert(plan, AlertName.CLIENT_ERRORS, errors, ticket.unless(pages, _SAME), client, Severity.TICKET),
        # A ticket only: where rejections are bad events, they page as a burn.
        _surge_alert(
            plan,
            AlertName.REJECTIONS,
            Outcome.REJECTED,
            _surge(plan, Outcome.REJECTED, Severity.TICKET),
            rejected,
            Severity.TICKET,
        ),
    )


def _share(outcome: Outcome, window: float) -> Expression:
    """The share of this outcome in the requests of the window, without the labels `outcome` and `window`."""
    return sum_by(in_window(signals.SURGE_AT, window, equal(Label.OUTCOME, outcome)), _ONE_CLASS)


def _others_lost(plan: Plan) -> Expression:
    """Less than half of the requests of a class that, a week or else an hour ago, did not end as client errors.

    A client that repeats invalid requests does not displace the requests of others; a bad config change does. All
    models are counted together, because requests for a name that is no longer served have the model `other`.
    """
    others = in_window(signals.OTHER_REQUESTS_IN, plan.lookback)
    return others < _PAGE_SHARE * ago(others, plan.week).or_(ago(others, plan.hour))


def _surge(plan: Plan, outcome: Outcome, severity: Severity) -> Expression:
    """The share of an outcome in a class of a model at one sidecar, if it was less than half of that a day ago.

    It ends when fewer requests of the last step end so. The day before is summed over all sidecars, as a new one has
    no history, and needs as many events.
    """
    low = _least_share(severity)
    before = ago(in_window(signals.SURGE_BEFORE, plan.lookback, equal(Label.OUTCOME, outcome)), plan.day)
    high = (_share(outcome, plan.lookback) >= low).and_(_share(outcome, plan.step) >= low, _SAME)
    return high.unless(before >= low / 2, _SAME_CLASS)


def _least_share(severity: Severity) -> float:
    return _PAGE_SHARE if severity is Severity.PAGE else _TICKET_SHARE


def _surge_alert(
    plan: Plan, name: AlertName, outcome: Outcome, surging: Expression, meaning: str, severity: Severity
) -> Alert:
    low, least, window = _least_share(severity), plan.spec.alerting.min_events.page, spell_duration(plan.lookback)
    who = f"{{{{ $labels.class }}}} requests to {wording.MODEL} at {{{{ $labels.instance }}}}"
    return alert(
        plan,
        name,
        (DashboardUid.OVERVIEW, PanelTitle.OUTCOMES),
        surging,
        f"{{{{ $value | humanizePercentage }}}} of {{{{ $labels.class }}}} requests end as {outcome}: "
        f"{wording.MODEL} at {{{{ $labels.instance }}}}",
        f"In the last {window}, {{{{ $value | humanizePercentage }}}} of {who} ended as {outcome}; "
        f"{spell_duration(plan.day)} ago "
        f"it was less than {percent(low / 2)}. A {severity} from {percent(low)} of at least {least} requests on"
        + (", if the class lost half of its other requests. " if severity is Severity.PAGE else ". ")
        + meaning,
        severity=severity,
    )


def busy_but_useless(plan: Plan) -> Alert:
    """Fires at twice the bad share that the SLOs allow; at exactly that share it would often fire by chance."""
    least, min_bad = plan.spec.alerting.min_events.ticket, plan.spec.alerting.min_bad
    events, requests = (
        in_window(series, plan.hour) for series in (signals.GOODPUT_EVENTS_IN, signals.GOODPUT_REQUESTS_IN)
    )
    tokens = sum_by(over("sum_over_time", in_window(signals.TOKENS_IN, STEP), plan.hour), [Label.MODEL, Label.CLASS])
    goodput = requests / (events >= least)
    useless = goodput.binary("<", 2 * select(signals.GOODPUT_OBJECTIVE) - 1, on(Label.CLASS, left=()))
    busy = tokens / round(plan.hour / plan.step) > baseline(signals.TOKENS_MEDIAN, plan)
    who = "{{ $labels.class }} requests to {{ $labels.model }}"
    return alert(
        plan,
        AlertName.BUSY_BUT_USELESS,
        (DashboardUid.OVERVIEW, PanelTitle.THROUGHPUT),
        useless.and_(events - requests >= min_bad, _SAME_CLASS).and_(busy, _SAME_CLASS),
        f"{who}: more tokens than usual, but only {{{{ $value | humanizePercentage }}}} of the requests are good",
        f"In the last {spell_duration(plan.hour)}, {who} made more completion tokens than in the median busy hour of "
        f"the last {spell_duration(plan.week)}, yet only {{{{ $value | humanizePercentage }}}} of them were good for "
        "all their SLOs, which misses the objective more than twice over. Every graph of throughput looks fine; "
        f"users do not get what they were promised. Needs {least} judged requests and {min_bad} that "
        "were not good. Look first at goodput beside throughput, and at the class whose prompts are the longest.",
    )
