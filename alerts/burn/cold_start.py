"""Recording rules that hold back pages while an engine starts; the error budget is still charged."""

from math import ceil

from alerts.plan import Plan
from alerts.promql.build import (
    aggregate,
    call,
    equal,
    in_window,
    increase,
    on,
    over,
    regex,
    rises,
    select,
    sum_by,
    with_model,
)
from alerts.promql.expression import Expression
from alerts.recording.pools import pool_paged
from alerts.rules.groups import Recording
from exporters.vocabulary.signals import (
    COLD_START,
    ENGINE_MODEL,
    ENGINE_START_TIME,
    ENGINE_STATE,
    ENGINE_STATE_CHANGED,
    ENGINE_UP,
    HELD_PAGE,
    PAGE_ERROR_RATIO,
    PAGE_HELD,
    REQUESTS_IN,
    SLO_BAD,
    Label,
)
from exporters.vocabulary.verdicts import SERVER_FAULT

_HELD_WARM_UPS = 3
"""Pages of one SLO are held for as many warm-ups, or a cold start if it is longer, within the interval of second
starts."""

_EVALUATIONS_TO_TIER = 2
"""Rules between the count of a window and the tier that burns: the ratio, and the tier."""

_LABELS = (Label.INSTANCE, Label.ENGINE)
_INSTANCE, _ENGINE = on(Label.INSTANCE), on(Label.INSTANCE, Label.ENGINE)


def failed_requests(plan: Plan) -> Expression:
    """The failed requests at each sidecar, by class and outcome; a planned restart of a drained engine has none."""
    return in_window(REQUESTS_IN, plan.lookback, regex(Label.OUTCOME, "|".join(sorted(SERVER_FAULT))))


def in_state(*states: str) -> Expression:
    """Engines that their sidecar says to be in one of these states."""
    return aggregate("group", select(ENGINE_STATE, regex(Label.STATE, "|".join(states))).binary("==", 1), by=_LABELS)


def cold_start(plan: Plan) -> Recording:
    """Present while an engine starts and for the warm-up after that, unless nothing else serves its model meanwhile."""
    return Recording(COLD_START, _of_state(plan) if plan.has_sidecar else _of_scrapes(plan))


def _of_state(plan: Plan) -> Expression:
    starting = over("max_over_time", select(ENGINE_STATE, equal(Label.STATE, "starting")), plan.warm_up)
    long = call("time") - select(ENGINE_STATE_CHANGED) > plan.warm_up
    return (
        aggregate("group", starting.binary("==", 1), by=_LABELS)
        .unless(in_state("down", "wedged"), _ENGINE)
        .unless(_alone(long, in_state("serving", "saturated")), _ENGINE)
    )


def _of_scrapes(plan: Plan) -> Expression:
    """Engines that start, by their scrapes alone. A second start within the limit is a failure."""
    up, started = select(ENGINE_UP), select(ENGINE_START_TIME)

    def changed(recent: float) -> Expression:
        changes = over("max_over_time", up, recent) > over("min_over_time", up, recent)
        return changes.or_(up.unless(select(ENGINE_UP, offset=recent)))

    warms_up = changed(plan.warm_up).or_(call("time") - started < plan.warm_up)
    is_down, is_up = up.binary("==", 0), up.binary("==", 1)
    loads = is_down.and_(changed(plan.cold_start)).unless(_alone(is_down.unless(warms_up), is_up), _ENGINE)
    long, scrape = plan.second_start, plan.spec.scrape_interval
    failure = (over("resets", up, long) + rises(up, long, scrape) > 2).or_(rises(started, long, scrape) > 1)
    return aggregate("group", warms_up.or_(loads), by=_LABELS).unless(failure, _ENGINE)


def _alone(engines: Expression, serving: Expression) -> Expression:
    """Those of the engines whose model no engine serves; without a known model, if no engine serves anything."""
    served = aggregate("group", select(ENGINE_MODEL).and_(serving, _ENGINE), by=[Label.MODEL])
    anything = aggregate("group", serving, by=[])  # without a model
    return with_model(engines).unless(served.or_(anything), on(Label.MODEL))


def starting(condition: Expression = select(COLD_START)) -> Expression:  # noqa: B008 - frozen
    """Sidecars with a starting engine and without another engine that is up and warm."""
    warm = select(ENGINE_UP).binary("==", 1).unless(condition, _ENGINE)
    return condition.unless(warm, _INSTANCE)


def held_window(plan: Plan) -> float:
    """The shortest window, and the evaluations after which VictoriaMetrics shows its count to the tier of the page.

    The count still has bad events from before the engine was warm.
    """
    return plan.step + _EVALUATIONS_TO_TIER * plan.direct_interval


def page_held(plan: Plan) -> Recording:
    """Present for an SLO if all bad events of `held_window` come from starting engines, and no page fires yet.

    It does not affect a firing page, as a restart must not resolve it. The time that pages of the SLO are held is
    limited: pods that are replaced again and again are always starting.
    """
    window = held_window(plan)
    # An evaluation longer, as Prometheus 3 excludes the start of a range: bad events of a pod that is gone are counted
    # for as long as it was starting. A millisecond less, as Prometheus 2 includes it.
    recent = window + plan.direct_interval - 0.001
    instances = starting(over("last_over_time", COLD_START, recent))
    bad_events, labels = increase(SLO_BAD, window), PAGE_HELD.labels
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
    evaluations = ceil(max(_HELD_WARM_UPS * plan.warm_up, plan.cold_start) / plan.direct_interval)
    return over("count_over_time", HELD_PAGE, plan.second_start) >= evaluations
