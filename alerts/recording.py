"""Recording rules: counts per window first, and every ratio, burn rate and budget from those counts."""

from collections.abc import Callable

from alerts.promql import increase, select, sum_by
from alerts.rule import Recording, RuleGroup
from alerts.windows import STEP, direct_interval, summed_interval, windows
from exporters.signals import (
    GOODPUT_EVENTS,
    GOODPUT_EVENTS_IN,
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
from exporters.yamlfile import number, spell_duration

_COUNTS: tuple[tuple[Signal, Recorded], ...] = (
    (SLO_EVENTS, SLO_EVENTS_IN),
    (SLO_BAD, SLO_BAD_IN),
    (GOODPUT_EVENTS, GOODPUT_EVENTS_IN),
    (GOODPUT_REQUESTS, GOODPUT_REQUESTS_IN),
)


def recording_groups(spec: SloFile) -> tuple[RuleGroup, ...]:
    """Constants and direct windows; counts of steps; windows summed over steps."""
    found = windows(spec)

    def window(count: Callable[[Signal, Recorded, float], Recording], length: float) -> tuple[Recording, ...]:
        return (*(count(*pair, length) for pair in _COUNTS), *_ratios(length))

    return (
        RuleGroup("vllm-slo-constants", summed_interval(spec), _constants(spec)),
        RuleGroup(
            "vllm-slo-direct-windows",
            direct_interval(spec),
            tuple(rule for length in found.direct for rule in window(_direct, length)),
        ),
        RuleGroup("vllm-slo-steps", found.step, tuple(_step(*pair, spec) for pair in _COUNTS)),
        RuleGroup(
            "vllm-slo-summed-windows",
            summed_interval(spec),
            (*(rule for length in found.summed for rule in window(_summed, length)), _left(spec)),
        ),
    )


def _constants(spec: SloFile) -> tuple[Recording, ...]:
    """Objectives and thresholds as series, so that a panel draws the line that the rules use."""
    each = [(slo, {Label.CLASS.value: name, Label.SLO.value: slo.name}) for slo in spec.slos for name in slo.classes]
    return (
        *(Recording(SLO_OBJECTIVE, f"vector({number(slo.objective)})", labels) for slo, labels in each),
        *(
            Recording(SLO_THRESHOLD, f"vector({number(slo.threshold)})", labels)
            for slo, labels in each
            if slo.threshold is not None
        ),
    )


def _kept(target: Recorded) -> list[Label]:
    """Tenants and instances of the sidecar are added up."""
    return [label for label in target.labels if label != Label.WINDOW]


def _direct(source: Signal, target: Recorded, window: float) -> Recording:
    spelled = spell_duration(window)
    return Recording(target, sum_by(increase(source.name, spelled), _kept(target)), {Label.WINDOW.value: spelled})


def _step(source: Signal, target: Recorded, spec: SloFile) -> Recording:
    """What was counted from the last scrape of the step before to the last scrape of this one.

    `increase(x[step])` alone leaves out what happens between its last sample and the first of the next window, and
    makes up for it by extrapolation: right on average, wrong where traffic changes. A range one scrape wider starts
    at the very sample at which the step before ended, so that steps chain: what it saw is the difference over one
    step, stretched to the range, which the factor takes back. The millisecond keeps a second sample out where a range
    includes both its ends (Prometheus 2); the offset waits for a scrape that is still under way.
    """
    step, scrape = windows(spec).step, spec.scrape_interval
    wide = step + scrape - 0.001
    seen = f"increase({source.name}[{spell_duration(wide)}] offset {spell_duration(scrape)})"
    return Recording(
        target, f"{sum_by(seen, _kept(target))} * {number(step)} / {number(wide)}", {Label.WINDOW.value: STEP}
    )


def _summed(_: Signal, target: Recorded, window: float) -> Recording:
    """Each step exactly once: the rule for steps writes one sample a step."""
    spelled = spell_duration(window)
    return Recording(
        target,
        f"sum_over_time({select(target, {Label.WINDOW: STEP})}[{spelled}])",
        {Label.WINDOW.value: spelled},
    )


def _ratios(window: float) -> tuple[Recording, ...]:
    """Absent without events, as `> 0` drops them: a NaN would spoil each mean that it enters."""
    labels = {Label.WINDOW.value: spell_duration(window)}

    def here(series: Recorded) -> str:
        return select(series, {Label.WINDOW: spell_duration(window)})

    burn_rate = f"{here(SLO_ERROR_RATIO)} / on (class, slo) group_left () (1 - {SLO_OBJECTIVE.name})"
    return (
        Recording(SLO_ERROR_RATIO, f"{here(SLO_BAD_IN)} / ({here(SLO_EVENTS_IN)} > 0)", labels),
        Recording(SLO_BURN_RATE, burn_rate, labels),
        Recording(GOODPUT_RATIO, f"{here(GOODPUT_REQUESTS_IN)} / ({here(GOODPUT_EVENTS_IN)} > 0)", labels),
    )


def _left(spec: SloFile) -> Recording:
    """From the counts of the whole period, so a busy hour weighs as many requests as it had."""
    spent = select(SLO_BURN_RATE, {Label.WINDOW: spell_duration(spec.period)})
    return Recording(SLO_BUDGET_LEFT, f"1 - max without (window) ({spent})")
