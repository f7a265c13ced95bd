"""Recording rules that count each event in exactly one step, and sum the steps by the dozen."""

from alerts.promql_text import in_window, sum_by
from alerts.recording_windows import DOZEN, LONGEST_GAP, OPEN, STEP, windows
from alerts.rule_groups import Recording
from exporters import signals
from exporters.quantities import number, spell_duration
from exporters.signals import Label, Recorded, Signal
from exporters.slos import SloFile

COUNTS: tuple[tuple[Signal, Recorded], ...] = (
    (signals.SLO_EVENTS, signals.SLO_EVENTS_IN),
    (signals.SLO_BAD, signals.SLO_BAD_IN),
    (signals.GOODPUT_EVENTS, signals.GOODPUT_EVENTS_IN),
    (signals.GOODPUT_REQUESTS, signals.GOODPUT_REQUESTS_IN),
)


def windowed(series: Recorded, window: str, expr: str) -> Recording:
    """Records a series with this value of the label `window`."""
    return Recording(series, expr, {Label.WINDOW: window})


def target_labels(target: Recorded) -> list[Label]:
    """The labels of the target; all others (instances, usually tenants) are summed."""
    return [label for label in target.labels if label != Label.WINDOW]


def any_window(expression: str) -> str:
    return f"sum without (window) ({expression})"


def step_count(source: Signal, target: Recorded, spec: SloFile) -> Recording:
    """The increase from the last scrape of the previous step to the last scrape of this step."""
    return windowed(target, STEP, _increase_of_steps(1, source, target, spec))


def gapless_step_count(source: Signal, target: Recorded, spec: SloFile) -> Recording:
    """The increase since the last step that was recorded, if that was less than a dozen steps ago.

    For a dozen steps after a missed evaluation, the count is the increase of a dozen steps without those that are
    recorded. So it includes the events of the missed steps, and those while Prometheus was down.
    """
    recorded = f"sum_over_time({in_window(target, STEP)}{_before(11, spec)})"
    missing = any_window(f"{_increase_of_steps(12, source, target, spec)}\n  or -{recorded}")
    last_step = _increase_of_steps(1, source, target, spec)
    return windowed(target, STEP, f"clamp_min({missing}, 0)\nand on () ({_has_gap(spec)})\nor {last_step}")


def _increase_of_steps(count: int, source: Signal, target: Recorded, spec: SloFile) -> str:
    """The increase from the last scrape before these steps to the last scrape of the last one.

    `increase(x[step])` leaves out the growth between its last sample and the first sample of the next window, and
    extrapolates instead: right on average, wrong where traffic changes. A range that is one scrape wider starts at the
    last sample of the previous step, so that every event is in exactly one step. `increase` scales the difference to
    the wider range; the factor scales it back. The range is a millisecond shorter, as Prometheus 2 includes both ends
    of a range. The offset waits for a scrape that is in progress.
    """
    length, scrape = round(count * windows(spec).step, 3), spec.scrape_interval
    width = length + scrape - 0.001
    wider = f"increase({source.name}[{spell_duration(width)}] offset {spell_duration(scrape)})"
    return f"{sum_by(wider, target_labels(target))} * {number(length)} / {number(width)}"


def open_dozen(target: Recorded, spec: SloFile) -> Recording:
    """The counts since the last dozen; 0 when it is recorded."""
    factor = f"(0 * ({_dozen_is_due(spec)}) or vector(1))"
    return windowed(target, OPEN, f"{_since_dozen(target, spec)}\n* on () group_left () {factor}")


def dozen(target: Recorded, spec: SloFile) -> Recording:
    """One sample every twelve steps; if that evaluation was missed, at the next one."""
    return windowed(target, DOZEN, f"{_since_dozen(target, spec)}\nand on () ({_dozen_is_due(spec)})")


def _since_dozen(target: Recorded, spec: SloFile) -> str:
    """The counts since the last dozen, including this step; without steps, until they are recorded as a dozen."""
    step = f"last_over_time({in_window(target, STEP)}[{spell_duration(windows(spec).step / 2)}])"
    before = f"last_over_time({in_window(target, OPEN)}{_before(LONGEST_GAP, spec)}) > 0"
    return any_window(f"{step} or {before}")


def _dozen_is_due(spec: SloFile) -> str:
    """Present at the first evaluation in each twelve steps of the clock."""
    last = f"last_over_time({signals.STEP_TIME.name}{_before(LONGEST_GAP, spec)})"
    return f"{_number_of_dozen('vector(time())', spec)} != {_number_of_dozen(last, spec)}"


def _number_of_dozen(time: str, spec: SloFile) -> str:
    """Changes half a step from any evaluation, if steps are aligned with the epoch."""
    step, dozen = windows(spec).step, windows(spec).dozen
    return f"floor(({time} + {number(1.5 * step)}) / {number(dozen)})"


def _has_gap(spec: SloFile) -> str:
    """Present if an evaluation was missed after the first one of the last dozen steps."""
    times = f"{signals.STEP_TIME.name}{_before(11, spec)}"
    expected = f"(time() - min_over_time({times})) / {number(windows(spec).step)}"
    return f"count_over_time({times}) < {expected} - 0.5"


def _before(steps: int, spec: SloFile) -> str:
    """A range of this many evaluations before this one, in any order of the rules."""
    step = windows(spec).step
    return f"[{spell_duration(steps * step)}] offset {spell_duration(step / 2)}"


def counts_of_past(spec: SloFile) -> tuple[Recording, ...]:
    """The same counts without a gap, from rules that read no sample of their own: for the past in one query."""
    return tuple(
        rule
        for source, target in COUNTS
        for rule in (
            step_count(source, target, spec),
            _open_dozen_from_steps(target, spec),
            _dozen_from_steps(target, spec),
        )
    )


def _open_dozen_from_steps(target: Recorded, spec: SloFile) -> Recording:
    lengths, steps = windows(spec), in_window(target, STEP)
    position = f"floor(({_place_in_dozen(spec)}) / {number(lengths.step)})"
    sums = (
        f"sum_over_time({steps}[{spell_duration(count * lengths.step - 0.001)}]) and on () {position} == {count - 1}"
        for count in range(1, 12)
    )
    zero = f"sum_over_time({steps}[{spell_duration(lengths.dozen)}]) * 0"
    return windowed(target, OPEN, any_window("\nor ".join([*sums, zero])))


def _dozen_from_steps(target: Recorded, spec: SloFile) -> Recording:
    """A millisecond less than twelve steps, as Prometheus 2 includes both ends of a range."""
    steps = f"{in_window(target, STEP)}[{spell_duration(windows(spec).dozen - 0.001)}]"
    is_full = f"({_place_in_dozen(spec)} >= {number(round(windows(spec).dozen - windows(spec).step, 3))})"
    return windowed(target, DOZEN, f"sum_over_time({steps})\nand on () {is_full}")


def _place_in_dozen(spec: SloFile) -> str:
    """Seconds since the last full dozen; half a step from both edges, if steps are aligned with the epoch."""
    step, dozen = windows(spec).step, windows(spec).dozen
    return f"vector(time() + {number(step / 2)}) % {number(dozen)}"
