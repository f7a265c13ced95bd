"""Recording rules for the cost of output tokens and good requests, from the price of a GPU hour."""

from collections.abc import Iterator

from alerts.promql import in_window, ratio
from alerts.recording_windows import STEP, summed_interval, windows
from alerts.rule_groups import Recording, RuleGroup
from alerts.scrape_jobs import targets_up
from alerts.step_counts import step_count, windowed
from exporters import signals
from exporters.quantities import number, spell_duration
from exporters.signals import Kind, Signal
from exporters.slos import SloFile

VLLM_TOKENS = Signal("vllm:generation_tokens_total", Kind.COUNTER, "vLLM's own count, if Prometheus scrapes it.")

SOURCES = (signals.COMPLETION_TOKENS, signals.ENGINE_GENERATION_TOKENS, VLLM_TOKENS)
"""Counters of output tokens by priority: relay, engine (for traffic that bypasses the relay), vLLM itself."""


def cost_groups(spec: SloFile, hour_price: float) -> tuple[RuleGroup, ...]:
    """Cost, tokens and requests of each step, and prices from their sums; `hour_price` is that of all GPUs of a group.

    Money and counts are recorded together, so that a price is correct in the first hour and after a change of price.
    """
    lengths = windows(spec)
    return (
        RuleGroup("vllm-slo-cost-steps", lengths.step, tuple(_steps(spec, hour_price * lengths.step / 3600))),
        RuleGroup(
            "vllm-slo-cost",
            summed_interval(spec),
            tuple(rule for length in (lengths.dozen, lengths.day) for rule in _window(length)),
        ),
    )


def _steps(spec: SloFile, price: float) -> Iterator[Recording]:
    """A step without tokens from any source is idle, also while no scrape succeeds."""
    money, nothing = _constant(spec, price), _constant(spec, 0)
    counts = (step_count(source, signals.COST_TOKENS_IN, spec).expr for source in SOURCES)
    idle = f"{money} unless on () {in_window(signals.COST_TOKENS_IN, STEP)}"
    yield windowed(signals.COST_IN, STEP, money)
    yield windowed(signals.COST_TOKENS_IN, STEP, "\nor ".join(f"({count} > 0)" for count in counts))
    yield step_count(signals.GOODPUT_REQUESTS, signals.COST_GOOD_IN, spec)
    yield windowed(signals.COST_IDLE_IN, STEP, f"({idle}) or {nothing}")


def _constant(spec: SloFile, value: float) -> str:
    """The value, or with `group_by` the value for each group that has a target."""
    return f"{number(value)} * group by () ({targets_up(spec)})" if spec.group_by else f"vector({number(value)})"


def _window(length: float) -> Iterator[Recording]:
    window = spell_duration(length)
    for series in (signals.COST_IN, signals.COST_IDLE_IN, signals.COST_TOKENS_IN, signals.COST_GOOD_IN):
        # A millisecond less, as Prometheus 2 includes both ends of a range.
        steps = f"{in_window(series, STEP)}[{spell_duration(length - 0.001)}]"
        yield windowed(series, window, f"sum_over_time({steps})")
    money, tokens, good = (
        in_window(series, window) for series in (signals.COST_IN, signals.COST_TOKENS_IN, signals.COST_GOOD_IN)
    )
    yield windowed(signals.COST_PER_MILLION, window, f"1e6 * {ratio(money, tokens)}")
    yield windowed(signals.COST_PER_GOOD, window, ratio(money, good))
