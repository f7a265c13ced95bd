"""Recording rules: counts per window first, and every ratio, burn rate and budget from those counts."""

from collections.abc import Callable
from functools import partial

from alerts.promql import in_window, increase, ratio, sum_by
from alerts.recording_windows import DOZEN, OPEN, STEP, summed_interval, windows
from alerts.rule_groups import Recording, RuleGroup
from exporters import signals
from exporters.quantities import number, spell_duration
from exporters.signals import Label, Recorded, Signal
from exporters.slos import SloFile

_COUNTS: tuple[tuple[Signal, Recorded], ...] = (
    (signals.SLO_EVENTS, signals.SLO_EVENTS_IN),
    (signals.SLO_BAD, signals.SLO_BAD_IN),
    (signals.GOODPUT_EVENTS, signals.GOODPUT_EVENTS_IN),
    (signals.GOODPUT_REQUESTS, signals.GOODPUT_REQUESTS_IN),
)


def direct_windows(spec: SloFile) -> tuple[Recording, ...]:
    """Counts and ratios of the short windows."""
    return tuple(rule for length in windows(spec).direct for rule in _window(direct_count, length))


def recording_groups(spec: SloFile) -> tuple[RuleGroup, ...]:
    """Constants; counts of steps and dozens; windows summed over them."""
    lengths = windows(spec)
    spent = in_window(signals.SLO_BURN_RATE, spell_duration(spec.period))
    return (
        RuleGroup("vllm-slo-constants", summed_interval(spec), _constants(spec)),
        RuleGroup(
            "vllm-slo-steps",
            lengths.step,
            (
                *(step_count(*pair, spec) for pair in _COUNTS),
                # A sum that is read between the two misses the last dozen; in the other order it counts it twice.
                *(_open_dozen(target, spec) for _, target in _COUNTS),
                *(_dozen(target, spec) for _, target in _COUNTS),
            ),
        ),
        RuleGroup(
            "vllm-slo-summed-windows",
            summed_interval(spec),
            (
                *(rule for length in lengths.of_steps for rule in _window(_of_steps, length)),
                *(rule for length in lengths.of_dozens for rule in _window(partial(_of_dozens, lengths.step), length)),
                # From the counts of the whole period, so that every request has the same weight.
                Recording(signals.SLO_BUDGET_LEFT, f"1 - max without (window) ({spent})"),
                _measured_time(spec),
            ),
        ),
    )


def windowed(series: Recorded, window: str, expr: str) -> Recording:
    """Records a series with this value of the label `window`."""
    return Recording(series, expr, {Label.WINDOW: window})


def _window(count: Callable[[Signal, Recorded, float], Recording], length: float) -> tuple[Recording, ...]:
    return (*(count(*pair, length) for pair in _COUNTS), *_ratios(spell_duration(length)))


def _constants(spec: SloFile) -> tuple[Recording, ...]:
    """Objectives and thresholds as series, so that panels draw the values that the rules use."""

    def constant(series: Recorded, value: float, name: str, **slo: str) -> Recording:
        return Recording(series, f"vector({number(value)})", {Label.CLASS: name, **slo})

    pairs = [(slo, name) for slo in spec.slos for name in slo.classes]
    lengths = windows(spec)
    return (
        *(
            windowed(signals.WINDOW_SECONDS, spell_duration(each), f"vector({number(each)})")
            for each in (*lengths.direct, *lengths.of_steps, *lengths.of_dozens)
        ),
        *(constant(signals.SLO_OBJECTIVE, slo.objective, name, slo=slo.name) for slo, name in pairs),
        *(
            constant(signals.SLO_THRESHOLD, slo.threshold, name, slo=slo.name)
            for slo, name in pairs
            if slo.threshold is not None
        ),
        *(
            constant(signals.GOODPUT_OBJECTIVE, objective, name)
            for name in spec.class_names
            if spec.slos_of(name) and (objective := _joint_objective(spec, name)) > 0
        ),
    )


def _joint_objective(spec: SloFile, name: str) -> float:
    """The lowest goodput of a class if every SLO is met: in the worst case no request misses two."""
    return round(1 - sum(slo.budget for slo in spec.slos_of(name)), 12)


def _target_labels(target: Recorded) -> list[Label]:
    """The labels of the target; all others (instances, usually tenants) are summed."""
    return [label for label in target.labels if label != Label.WINDOW]


def direct_count(source: Signal, target: Recorded, window: float) -> Recording:
    text = spell_duration(window)
    return windowed(target, text, sum_by(increase(source.name, text), _target_labels(target)))


def step_count(source: Signal, target: Recorded, spec: SloFile) -> Recording:
    """The increase from the last scrape of the previous step to the last scrape of this step.

    `increase(x[step])` leaves out the growth between its last sample and the first sample of the next window, and
    extrapolates instead: right on average, wrong where traffic changes. A range that is one scrape wider starts at the
    last sample of the previous step, so that every event is in exactly one step. `increase` scales the difference to
    the wider range; the factor scales it back. The range is a millisecond shorter, as Prometheus 2 includes both ends
    of a range. The offset waits for a scrape that is in progress.
    """
    step, scrape = windows(spec).step, spec.scrape_interval
    width = step + scrape - 0.001
    increase_of_step = f"increase({source.name}[{spell_duration(width)}] offset {spell_duration(scrape)})"
    return windowed(
        target, STEP, f"{sum_by(increase_of_step, _target_labels(target))} * {number(step)} / {number(width)}"
    )


