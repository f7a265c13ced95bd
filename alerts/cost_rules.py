"""Recording rules for the cost of output tokens and good requests, from the prices of a GPU hour and of an API."""

from collections.abc import Iterator
from typing import NamedTuple

from alerts.prices import ApiPrice, Prices
from alerts.promql_text import in_window, ratio
from alerts.recording_windows import STEP, summed_interval, windows
from alerts.rule_groups import Recording, RuleGroup
from alerts.scrape_jobs import targets_up
from alerts.step_counts import step_count, windowed
from exporters import signals
from exporters.quantities import number, spell_duration
from exporters.signals import Kind, Signal
from exporters.slos import SloFile


class TokenCounters(NamedTuple):
    """Counters of the same tokens."""

    output: Signal
    prompt: Signal
    cached: Signal


def _of_vllm(name: str) -> Signal:
    return Signal(name, Kind.COUNTER, "vLLM's own count, if Prometheus scrapes it.")


SOURCES = (
    TokenCounters(signals.COMPLETION_TOKENS, signals.PROMPT_TOKENS, signals.CACHED_TOKENS),
    TokenCounters(signals.ENGINE_GENERATION_TOKENS, signals.ENGINE_PROMPT_TOKENS, signals.ENGINE_CACHE_HITS),
    TokenCounters(
        *map(_of_vllm, ("vllm:generation_tokens_total", "vllm:prompt_tokens_total", "vllm:prefix_cache_hits_total"))
    ),
)
"""By priority: relay, engine (for traffic that bypasses the relay), vLLM itself."""


def cost_groups(spec: SloFile, prices: Prices) -> tuple[RuleGroup, ...]:
    """Cost, tokens and requests of each step, and prices from their sums.

    Money and counts are recorded together, so that a price is correct in the first hour and after a change of price.
    """
    lengths = windows(spec)
    return (
        RuleGroup("vllm-slo-cost-steps", lengths.step, tuple(_steps(spec, prices))),
        RuleGroup(
            "vllm-slo-cost",
            summed_interval(spec),
            tuple(rule for length in (lengths.dozen, lengths.day) for rule in _window(length, prices)),
        ),
    )


def _steps(spec: SloFile, prices: Prices) -> Iterator[Recording]:
    """A step without tokens from any source is idle, also while no scrape succeeds."""
    money, nothing = _constant(spec, prices.hour * windows(spec).step / 3600), _constant(spec, 0)
    counts = (_count(counters.output, spec) for counters in SOURCES)
    idle = f"{money} unless on () {in_window(signals.COST_TOKENS_IN, STEP)}"
    yield windowed(signals.COST_IN, STEP, money)
    yield windowed(signals.COST_TOKENS_IN, STEP, "\nor ".join(f"({count} > 0)" for count in counts))
    yield step_count(signals.GOODPUT_REQUESTS, signals.COST_GOOD_IN, spec)
    yield windowed(signals.COST_IDLE_IN, STEP, f"({idle}) or {nothing}")
    if prices.api:
        by_source = (_api_money(counters, prices.api, spec) for counters in SOURCES)
        yield windowed(signals.COST_API_IN, STEP, "\nor ".join(by_source))


def _api_money(counters: TokenCounters, price: ApiPrice, spec: SloFile) -> str:
    """The price of the step's tokens, if this source counts output tokens, as in the count of output tokens."""
    output, prompt, cached = (_count(counter, spec) for counter in counters)
    terms = [f"{number(price.completion)} * {output}", f"{number(price.prompt)} * ({prompt} or 0 * {output})"]
    if price.cached < price.prompt:
        terms.append(f"{number(price.cached - price.prompt)} * ({cached} or 0 * {output})")
    return f"(1e-6 * ({' + '.join(terms)}) and on () {output} > 0)"


def _count(counter: Signal, spec: SloFile) -> str:
    return step_count(counter, signals.COST_TOKENS_IN, spec).expr


def _constant(spec: SloFile, value: float) -> str:
    """The value, or with `group_by` the value for each group that has a target."""
    return f"{number(value)} * group by () ({targets_up(spec)})" if spec.group_by else f"vector({number(value)})"


def _window(length: float, prices: Prices) -> Iterator[Recording]:
    window = spell_duration(length)
    api = (signals.COST_API_IN,) if prices.api else ()
    for series in (signals.COST_IN, signals.COST_IDLE_IN, signals.COST_TOKENS_IN, signals.COST_GOOD_IN, *api):
        # A millisecond less, as Prometheus 2 includes both ends of a range.
        steps = f"{in_window(series, STEP)}[{spell_duration(length - 0.001)}]"
        yield windowed(series, window, f"sum_over_time({steps})")
    money, tokens, good = (
        in_window(series, window) for series in (signals.COST_IN, signals.COST_TOKENS_IN, signals.COST_GOOD_IN)
    )
    yield windowed(signals.COST_PER_MILLION, window, f"1e6 * {ratio(money, tokens)}")
    yield windowed(signals.COST_PER_GOOD, window, ratio(money, good))
    if prices.api:
        api_money = in_window(signals.COST_API_IN, window)
        yield windowed(signals.COST_API_PER_MILLION, window, f"1e6 * {ratio(api_money, tokens)}")
