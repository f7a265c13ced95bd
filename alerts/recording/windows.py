"""Recording rules: counts per window first, and every ratio, burn rate and budget from those counts."""

from collections.abc import Callable, Iterator

from alerts.plan import DOZEN, STEP, Plan
from alerts.promql.build import aggregate, call, in_window, increase, on, over, ratio, select, sum_by
from alerts.promql.expression import Expression
from alerts.recording.limits import burning_windows
from alerts.recording.pools import low_traffic
from alerts.recording.steps import (
    GOODPUT_COUNTS,
    SLO_COUNTS,
    any_window,
    counts,
    dozen,
    gapless_step_count,
    open_dozen,
    since_dozen,
    target_labels,
)
from alerts.rules.groups import Recording, RuleGroup, windowed
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label, Recorded, Signal
from exporters.vocabulary.slo_file import Latency

BUDGET = 1 - select(signals.SLO_OBJECTIVE)
PER_BUDGET = on(Label.CLASS, Label.SLO, left=())

_Count = Callable[[Signal, Recorded, float], Recording]


def direct_windows(plan: Plan) -> tuple[Recording, ...]:
    """Counts and ratios of the short windows, for alerts on budgets."""
    return tuple(rule for length in plan.direct for rule in _window(plan, direct_count, length))


def recording_groups(plan: Plan) -> tuple[RuleGroup, ...]:
    """Constants; counts of steps and dozens; windows summed over them."""

    def of_steps(_: Signal, target: Recorded, window: float) -> Recording:
        """Each step exactly once: the rule for steps writes one sample a step."""
        return windowed(target, window, any_window(over("sum_over_time", in_window(target, STEP), window)))

    def of_dozens(_: Signal, target: Recorded, window: float) -> Recording:
        """Each dozen of steps exactly once, and the steps since: the window, and up to a dozen steps more."""
        dozens = over("sum_over_time", in_window(target, DOZEN), window)
        # The last samples of one evaluation, even if a step is longer than the lookback of Prometheus. vmalert stamps
        # them with the beginning of the interval in which it evaluates them, so they may be two steps old.
        since = over("last_over_time", since_dozen(target), 2.5 * plan.step)
        return windowed(target, window, any_window(dozens.or_(since)))

    targets = [target for _, target in counts(plan)]
    summed = [(of_steps, length) for length in plan.of_steps] + [(of_dozens, length) for length in plan.of_dozens]
    return (
        RuleGroup("vllm-slo-constants", plan.summed_interval, tuple(_constants(plan))),
        RuleGroup(
            "vllm-slo-steps",
            plan.step,
            (
                *(gapless_step_count(*pair, plan) for pair in counts(plan)),
                # A sum that is read between the two misses the last dozen; in the other order it counts it twice.
                *(open_dozen(target, plan) for target in targets),
                *(dozen(target, plan) for target in targets),
                Recording(signals.STEP_TIME, call("vector", call("time"))),
            ),
            divisible=False,
        ),
        RuleGroup(
            "vllm-slo-summed-windows",
            plan.summed_interval,
            (
                # No page needs goodput at once, so its short windows are sums of steps, too.
                *(rule for length in plan.direct[1:] for rule in _goodput(plan, of_steps, length)),
                *(rule for each in summed for rule in (*_window(plan, *each), *_goodput(plan, *each))),
                # The counts of the whole period give every request the same weight.
                Recording(signals.SLO_BUDGET_LEFT, 1 - largest_window(_burn_rate(_error_ratio(plan.spec.period)))),
                _measured_time(plan),
            ),
        ),
    )


def _window(plan: Plan, count: _Count, length: float) -> Iterator[Recording]:
    """The ratios are absent without events, as `> 0` drops them: a NaN would make every mean NaN."""
    yield from (count(*pair, length) for pair in SLO_COUNTS)
    yield windowed(signals.SLO_ERROR_RATIO, length, _error_ratio(length))
    yield windowed(signals.SLO_BURN_RATE, length, _burn_rate(in_window(signals.SLO_ERROR_RATIO, length)))
    yield from burning_windows(plan, length)
    yield from low_traffic(plan, length)


def _goodput(plan: Plan, count: _Count, length: float) -> Iterator[Recording]:
    if plan.has_sidecar:
        yield from (count(*pair, length) for pair in GOODPUT_COUNTS)
        good, judged = (in_window(each, length) for each in (signals.GOODPUT_REQUESTS_IN, signals.GOODPUT_EVENTS_IN))
        yield windowed(signals.GOODPUT_RATIO, length, ratio(good, judged))


def _constants(plan: Plan) -> Iterator[Recording]:
    """Objectives and thresholds as series, so that panels draw the values that the rules use."""

    def constant(series: Recorded, value: float, name: str, **slo: str) -> Recording:
        return Recording(series, call("vector", value), {Label.CLASS: name, **slo})

    spec = plan.spec
    pairs = [(slo, name) for slo in spec.slos for name in slo.classes]
    yield from (windowed(signals.WINDOW_SECONDS, each, call("vector", each)) for each in plan.windows)
    yield from (constant(signals.SLO_OBJECTIVE, slo.objective, name, slo=slo.name) for slo, name in pairs)
    for slo, name in pairs:
        if isinstance(slo.sli, Latency):
            yield constant(signals.SLO_THRESHOLD, slo.sli.threshold, name, slo=slo.name)
    for name in spec.class_names:
        # The lowest goodput of a class if every SLO is met: in the worst case no request misses two.
        objective = round(1 - sum(slo.budget for slo in spec.slos_of(name)), 12)
        if spec.slos_of(name) and objective > 0:
            yield constant(signals.GOODPUT_OBJECTIVE, objective, name)


def direct_count(source: Signal, target: Recorded, window: float) -> Recording:
    return windowed(target, window, sum_by(increase(source, window), target_labels(target)))


def largest_window(expression: Expression) -> Expression:
    return aggregate("max", expression, without=[Label.WINDOW])


def dozens_recording(plan: Plan) -> Recording:
    """The number of dozens, recorded once in a dozen of steps: more often, it would read a period to find the same."""
    dozens = over("count_over_time", in_window(signals.SLO_EVENTS_IN, DOZEN), plan.spec.period)
    return Recording(signals.SLO_DOZENS, largest_window(dozens))


def _measured_time(plan: Plan) -> Recording:
    """The measured time of the period, from the number of dozens, which are recorded while a sidecar is scraped."""
    last = over("last_over_time", signals.SLO_DOZENS, 2 * plan.dozen)
    return Recording(signals.SLO_MEASURED, call("clamp_max", last / round(plan.spec.period / plan.dozen), 1))


def _error_ratio(window: float) -> Expression:
    return ratio(in_window(signals.SLO_BAD_IN, window), in_window(signals.SLO_EVENTS_IN, window))


def _burn_rate(ratio_of_bad: Expression) -> Expression:
    return ratio_of_bad.binary("/", BUDGET, PER_BUDGET)
