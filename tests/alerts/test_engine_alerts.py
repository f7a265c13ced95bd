"""Causes inside an engine: each alert fires on it, is silent on what only looks like it, and ends."""

import pytest

from exporters.slos import SloFile, load
from tests.support.promtool import ROOT, Case, Pace, Promtool, constant, counter

QUEUE, KV, CACHE, RESTARTS = "LLMQueueSaturated", "LLMKVCacheFull", "LLMPrefixCacheCollapse", "LLMEngineRestarts"
Chapter = tuple[float, float]


def gauge(pace: Pace, *story: Chapter) -> str:
    """A chapter is steps and the value."""
    return " ".join(constant(value, pace.scrapes(steps) - 1) for steps, value in story)


def grows(pace: Pace, *story: Chapter) -> str:
    """A chapter is steps and growth per scrape."""
    return counter(*((each, pace.scrapes(steps)) for steps, each in story))


def named(series: str, engine: str) -> str:
    return f'{series}{{instance="{engine}",engine="{engine}",rank="0",model="org/m"}}'


def which(alert: str) -> str:
    return f'sum by (engine) (ALERTS{{alertname="{alert}",alertstate="firing",severity="ticket"}})'


def test_a_queue_longer_than_the_batch_fires_after_a_while(promtool: Promtool, pace: Pace) -> None:
    waiting, running = "llm_engine_requests_waiting", "llm_engine_requests_running"
    series = {
        named(waiting, "full"): gauge(pace, (4, 0), (5, 40), (6, 2)),
        named(running, "full"): gauge(pace, (15, 16)),
        named(waiting, "soon over"): gauge(pace, (4, 0), (1, 40), (10, 2)),
        named(running, "soon over"): gauge(pace, (15, 16)),
        named(waiting, "shorter"): gauge(pace, (4, 0), (11, 12)),
        named(running, "shorter"): gauge(pace, (15, 16)),
        named(waiting, "works on nothing"): gauge(pace, (15, 40)),
        named(running, "works on nothing"): gauge(pace, (15, 0)),
    }
    case = Case(pace.spec, series, pace.step / 5)
    case.gives(pace.seconds(5.8), which(QUEUE), {}).gives(pace.seconds(8.8), which(QUEUE), {'{engine="full"}': 1})
    promtool.test([case.gives(pace.seconds(13), which(QUEUE), {})])


def test_a_full_kv_cache_fires_only_when_requests_are_put_back(promtool: Promtool, pace: Pace) -> None:
    usage, preemptions = "llm_engine_kv_cache_usage_ratio", "llm_engine_preemptions_total"
    series = {
        named(usage, "thrashes"): gauge(pace, (4, 0.5), (6, 0.98), (8, 0.6)),
        named(preemptions, "thrashes"): grows(pace, (4, 0), (6, 1), (8, 0)),
        named(usage, "only full"): gauge(pace, (18, 0.99)),
        named(preemptions, "only full"): grows(pace, (18, 0)),
        named(usage, "not full"): gauge(pace, (18, 0.7)),
        named(preemptions, "not full"): grows(pace, (18, 1)),
        named(usage, "once in a while"): gauge(pace, (18, 0.97)),
        named(preemptions, "once in a while"): counter((0, pace.scrapes(7)), (4, 1), (0, pace.scrapes(8))),
    }
    case = Case(pace.spec, series, pace.step).gives(pace.seconds(4), which(KV), {})
    case.gives(pace.seconds(9), which(KV), {'{engine="thrashes"}': 1})
    promtool.test([case.gives(pace.seconds(17), which(KV), {})])


def cached(pace: Pace, engine: str, *story: tuple[float, float, float], requests: float = 10) -> dict[str, str]:
    """A chapter is steps, prompt tokens per scrape and the share of them found in the cache."""
    asked = f'llm_requests_total{{instance="{engine}",model="org/{engine}",class="siso",outcome="ok",tenant="other"}}'
    hits, prompt = (
        f'{name}{{instance="{engine}",engine="{engine}",rank="0",model="org/{engine}"}}'
        for name in ("llm_engine_prefix_cache_hits_tokens_total", "llm_engine_prompt_tokens_total")
    )
    return {
        asked: grows(pace, *((steps, requests) for steps, _, _ in story)),
        hits: grows(pace, *((steps, tokens * share) for steps, tokens, share in story)),
        prompt: grows(pace, *((steps, tokens) for steps, tokens, _ in story)),
    }


def test_a_cache_that_finds_less_than_half_of_last_weeks_share_fires(promtool: Promtool) -> None:
    pace = Pace(load(ROOT / "alerts/slos.yaml"))
    series = {
        **cached(pace, "off", (300, 1000, 0.6), (14, 1000, 0), (16, 1000, 0.6)),
        **cached(pace, "less", (300, 1000, 0.6), (30, 1000, 0.4)),
        **cached(pace, "never-worth-it", (300, 1000, 0.06), (30, 1000, 0)),
        **cached(pace, "hardly-asked", (300, 1000, 0.6), (30, 1000, 0), requests=0.02),
        **cached(pace, "not-known-for-a-day", (250, 1000, 0.6), (30, 1000, 0)),
    }
    case = Case(pace.spec, series, pace.step).gives(pace.seconds(300), which(CACHE), {})
    case.gives(pace.seconds(313), which(CACHE), {'{engine="off"}': 1})
    promtool.test([case.gives(pace.seconds(329), which(CACHE), {})])


@pytest.mark.parametrize("starts,fires", [(1, False), (2, False), (3, True)])
def test_three_restarts_fire_by_start_time_or_by_counters_that_begin_again(
    promtool: Promtool, pace: Pace, starts: int, fires: bool
) -> None:
    """A start is seen as a new start time; an engine that tells none is seen by its counters."""
    tokens = named("llm_engine_generation_tokens_total", "silent")
    series = {
        'llm_engine_start_time_seconds{instance="told",engine="told"}': gauge(
            pace, *((2, 100 * start) for start in range(starts)), (120, 100 * starts)
        ),
        named("llm_engine_generation_tokens_total", "told"): grows(pace, (120, 5)),
        tokens: " ".join(counter((5, pace.scrapes(2) - 1)) for _ in range(starts)) + f" {grows(pace, (100, 5))}",
    }
    at, over = pace.seconds(2 * starts + 4), pace.seconds(2 * starts + 80)
    firing = {'{engine="told"}': 1.0, '{engine="silent"}': 1.0} if fires else {}
    case = Case(pace.spec, series, pace.step).gives(at, which(RESTARTS), firing)
    promtool.test([case.gives(over, which(RESTARTS), {})])


def test_what_is_not_measured_raises_nothing(promtool: Promtool, spec: SloFile) -> None:
    """An engine of which only the queue is known."""
    pace = Pace(spec)
    series = {named("llm_engine_requests_waiting", "e"): gauge(pace, (10, 50))}
    promtool.test([Case(spec, series, pace.step).silent(pace.seconds(10))])
