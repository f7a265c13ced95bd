"""Recording rules: counts per window first, and every ratio, burn rate and budget from those counts."""

from collections.abc import Callable
from functools import partial

from alerts.promql import increase, ratio, select, sum_by
from alerts.recording_windows import DOZEN, OPEN, STEP, summed_interval, windows
from alerts.rule_groups import Recording, RuleGroup
from exporters.quantities import number, spell_duration
from exporters.signals import (
    GOODPUT_EVENTS,
    GOODPUT_EVENTS_IN,
    GOODPUT_OBJECTIVE,
    GOODPUT_RATIO,
    GOODPUT_REQUESTS,
    GOODPUT_REQUESTS_IN,
    SLO_BAD,
    SLO_BAD_IN,
    SLO_BUDGET_LEFT,
    SLO_BURN_RATE,
    SLO_ERROR_RATIO,
    SLO_EVENTS,
    SLO_EVENTS_IN,
    SLO_OBJECTIVE,
    SLO_THRESHOLD,
    Label,
    Recorded,
    Signal,
)
from exporters.slos import SloFile

_COUNTS: tuple[tuple[Signal, Recorded], ...] = (
    (SLO_EVENTS, SLO_EVENTS_IN),
    (SLO_BAD, SLO_BAD_IN),
    (GOODPUT_EVENTS, GOODPUT_EVENTS_IN),
    (GOODPUT_REQUESTS, GOODPUT_REQUESTS_IN),
)


def direct_windows(spec: SloFile) -> tuple[Recording, ...]:
    """Counts and ratios of the short windows."""
    return tuple(rule for length in windows(spec).direct for rule in _window(direct_count, length))


def recording_groups(spec: SloFile) -> tuple[RuleGroup, ...]:
    """Constants; counts of steps and dozens; windows summed over them."""
    lengths = windows(spec)
    return (
        RuleGroup("vllm-slo-constants", summed_interval(spec), _constants(spec)),
        RuleGroup(
            "vllm-slo-steps",
            lengths.step,
            (
                *(step_count(*pair, spec) for pair in _COUNTS),
                # Between the two, a sum misses the last dozen; the other way round it would count it twice.
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
                _budget_left(spec),
            ),
        ),
    )


def _window(count: Callable[[Signal, Recorded, float], Recording], length: float) -> tuple[Recording, ...]:
    return (*(count(*pair, length) for pair in _COUNTS), *_ratios(length))


