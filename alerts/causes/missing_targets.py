"""A page for a group of targets, such as a cluster, that Prometheus no longer scrapes at all.

`up` is absent then, not 0: service discovery finds nothing, or a remote Prometheus sends nothing. Only the past shows
that the group existed.
"""

from collections.abc import Iterator
from math import floor

from alerts.links import DashboardUid, PanelTitle
from alerts.plan import Plan
from alerts.promql.build import aggregate, call, count_by, not_equal, on, over, select, sum_by
from alerts.promql.expression import Expression
from alerts.rules.annotations import alert
from alerts.rules.groups import Alert, Recording
from alerts.rules.wording import percent
from alerts.scrape_jobs import jobs, targets_up
from alerts.tiers import Severity
from exporters.text.units import spell_duration
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.signals import ENGINE_MODEL, TARGET_MODEL, Label


def target_models(plan: Plan) -> tuple[Recording, ...]:
    """Recorded as one series a group and model, because the past of all targets would be slow to read."""
    if not plan.spec.group_by:
        return ()
    models, any_target = (
        aggregate("group", ENGINE_MODEL, by=[Label.MODEL]),
        aggregate("group", targets_up(plan), by=[]),
    )
    return (Recording(TARGET_MODEL, models.or_(any_target, on())),)


def missing_targets(plan: Plan) -> tuple[Alert, ...]:
    """The alert on groups without targets; without `group_by`, the alerts on targets that are down cover this."""
    if not plan.spec.group_by:
        return ()
    with_model = over("last_over_time", select(TARGET_MODEL, not_equal(Label.MODEL, "")), plan.quarter_day)
    return (
        alert(
            plan,
            AlertName.TARGETS_MISSING,
            (DashboardUid.SIDECAR, PanelTitle.SIDECAR),
            with_model.or_(_past(plan), on()).unless(targets_up(plan), on()),
            "Prometheus has lost every target{{ with $labels.model }} of {{ . }}{{ end }}",
            f"No target of the job {' or '.join(jobs(plan.spec))} is left here, for {spell_duration(plan.down_after)} "
            "or more. Nothing here is measured and no other alert can fire. The page ends when a target is back, or "
            f"{spell_duration(plan.quarter_day)} after the last one, when the targets count as removed. Look first at "
            "whether clients still get responses, then at the Prometheus that scrapes them and at its service "
            "discovery.",
            severity=Severity.PAGE,
            pending_for=plan.down_after,
        ),
    )


def no_target(plan: Plan, window: float | None = None) -> Expression:
    """Present if there is no target at all; with `group_by`, only if there was none in the past either."""
    up = targets_up(plan)
    if plan.spec.group_by:
        return call("absent", up.or_(_past(plan)))
    return call("absent", up) if window is None else over("absent_over_time", up, window)


def by_urgency(
    plan: Plan, failed: Expression, serving: Expression, without: Expression | None = None
) -> Iterator[tuple[Severity, Expression, str]]:
    """The page and the ticket, each with a sentence for its description.

    `serving` is 1 or 0 for each replica. `without` is present if there is no replica at all. The ticket fires beside
    the page, which inhibits it: if one excluded the other, a group at the limit would restart the time of both.
    """
    # PromQL is written with 12 digits, and 2 of 3 replicas must not be below 2/3.
    least = floor(plan.spec.alerting.min_serving * 1e9) / 1e9
    too_few = sum_by(serving, [Label.MODEL]) / count_by(serving, [Label.MODEL]) < least
    share = percent(plan.spec.alerting.min_serving)
    page, note = failed.and_(too_few, on(Label.MODEL)), f"Fewer than {share} of the replicas serve. "
    for severity, expr, text in ((Severity.PAGE, page, note), (Severity.TICKET, failed, "")):
        yield severity, expr if without is None else expr.or_(without, on(Label.INSTANCE)), text


def _past(plan: Plan) -> Expression:
    return over("last_over_time", TARGET_MODEL, plan.quarter_day)
