"""Recording rules for the cost of output tokens and good requests, from the prices of a GPU hour and of an API."""

from collections.abc import Iterator
from typing import NamedTuple

from alerts.plan import STEP, Plan
from alerts.prices import ApiPrice, Prices
from alerts.promql.build import aggregate, call, either, in_window, on, over, ratio
from alerts.promql.expression import Expression
from alerts.recording.steps import any_window, increase_of_steps, step_count
from alerts.rules.groups import Recording, RuleGroup, windowed
from alerts.scrape_jobs import targets_up
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Kind, Signal


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
"""Sources of tokens by priority: relay, engine (for traffic that bypasses the relay), vLLM itself."""


def cost_groups(plan: Plan, prices: Prices) -> tuple[RuleGroup, ...]:
    """Cost, tokens and requests of each step, and prices from their sums.

    Money and counts are recorded together, so that a price is correct in the first hour and after a change of price.
    """
    return (
        RuleGroup("vllm-slo-cost-steps", plan.step, tuple(_steps(plan, prices))),
        RuleGroup(
            "vllm-slo-cost",
            plan.summed_interval,
            tuple(rule for length in (plan.dozen, plan.day) for rule in _window(plan, length, prices)),
        ),
    )


def _steps(plan: Plan, prices: Prices) -> Iterator[Recording]:
    """A step without tokens from any source is idle, also while no scrape succeeds."""
    money, nothing = _constant(plan, prices.hour * plan.step / 3600), _constant(plan, 0)
    tokens = either(_count(each.output, plan) > 0 for each in SOURCES)
    yield windowed(signals.COST_IN, STEP, money)
    yield windowed(signals.COST_TOKENS_IN, STEP, tokens)
    if plan.has_sidecar:
        yield step_count(signals.GOODPUT_REQUESTS, signals.COST_GOOD_IN, plan)
    # Not unless the recorded tokens, which VictoriaMetrics shows to the next step.
    yield windowed(signals.COST_IDLE_IN, STEP, money.unless(tokens, on()).or_(nothing))
    if prices.api:
        by_source = (_api_money(counters, prices.api, plan) for counters in SOURCES)
        yield windowed(signals.COST_API_IN, STEP, either(by_source))


def _api_money(counters: TokenCounters, price: ApiPrice, plan: Plan) -> Expression:
    """The price of the step's tokens, if this source counts output tokens, as in the count of output tokens."""
    none = _count(counters.output, plan, 0)
    money = _count(counters.output, plan, price.completion)
    money += price.prompt * _count(counters.prompt, plan).or_(none)
    if price.cached < price.prompt:
        money += (price.cached - price.prompt) * _count(counters.cached, plan).or_(none)
    return (1e-6 * money).and_(_count(counters.output, plan) > 0, on())


def _count(counter: Signal, plan: Plan, price: float | None = None) -> Expression:
    return increase_of_steps(1, counter, signals.COST_TOKENS_IN, plan, price=price)


def _constant(plan: Plan, value: float) -> Expression:
    """The value, or with `group_by` the value for each group that has a target."""
    return value * aggregate("group", targets_up(plan), by=[]) if plan.spec.group_by else call("vector", value)


def _window(plan: Plan, length: float, prices: Prices) -> Iterator[Recording]:
    api = (signals.COST_API_IN,) if prices.api else ()
    good = (signals.COST_GOOD_IN,) if plan.has_sidecar else ()
    for series in (signals.COST_IN, signals.COST_IDLE_IN, signals.COST_TOKENS_IN, *good, *api):
        # A millisecond less, as Prometheus 2 includes both ends of a range.
        yield windowed(series, length, any_window(over("sum_over_time", in_window(series, STEP), length - 0.001)))
    money, tokens = (in_window(series, length) for series in (signals.COST_IN, signals.COST_TOKENS_IN))
    yield windowed(signals.COST_PER_MILLION, length, ratio(1e6 * money, tokens))
    if plan.has_sidecar:
        yield windowed(signals.COST_PER_GOOD, length, ratio(money, in_window(signals.COST_GOOD_IN, length)))
    if prices.api:
        api_money = in_window(signals.COST_API_IN, length)
        yield windowed(signals.COST_API_PER_MILLION, length, ratio(1e6 * api_money, tokens))
