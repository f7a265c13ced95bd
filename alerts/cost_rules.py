"""Recording rules for the cost of output tokens and good requests, from an hourly GPU price; idle time included."""

from collections.abc import Iterator

from alerts.promql import select
from alerts.recording_rules import step_count
from alerts.recording_windows import STEP, summed_interval, windows
from alerts.rule_groups import Recording, RuleGroup
from exporters.quantities import number, spell_duration
from exporters.signals import (
    COMPLETION_TOKENS,
    COST_GOOD_IN,
    COST_IDLE_IN,
    COST_IN,
    COST_PER_GOOD,
    COST_PER_MILLION,
    COST_TOKENS_IN,
    ENGINE_GENERATION_TOKENS,
    GOODPUT_REQUESTS,
    Kind,
    Label,
    Recorded,
    Signal,
)
from exporters.slos import SloFile

VLLM_TOKENS = Signal("vllm:generation_tokens_total", Kind.COUNTER, "vLLM's own count, where Prometheus scrapes it.")

SOURCES = (COMPLETION_TOKENS, ENGINE_GENERATION_TOKENS, VLLM_TOKENS)
"""Counters of output tokens, by priority: relay, engine (for traffic around the relay), vLLM without a sidecar."""


def cost_groups(spec: SloFile, hour_price: float) -> tuple[RuleGroup, ...]:
    """Cost, tokens and requests of each step, and prices from their sums; `hour_price` is that of all GPUs.

    Both sides of a price are recorded together, so that it is right from the first hour, and after a new price.
    """
    lengths = windows(spec)
    return (
        RuleGroup("vllm-slo-cost-steps", lengths.step, tuple(_steps(spec, hour_price * lengths.step / 3600))),
        RuleGroup(
            "vllm-slo-cost",
            summed_interval(spec),
            tuple(rule for length in (lengths.dozen, lengths.day) for rule in _window(spell_duration(length), length)),
        ),
    )


def _steps(spec: SloFile, price: float) -> Iterator[Recording]:
    """A step without tokens from any source is idle, also while no scrape succeeds."""
    labels = {Label.WINDOW.value: STEP}
    money = f"vector({number(price)})"
    counts = (step_count(source, COST_TOKENS_IN, spec).expr for source in SOURCES)
    yield Recording(COST_IN, money, labels)
    yield Recording(COST_TOKENS_IN, "\nor ".join(f"({count} > 0)" for count in counts), labels)
    yield step_count(GOODPUT_REQUESTS, COST_GOOD_IN, spec)
    yield Recording(COST_IDLE_IN, f"({money} unless on () {_in_window(COST_TOKENS_IN, STEP)}) or vector(0)", labels)


def _window(window: str, length: float) -> Iterator[Recording]:
    labels = {Label.WINDOW.value: window}
    for series in (COST_IN, COST_IDLE_IN, COST_TOKENS_IN, COST_GOOD_IN):
        # A millisecond less, as Prometheus 2 includes both ends of a range.
        yield Recording(series, f"sum_over_time({_in_window(series, STEP)}[{spell_duration(length - 0.001)}])", labels)
    for price, series, unit in ((COST_PER_MILLION, COST_TOKENS_IN, "1e6 * "), (COST_PER_GOOD, COST_GOOD_IN, "")):
        yield Recording(price, f"{unit}{_in_window(COST_IN, window)} / ({_in_window(series, window)} > 0)", labels)


def _in_window(series: Recorded, window: str) -> str:
    return select(series, {Label.WINDOW: window})