def _open_dozen(target: Recorded, spec: SloFile) -> Recording:
    """The counts since the last complete dozen, including this step; 0 at the last step of a dozen.

    Continues for twelve steps after the last sample, so that no counts are lost while a sidecar is down.
    """
    lengths = windows(spec)
    step = _any_window(in_window(target, STEP))
    before = _any_window(_last(target, OPEN, lengths.step))
    zero = _any_window(f"sum_over_time({in_window(target, STEP)}[{spell_duration(lengths.dozen)}]) * 0")
    return windowed(
        target, OPEN, f"({step} or {zero})\n+ ({before} or {zero})\nunless on () {_dozen_is_full(spec)}\nor {zero}"
    )


def open_dozen_from_steps(target: Recorded, spec: SloFile) -> Recording:
    """The same series without its own last sample, so that it can be evaluated for the past in one query."""
    lengths, steps = windows(spec), in_window(target, STEP)
    position = f"floor(({_place_in_dozen(spec)}) / {number(lengths.step)})"
    sums = (
        f"sum_over_time({steps}[{spell_duration(count * lengths.step - 0.001)}]) and on () {position} == {count - 1}"
        for count in range(1, 12)
    )
    zero = f"sum_over_time({steps}[{spell_duration(lengths.dozen)}]) * 0"
    return windowed(target, OPEN, _any_window("\nor ".join([*sums, zero])))


def _dozen(target: Recorded, spec: SloFile) -> Recording:
    """One sample every twelve steps; a millisecond less than twelve, as Prometheus 2 includes both ends of a range."""
    steps = f"{in_window(target, STEP)}[{spell_duration(windows(spec).dozen - 0.001)}]"
    return windowed(target, DOZEN, f"sum_over_time({steps})\nand on () {_dozen_is_full(spec)}")


def _dozen_is_full(spec: SloFile) -> str:
    """Present at one evaluation in twelve; half a step from both edges, if steps are aligned with the epoch."""
    step, dozen = windows(spec).step, windows(spec).dozen
    return f"({_place_in_dozen(spec)} >= {number(round(dozen - step, 3))})"


def _place_in_dozen(spec: SloFile) -> str:
    step, dozen = windows(spec).step, windows(spec).dozen
    return f"vector(time() + {number(step / 2)}) % {number(dozen)}"


def _of_steps(_: Signal, target: Recorded, window: float) -> Recording:
    """Each step exactly once: the rule for steps writes one sample a step."""
    text = spell_duration(window)
    return windowed(target, text, f"sum_over_time({in_window(target, STEP)}[{text}])")


def _of_dozens(step: float, _: Signal, target: Recorded, window: float) -> Recording:
    """Each dozen of steps exactly once, and the steps since: the window, and up to a dozen steps more."""
    text = spell_duration(window)
    dozens = f"sum_over_time({in_window(target, DOZEN)}[{text}])"
    return windowed(target, text, _any_window(f"{dozens} or {_last(target, OPEN, step)}"))


def _measured_time(spec: SloFile) -> Recording:
    """From the number of dozens, which are recorded while a sidecar is scraped."""
    dozens = f"count_over_time({in_window(signals.SLO_EVENTS_IN, DOZEN)}[{spell_duration(spec.period)}])"
    in_full = round(spec.period / windows(spec).dozen)
    return Recording(signals.SLO_MEASURED, f"clamp_max(max without (window) ({dozens}) / {in_full}, 1)")


def _last(target: Recorded, window: str, step: float) -> str:
    """The last sample, even if a step is longer than the lookback of Prometheus."""
    return f"last_over_time({in_window(target, window)}[{spell_duration(1.5 * step)}])"


def _any_window(expression: str) -> str:
    return f"sum without (window) ({expression})"


def _ratios(window: str) -> tuple[Recording, ...]:
    """Absent without events, as `> 0` drops them: a NaN would make every mean NaN."""
    bad, events = in_window(signals.SLO_BAD_IN, window), in_window(signals.SLO_EVENTS_IN, window)
    good, judged = in_window(signals.GOODPUT_REQUESTS_IN, window), in_window(signals.GOODPUT_EVENTS_IN, window)
    error_ratio = in_window(signals.SLO_ERROR_RATIO, window)
    budget = f"on (class, slo) group_left () (1 - {signals.SLO_OBJECTIVE.name})"
    return (
        windowed(signals.SLO_ERROR_RATIO, window, ratio(bad, events)),
        windowed(signals.SLO_BURN_RATE, window, f"{error_ratio} / {budget}"),
        windowed(signals.GOODPUT_RATIO, window, ratio(good, judged)),
    )
