"""Recording rules: counts per window first, and every ratio, burn rate and budget from those counts."""

from collections.abc import Callable
from functools import partial

from alerts.burning_windows import burning_windows
from alerts.pooled_classes import low_traffic
from alerts.promql import in_window, increase, ratio, sum_by
from alerts.recording_windows import DOZEN, OPEN, STEP, summed_interval, windows
from alerts.rule_groups import Recording, RuleGroup
from alerts.step_counts import COUNTS, any_window, dozen, gapless_step_count, open_dozen, target_labels, windowed
from exporters import signals
from exporters.quantities import number, spell_duration
from exporters.signals import Label, Recorded, Signal
from exporters.slos import Latency, SloFile


def direct_windows(spec: SloFile) -> tuple[Recording, ...]:
    """Counts and ratios of the short windows."""
    return tuple(rule for length in windows(spec).direct for rule in _window(spec, direct_count, length))


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
                *(gapless_step_count(*pair, spec) for pair in COUNTS),
                # A sum that is read between the two misses the last dozen; in the other order it counts it twice.
                *(open_dozen(target, spec) for _, target in COUNTS),
                *(dozen(target, spec) for _, target in COUNTS),
                Recording(signals.STEP_TIME, "vector(time())"),
            ),
            divisible=False,
        ),
        RuleGroup(
            "vllm-slo-summed-windows",
            summed_interval(spec),
            (
                *(rule for length in lengths.of_steps for rule in _window(spec, _of_steps, length)),
                *(
                    rule
                    for length in lengths.of_dozens
                    for rule in _window(spec, partial(_of_dozens, lengths.step), length)
                ),
                # From the counts of the whole period, so that every request has the same weight.
                Recording(signals.SLO_BUDGET_LEFT, f"1 - max without (window) ({spent})"),
                _measured_time(spec),
            ),
        ),
    )


def _window(
    spec: SloFile, count: Callable[[Signal, Recorded, float], Recording], length: float
) -> tuple[Recording, ...]:
    return (
        *(count(*pair, length) for pair in COUNTS),
        *_ratios(spell_duration(length)),
        *burning_windows(spec, length),
        *low_traffic(spec, length),
    )


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
            constant(signals.SLO_THRESHOLD, slo.sli.threshold, name, slo=slo.name)
            for slo, name in pairs
            if isinstance(slo.sli, Latency)
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


def direct_count(source: Signal, target: Recorded, window: float) -> Recording:
    text = spell_duration(window)
    return windowed(target, text, sum_by(increase(source.name, text), target_labels(target)))


def _of_steps(_: Signal, target: Recorded, window: float) -> Recording:
    """Each step exactly once: the rule for steps writes one sample a step."""
    text = spell_duration(window)
    return windowed(target, text, f"sum_over_time({in_window(target, STEP)}[{text}])")


def _of_dozens(step: float, _: Signal, target: Recorded, window: float) -> Recording:
    """Each dozen of steps exactly once, and the steps since: the window, and up to a dozen steps more."""
    text = spell_duration(window)
    dozens = f"sum_over_time({in_window(target, DOZEN)}[{text}])"
    return windowed(target, text, any_window(f"{dozens} or {_last(target, OPEN, step)}"))


def dozens_recording(spec: SloFile) -> Recording:
    """Once in a dozen of steps: more often, it would read a whole period to find the same number."""
    dozens = f"count_over_time({in_window(signals.SLO_EVENTS_IN, DOZEN)}[{spell_duration(spec.period)}])"
    return Recording(signals.SLO_DOZENS, f"max without (window) ({dozens})")


def _measured_time(spec: SloFile) -> Recording:
    """From the number of dozens, which are recorded while a sidecar is scraped."""
    dozen = windows(spec).dozen
    last = f"last_over_time({signals.SLO_DOZENS.name}[{spell_duration(2 * dozen)}])"
    return Recording(signals.SLO_MEASURED, f"clamp_max({last} / {round(spec.period / dozen)}, 1)")


def _last(target: Recorded, window: str, step: float) -> str:
    """The last sample, even if a step is longer than the lookback of Prometheus."""
    return f"last_over_time({in_window(target, window)}[{spell_duration(1.5 * step)}])"


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
