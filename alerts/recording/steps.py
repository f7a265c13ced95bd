"""Recording rules that count each event in exactly one step, and sum the steps by the dozen.

All are in one group, and read only what an earlier evaluation of it has recorded: VictoriaMetrics shows the results of
an evaluation to the next one.
"""

from alerts.plan import DOZEN, LONGEST_GAP, OPEN, STEP, Plan
from alerts.promql.build import aggregate, call, either, in_window, on, over, regex, select, sum_by
from alerts.promql.expression import Expression, Selector
from alerts.rules.groups import Recording, windowed
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label, Recorded, Signal

SLO_COUNTS: tuple[tuple[Signal, Recorded], ...] = (
    (signals.SLO_EVENTS, signals.SLO_EVENTS_IN),
    (signals.SLO_BAD, signals.SLO_BAD_IN),
)
GOODPUT_COUNTS: tuple[tuple[Signal, Recorded], ...] = (
    (signals.GOODPUT_EVENTS, signals.GOODPUT_EVENTS_IN),
    (signals.GOODPUT_REQUESTS, signals.GOODPUT_REQUESTS_IN),
)


def counts(plan: Plan) -> tuple[tuple[Signal, Recorded], ...]:
    """The counters and the recorded counts of their events; vLLM alone does not count goodput."""
    return (*SLO_COUNTS, *GOODPUT_COUNTS) if plan.has_sidecar else SLO_COUNTS


def target_labels(target: Recorded) -> list[Label]:
    """The labels of the target; all others (instances, usually tenants) are summed."""
    return [label for label in target.labels if label != Label.WINDOW]


def any_window(expression: Expression) -> Expression:
    return aggregate("sum", expression, without=[Label.WINDOW])


def step_count(source: Signal, target: Recorded, plan: Plan) -> Recording:
    """The increase from the last scrape of the previous step to the last scrape of this step."""
    return windowed(target, STEP, increase_of_steps(1, source, target, plan))


def gapless_step_count(source: Signal, target: Recorded, plan: Plan) -> Recording:
    """The increase since the last step that was recorded, if that was less than a dozen steps ago.

    For a dozen steps after a missed evaluation, the count is the increase of a dozen steps without those that are
    recorded. So it includes the events of the missed steps, and those while Prometheus was down. After a step with
    events, and while the open dozen has some, a step without counters is 0: it ends together with the open dozen.
    """
    recorded = _before(11, "sum_over_time", in_window(target, STEP), plan)
    missing = any_window(increase_of_steps(12, source, target, plan).or_(-recorded))
    since_gap = call("clamp_min", missing, 0).and_(_has_gap(plan), on())
    quiet = any_window(0 * _uncounted(target, plan))
    return windowed(target, STEP, either([since_gap, increase_of_steps(1, source, target, plan), quiet]))


def increase_of_steps(
    count: int, source: Signal, target: Recorded, plan: Plan, *, price: float | None = None
) -> Expression:
    """The increase from the last scrape before these steps to the last scrape of the last one, times a price of each.

    `increase(x[step])` leaves out the growth between its last sample and the first sample of the next window, and
    extrapolates instead: right on average, wrong where traffic changes. A range that is one scrape wider starts at the
    last sample of the previous step, so that every event is in exactly one step. `increase` scales the difference to
    the wider range; the factor scales it back. The range is a millisecond shorter, as Prometheus 2 includes both ends
    of a range. The offset waits for a scrape that is in progress.
    """
    length, scrape = round(count * plan.step, 3), plan.spec.scrape_interval
    width = length + scrape - 0.001
    growth = sum_by(over("increase", source, width, offset=scrape), target_labels(target))
    return (growth if price is None else price * growth) * length / width


def open_dozen(target: Recorded, plan: Plan) -> Recording:
    """The counts since the last dozen, without this step; 0 when a dozen is recorded."""
    factor = (0 * _dozen_is_due(plan)).or_(call("vector", 1))
    return windowed(target, OPEN, _since_dozen(target, plan).binary("*", factor, on(left=())))


def dozen(target: Recorded, plan: Plan) -> Recording:
    """One sample every twelve steps; if that evaluation was missed, at the next one."""
    return windowed(target, DOZEN, _since_dozen(target, plan).and_(_dozen_is_due(plan), on()))


def _since_dozen(target: Recorded, plan: Plan) -> Expression:
    """The counts since the last dozen, without this step; without steps, until they are recorded as a dozen."""
    step = _before(1, "last_over_time", in_window(target, STEP), plan)
    return any_window(step.or_(_uncounted(target, plan)))


def _uncounted(target: Recorded, plan: Plan) -> Expression:
    """The events of the last recorded step and of the open dozen before it, which are in no dozen."""
    return _before(LONGEST_GAP, "last_over_time", since_dozen(target), plan) > 0


def since_dozen(target: Recorded) -> Selector:
    """The counts since the last dozen, in two series: the open dozen, and the step after it."""
    return select(target, regex(Label.WINDOW, f"{OPEN}|{STEP}"))


def _dozen_is_due(plan: Plan) -> Expression:
    """Present at the first evaluation in each twelve steps of the clock."""

    def number_of_dozen(time: Expression) -> Expression:
        """Changes half a step from any evaluation, if steps are aligned with the epoch."""
        return call("floor", (time + 1.5 * plan.step) / plan.dozen)

    last = _before(LONGEST_GAP, "last_over_time", select(signals.STEP_TIME), plan)
    return number_of_dozen(call("vector", call("time"))).binary("!=", number_of_dozen(last))


def _has_gap(plan: Plan) -> Expression:
    """Present if an evaluation was missed after the first one of the last dozen steps."""
    first, evaluations = (
        _before(11, function, select(signals.STEP_TIME), plan) for function in ("min_over_time", "count_over_time")
    )
    return evaluations < (call("time") - first) / plan.step - 0.5


def _before(steps: int, function: str, series: Selector, plan: Plan) -> Expression:
    """A function of this many evaluations before this one, in any order of the rules."""
    return over(function, series, steps * plan.step, offset=plan.step / 2)


def counts_of_past(plan: Plan) -> tuple[Recording, ...]:
    """The same counts without a gap, from rules that read no sample of their own: for the past in one query."""
    return tuple(
        rule
        for source, target in counts(plan)
        for rule in (
            step_count(source, target, plan),
            _open_dozen_from_steps(target, plan),
            _dozen_from_steps(target, plan),
        )
    )


def _open_dozen_from_steps(target: Recorded, plan: Plan) -> Recording:
    steps, position = in_window(target, STEP), call("floor", _place_in_dozen(plan) / plan.step)
    sums = (
        over("sum_over_time", steps, count * plan.step - 0.001, offset=plan.step).and_(
            position.binary("==", count - 1), on()
        )
        for count in range(1, 12)
    )
    zero = over("sum_over_time", steps, plan.dozen) * 0
    return windowed(target, OPEN, any_window(either([*sums, zero])))


def _dozen_from_steps(target: Recorded, plan: Plan) -> Recording:
    """A millisecond less than twelve steps, as Prometheus 2 includes both ends of a range."""
    steps = over("sum_over_time", in_window(target, STEP), plan.dozen - 0.001, offset=plan.step)
    return windowed(target, DOZEN, steps.and_(_place_in_dozen(plan) >= round(plan.dozen - plan.step, 3), on()))


def _place_in_dozen(plan: Plan) -> Expression:
    """Seconds since the last full dozen; half a step from both edges, if steps are aligned with the epoch."""
    return call("vector", call("time") + plan.step / 2) % plan.dozen
