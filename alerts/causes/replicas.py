"""A page for a replica that is much worse than its peers, which the budget of all replicas shows late or never."""

from alerts.burn.cold_start import starting
from alerts.links import DashboardUid, PanelTitle
from alerts.plan import Plan
from alerts.promql.build import aggregate, call, equal, in_window, max_by, on, over, ratio, sum_by
from alerts.promql.expression import AlertLabel, Expression
from alerts.recording.windows import direct_count
from alerts.rules import wording
from alerts.rules.annotations import alert
from alerts.rules.groups import Alert, Recording, windowed
from alerts.rules.target_labels import if_found
from alerts.tiers import Severity
from exporters.vocabulary import signals
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.signals import COLD_START, ENGINE_UP, Label

BAD_SHARE = 0.5
"""An outlier has at least this share of bad events; a replica below it counts as a peer."""

TIMES_ITS_PEERS = 2.0

IMPROBABILITY = 20.0
"""An equally good replica is an outlier with a probability of at most e^-20 (2e-9) per evaluation, class and SLO."""

_ALIKE = (Label.MODEL, Label.CLASS, Label.SLO)
_SAME_CLASS, _SAME_REPLICA, _INSTANCE = on(*_ALIKE), on(Label.INSTANCE, *_ALIKE), on(Label.INSTANCE)
_OF_ALL = on(*_ALIKE, left=())


def replica_rules(plan: Plan) -> tuple[Recording | Alert, ...]:
    window = plan.outlier_window
    events, bad, _ = _recorded(window)
    suspect = (bad >= plan.spec.alerting.min_bad) / events >= BAD_SHARE
    of_all = sum_by(bad, _ALIKE) / sum_by(events, _ALIKE)
    return (
        direct_count(signals.SLO_EVENTS, signals.INSTANCE_EVENTS_IN, window),
        direct_count(signals.SLO_BAD, signals.INSTANCE_BAD_IN, window),
        windowed(signals.INSTANCE_ERROR_RATIO, window, ratio(bad, events)),
        # Recorded, as they usually have no series: comparing all replicas would take longer than counting their events.
        windowed(signals.OUTLIER_ERROR_RATIO, window, suspect),
        windowed(
            signals.REPLICAS_ERROR_RATIO,
            window,
            # Not the recorded ones, which VictoriaMetrics shows one evaluation later than the counts.
            of_all.and_(suspect, _SAME_CLASS),
        ),
        _outlier(plan),
    )


def _outlier(plan: Plan) -> Alert:
    """One alert for each bad replica, whatever the number of its classes."""
    window = plan.outlier_window
    starts = starting(over("last_over_time", COLD_START, window))
    of_alert = (equal(label, AlertLabel(label)) for label in (Label.INSTANCE, Label.MODEL))
    classes = in_window(signals.INSTANCE_ERROR_RATIO, window, *of_alert)
    worst = aggregate("topk", classes, parameter=1)
    one_class, slo = (
        if_found(worst, plan.spec.group_by, f'{text} {{{{ . | first | label "{label}" }}}}')
        for text, label in (("", Label.CLASS), (" for the SLO", Label.SLO))
    )
    events, bad, error_ratio = _recorded(window)
    # Peers are not bad themselves; without one, the comparison has no result.
    bad_of_peers, events_of_peers = (
        sum_by(each.and_(error_ratio < BAD_SHARE, _SAME_REPLICA), _ALIKE) for each in (bad, events)
    )
    outlier = in_window(signals.OUTLIER_ERROR_RATIO, window).binary(
        ">", TIMES_ITS_PEERS * bad_of_peers / events_of_peers, _OF_ALL
    )
    # LLMEngineDown pages for these.
    down = max_by(ENGINE_UP, [Label.INSTANCE]).binary("==", 0)
    return alert(
        plan,
        AlertName.OUTLIER,
        (DashboardUid.FLEET, PanelTitle.GOODPUT_BY_SIDECAR),
        100
        * max_by(
            outlier.and_(_improbability(window) > IMPROBABILITY, _SAME_REPLICA)
            .unless(starts, _INSTANCE)
            .unless(down, _INSTANCE),
            [Label.INSTANCE, Label.MODEL],
        ),
        f"replica {{{{ $labels.instance }}}} of {wording.MODEL}: {wording.SHARE} bad",
        f"In the last {wording.spaced(window)}, {wording.SHARE} of the{one_class} requests at "
        f"{{{{ $labels.instance }}}} were bad{slo}. Other replicas of "
        f"{wording.MODEL} serve this class with less than half of that. Look first at the log and the GPU of its "
        "engine; drain it if its peers can serve its load.",
        severity=Severity.PAGE,
        keep_firing_for=plan.page_bridge,
    )


def _recorded(window: float) -> tuple[Expression, Expression, Expression]:
    """Events, bad events and their ratio."""
    each = (signals.INSTANCE_EVENTS_IN, signals.INSTANCE_BAD_IN, signals.INSTANCE_ERROR_RATIO)
    events, bad, error_ratio = (in_window(series, window) for series in each)
    return events, bad, error_ratio


def _improbability(window: float) -> Expression:
    """The negative logarithm of the probability of so many bad events at a replica that is like all others.

    Chernoff's bound: of n events from a total of which the share p is bad, the share q or more is bad with a
    probability of at most e^(-n (q ln(q / p) + (1 - q) ln((1 - q) / (1 - p)))). It holds for draws without
    replacement (Hoeffding, 1963), so the total includes this replica.
    """
    events, _, _ = _recorded(window)
    suspect, of_all = in_window(signals.OUTLIER_ERROR_RATIO, window), in_window(signals.REPLICAS_ERROR_RATIO, window)

    def term(share: Expression, share_of_all: Expression) -> Expression:
        return share * call("ln", share.binary("/", share_of_all, _OF_ALL))

    # a share of 0 would be NaN
    good, good_of_all = (call("clamp_min", 1 - each, 1e-9) for each in (suspect, of_all))
    return events * (term(suspect, of_all) + term(good, good_of_all))
