"""A ticket for a model that has lost its requests: without requests, no SLO burns, so nothing else fires."""

from alerts.links import DashboardUid, PanelTitle
from alerts.plan import Plan
from alerts.promql.build import ago, in_window, on, over, select, sum_by
from alerts.rules import wording
from alerts.rules.annotations import alert
from alerts.rules.groups import Alert, Recording, windowed
from alerts.rules.wording import percent
from alerts.scrape_jobs import targets_up
from exporters.text.units import spell_duration
from exporters.vocabulary import signals
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.signals import ENGINE_MODEL, Label

NEARLY_NONE = 0.05
"""The share of the usual requests below which an alert fires. If 50 are usual, Poisson leaves 2 or fewer once in
10^18 windows."""


def offered_recording(plan: Plan) -> Recording:
    """The requests of each model: few series, which are read over weeks."""
    requests = sum_by(in_window(signals.ALL_REQUESTS_IN, plan.lookback), [Label.MODEL])
    return windowed(signals.MODEL_REQUESTS_IN, plan.lookback, requests)


def offered_alert(plan: Plan) -> Alert:
    """Ended and open requests, compared with the quietest window of the same hour last week.

    The minimum, so that work that ends a little early does not raise the alert. Only for models of an
    engine that has been up, with its sidecar, for the whole window: without one, no requests are expected.
    """
    window, hour, least = plan.lookback, plan.hour, plan.spec.alerting.min_events.page
    recorded = in_window(signals.MODEL_REQUESTS_IN, window)
    week_ago = over("min_over_time", recorded, hour, offset=plan.week - hour / 2)
    usual = sum_by(week_ago.or_(over("avg_over_time", recorded, hour, offset=window)), [Label.MODEL])
    offered = sum_by(recorded, [Label.MODEL]) + sum_by(signals.IN_FLIGHT, [Label.MODEL])
    up = targets_up(plan)
    was_up = over("min_over_time", up, window).binary("==", 1).and_(ago(up, window).binary("==", 1))
    engine_up = over("min_over_time", signals.ENGINE_UP, window).binary("==", 1)
    engines = select(ENGINE_MODEL).and_(was_up, on(Label.INSTANCE)).and_(engine_up, on(Label.INSTANCE, Label.ENGINE))
    text = spell_duration(window)
    return alert(
        plan,
        AlertName.TRAFFIC_LOST,
        (DashboardUid.OVERVIEW, PanelTitle.OFFERED),
        (offered < NEARLY_NONE * (usual >= least)).and_(engines, on(Label.MODEL)),
        f'{wording.MODEL} received {{{{ printf "%.0f" $value }}}} requests in {text}, less than '
        f"{percent(NEARLY_NONE)} of the usual",
        f"In the last {text}, "
        f'{{{{ printf "%.0f" $value }}}} requests to {wording.MODEL} were open or ended. '
        f"That is less than {percent(NEARLY_NONE)} of the same hour last week, or of the hour before if the model is "
        f"newer. Its engines and sidecars are up, so other alerts end as if all were well. The alert needs "
        f"{least} usual requests or more. Look first at the gateway or load balancer in front of the sidecars.",
        pending_for=plan.step,
    )