def _constants(spec: SloFile) -> tuple[Recording, ...]:
    """Objectives and thresholds as series, so that a panel draws the line that the rules use."""
    pairs = [(slo, {Label.CLASS.value: name, Label.SLO.value: slo.name}) for slo in spec.slos for name in slo.classes]
    return (
        *(Recording(SLO_OBJECTIVE, f"vector({number(slo.objective)})", labels) for slo, labels in pairs),
        *(
            Recording(SLO_THRESHOLD, f"vector({number(slo.threshold)})", labels)
            for slo, labels in pairs
            if slo.threshold is not None
        ),
        *(
            Recording(GOODPUT_OBJECTIVE, f"vector({number(_joint_objective(spec, name))})", {Label.CLASS.value: name})
            for name in spec.class_names
            if spec.slos_of(name) and _joint_objective(spec, name) > 0
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
    return Recording(target, sum_by(increase(source.name, text), _target_labels(target)), {Label.WINDOW.value: text})


def step_count(source: Signal, target: Recorded, spec: SloFile) -> Recording:
    """The increase from the last scrape of the previous step to the last scrape of this step.

    `increase(x[step])` alone leaves out what happens between its last sample and the first of the next window, and
    makes up for it by extrapolation: right on average, wrong where traffic changes. A range one scrape wider starts
    at the very sample at which the step before ended, so that steps chain: what it saw is the difference over one
    step, stretched to the range, which the factor takes back. The millisecond keeps a second sample out where a range
    includes both its ends (Prometheus 2); the offset waits for a scrape that is still under way.
    """
    step, scrape = windows(spec).step, spec.scrape_interval
    width = step + scrape - 0.001
    increase_of_step = f"increase({source.name}[{spell_duration(width)}] offset {spell_duration(scrape)})"
    return Recording(
        target,
        f"{sum_by(increase_of_step, _target_labels(target))} * {number(step)} / {number(width)}",
        {Label.WINDOW.value: STEP},
    )


def _open_dozen(target: Recorded, spec: SloFile) -> Recording:
    """The counts since the last complete dozen, including this step; 0 at the last step of a dozen.

    Continues for twelve steps after the last sample, so that no counts are lost while a sidecar is down.
    """
    lengths = windows(spec)
    step = _any_window(select(target, {Label.WINDOW: STEP}))
    before = _any_window(_last(target, OPEN, lengths.step))
    zero = _any_window(f"sum_over_time({select(target, {Label.WINDOW: STEP})}[{spell_duration(lengths.dozen)}]) * 0")
    return Recording(
        target,
        f"({step} or {zero})\n+ ({before} or {zero})\nunless on () {_dozen_is_full(spec)}\nor {zero}",
        {Label.WINDOW.value: OPEN},
    )


def _dozen(target: Recorded, spec: SloFile) -> Recording:
    """One sample every twelve steps; a millisecond less than twelve, as Prometheus 2 includes both ends of a range."""
    steps = f"{select(target, {Label.WINDOW: STEP})}[{spell_duration(windows(spec).dozen - 0.001)}]"
    return Recording(target, f"sum_over_time({steps})\nand on () {_dozen_is_full(spec)}", {Label.WINDOW.value: DOZEN})


def _dozen_is_full(spec: SloFile) -> str:
    """True at one evaluation in twelve; half a step away from both edges where time starts with a step."""
    step, dozen = windows(spec).step, windows(spec).dozen
    return f"(vector(time() + {number(step / 2)}) % {number(dozen)} >= {number(round(dozen - step, 3))})"


def _of_steps(_: Signal, target: Recorded, window: float) -> Recording:
    """Each step exactly once: the rule for steps writes one sample a step."""
    text = spell_duration(window)
    return Recording(
        target,
        f"sum_over_time({select(target, {Label.WINDOW: STEP})}[{text}])",
        {Label.WINDOW.value: text},
    )


def _of_dozens(step: float, _: Signal, target: Recorded, window: float) -> Recording:
    """Each dozen of steps exactly once, and the steps since: the window, and up to a dozen steps more."""
    text = spell_duration(window)
    dozens = f"sum_over_time({select(target, {Label.WINDOW: DOZEN})}[{text}])"
    return Recording(target, _any_window(f"{dozens} or {_last(target, OPEN, step)}"), {Label.WINDOW.value: text})


def _last(target: Recorded, window: str, step: float) -> str:
    """The last sample, also where a step is longer than the lookback of Prometheus."""
    return f"last_over_time({select(target, {Label.WINDOW: window})}[{spell_duration(1.5 * step)}])"


def _any_window(expression: str) -> str:
    return f"sum without (window) ({expression})"


def _ratios(window: float) -> tuple[Recording, ...]:
    """Absent without events, as `> 0` drops them: a NaN would make every mean NaN."""
    labels = {Label.WINDOW.value: spell_duration(window)}

    def in_window(series: Recorded) -> str:
        return select(series, {Label.WINDOW: spell_duration(window)})

    burn_rate = f"{in_window(SLO_ERROR_RATIO)} / on (class, slo) group_left () (1 - {SLO_OBJECTIVE.name})"
    return (
        Recording(SLO_ERROR_RATIO, ratio(in_window(SLO_BAD_IN), in_window(SLO_EVENTS_IN)), labels),
        Recording(SLO_BURN_RATE, burn_rate, labels),
        Recording(GOODPUT_RATIO, ratio(in_window(GOODPUT_REQUESTS_IN), in_window(GOODPUT_EVENTS_IN)), labels),
    )


def _budget_left(spec: SloFile) -> Recording:
    """From the counts of the whole period, so that every request has the same weight."""
    spent = select(SLO_BURN_RATE, {Label.WINDOW: spell_duration(spec.period)})
    return Recording(SLO_BUDGET_LEFT, f"1 - max without (window) ({spent})")
