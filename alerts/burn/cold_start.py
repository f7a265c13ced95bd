"""Recording rules that hold back pages while an engine starts; the error budget is still charged."""

from math import ceil

from alerts.plan import Plan
from alerts.promql.build import aggregate, call, in_window, increase, on, over, regex, select, sum_by
from alerts.promql.expression import Expression
from alerts.recording.pools import pool_paged
from alerts.rules.groups import Recording
from exporters.vocabulary.signals import (
    COLD_START,
    ENGINE_START_TIME,
    ENGINE_UP,
    HELD_PAGE,
    PAGE_ERROR_RATIO,
    PAGE_HELD,
    REQUESTS_IN,
    SLO_BAD,
    Label,
)
from exporters.vocabulary.verdicts import SERVER_FAULT

_HELD_COLD_STARTS = 3
"""Pages of one SLO are held for as many cold starts within the interval of second starts."""

_INSTANCE, _ENGINE = on(Label.INSTANCE), on(Label.INSTANCE, Label.ENGINE)


def failed_requests(plan: Plan) -> Expression:
    """The failed requests at each sidecar, by class and outcome; a planned restart of a drained engine has none."""
    return in_window(REQUESTS_IN, plan.lookback, regex(Label.OUTCOME, "|".join(sorted(SERVER_FAULT))))


def cold_start(plan: Plan) -> Recording:
    """Present if an engine went down, came up or first appeared within the limit, unless that is its second failure."""
    up, started, recent = select(ENGINE_UP), select(ENGINE_START_TIME), plan.cold_start

    def second_start(interval: float) -> Expression:
        return (over("changes", up, interval) > 2).or_(over("changes", started, interval) > 1)

    failure: Expression = second_start(plan.second_start)
    if plan.has_sidecar:
        failed = sum_by(failed_requests(plan), [Label.INSTANCE]) >= plan.spec.alerting.min_bad
        failure = second_start(plan.restart_loop).or_(failure.and_(failed, _INSTANCE))
    changed = over("max_over_time", up, recent) > over("min_over_time", up, recent)
    appeared = up.unless(select(ENGINE_UP, offset=recent))
    begun = call("time") - started < recent
    starts = aggregate("group", changed.or_(appeared).or_(begun), by=[Label.INSTANCE, Label.ENGINE])
    return Recording(COLD_START, starts.unless(failure, _ENGINE))


def starting(condition: Expression = select(COLD_START)) -> Expression:  # noqa: B008 - frozen
    """Sidecars with a starting engine and without another engine that is up and warm."""
    warm = select(ENGINE_UP).binary("==", 1).unless(condition, _ENGINE)
    return condition.unless(warm, _INSTANCE)


def page_held(plan: Plan) -> Recording:
    """Present for an SLO if all bad events of the last step come from starting engines, and no page fires yet.

    It covers one step, as the short window still counts bad events from before the engine was warm. It does not affect
    a firing page, as a restart must not resolve it. The time that pages of the SLO are held is limited: pods that are
    replaced again and again are always starting.
    """
    # An evaluation longer than the step, as Prometheus 3 excludes the start of a range: bad events of a pod that is
    # gone are counted for as long as it was starting. A millisecond less, as Prometheus 2 includes it.
    recent = plan.step + plan.direct_interval - 0.001
    instances = starting(over("last_over_time", COLD_START, recent))
    bad_events, labels = increase(SLO_BAD, plan.step), PAGE_HELD.labels
    same = on(*labels)
    held = sum_by(bad_events.and_(instances, _INSTANCE), labels) > 0
    return Recording(
        PAGE_HELD,
        held.unless(sum_by(bad_events.unless(instances, _INSTANCE), labels) > 0, same)
        .unless(over("last_over_time", PAGE_ERROR_RATIO, plan.page_bridge), same)
        # The page of classes with few events has no class of its own.
        .unless(pool_paged("last_over_time", plan.page_bridge), on(Label.MODEL, Label.SLO))
        .unless(_held_too_long(plan), same),
    )


def held_page(burning: Expression) -> Recording:
    """Present while a page tier burns and its page is held: each sample is one evaluation that the page has waited."""
    by = HELD_PAGE.labels
    return Recording(HELD_PAGE, aggregate("group", burning.and_(select(PAGE_HELD), on(*by)), by=by))


def _held_too_long(plan: Plan) -> Expression:
    evaluations = ceil(_HELD_COLD_STARTS * plan.cold_start / plan.direct_interval)
    return over("count_over_time", HELD_PAGE, plan.second_start) >= evaluations
