"""Splits a liveness alert: a ticket for each failed replica, and a page if too few replicas of a model serve."""

from collections.abc import Iterator
from math import floor

from alerts.plan import Plan
from alerts.promql.build import count_by, on, sum_by
from alerts.promql.expression import Expression
from alerts.rules.wording import percent
from alerts.tiers import Severity
from exporters.vocabulary.signals import Label


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
