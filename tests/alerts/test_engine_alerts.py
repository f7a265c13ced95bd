"""Causes inside an engine: each alert fires on it, is silent on what only looks like it, and ends."""

import pytest

from exporters.slos import SloFile, load
from tests.support.promtool import ROOT, Case, Pace, Promtool, constant, counter

QUEUE, KV, CACHE, RESTARTS = "LLMQueueSaturated", "LLMKVCacheFull", "LLMPrefixCacheCollapse", "LLMEngineRestarts"
Phase = tuple[float, float]


def gauge(pace: Pace, *phases: Phase) -> str:
    """A phase is steps and the value."""
    return " ".join(constant(value, pace.scrapes(steps) - 1) for steps, value in phases)


def grows(pace: Pace, *phases: Phase) -> str:
    """A phase is steps and growth per scrape."""
    return counter(*((each, pace.scrapes(steps)) for steps, each in phases))


def series_with_labels(series: str, engine: str) -> str:
    return f'{series}{{instance="{engine}",engine="{engine}",rank="0",model="org/m"}}'


def which(alert: str) -> str:
    return f'sum by (engine) (ALERTS{{alertname="{alert}",alertstate="firing",severity="ticket"}})'


def test_a_queue_longer_than_the_batch_fires_after_a_while(promtool: Promtool, pace: Pace) -> None:
    waiting, running = "llm_engine_requests_waiting", "llm_engine_requests_running"
    series = {
        series_with_labels(waiting, "full"): gauge(pace, (4, 0), (5, 40), (6, 2)),
        series_with_labels(running, "full"): gauge(pace, (15, 16)),
        series_with_labels(waiting, "soon over"): gauge(pace, (4, 0), (1, 40), (10, 2)),
        series_with_labels(running, "soon over"): gauge(pace, (15, 16)),
        series_with_labels(waiting, "shorter"): gauge(pace, (4, 0), (11, 12)),
        series_with_labels(running, "shorter"): gauge(pace, (15, 16)),
        series_with_labels(waiting, "works on nothing"): gauge(pace, (15, 40)),
        series_with_labels(running, "works on nothing"): gauge(pace, (15, 0)),
    }
    case = Case(pace.spec, series, pace.step / 5)
    case.expect(pace.seconds(5.8), which(QUEUE), {}).expect(pace.seconds(8.8), which(QUEUE), {'{engine="full"}': 1})
    promtool.test([case.expect(pace.seconds(13), which(QUEUE), {})])


def test_a_full_kv_cache_fires_only_when_requests_are_put_back(promtool: Promtool, pace: Pace) -> None:
    usage, preemptions = "llm_engine_kv_cache_usage_ratio", "llm_engine_preemptions_total"
    series = {
        series_with_labels(usage, "thrashes"): gauge(pace, (4, 0.5), (6, 0.98), (8, 0.6)),
        series_with_labels(preemptions, "thrashes"): grows(pace, (4, 0), (6, 1), (8, 0)),
        series_with_labels(usage, "only full"): gauge(pace, (18, 0.99)),
        series_with_labels(preemptions, "only full"): grows(pace, (18, 0)),
        series_with_labels(usage, "not full"): gauge(pace, (18, 0.7)),
        series_with_labels(preemptions, "not full"): grows(pace, (18, 1)),
        series_with_labels(usage, "once in a while"): gauge(pace, (18, 0.97)),
        series_with_labels(preemptions, "once in a while"): counter((0, pace.scrapes(7)), (4, 1), (0, pace.scrapes(8))),
    }
    case = Case(pace.spec, series, pace.step).expect(pace.seconds(4), which(KV), {})
    case.expect(pace.seconds(9), which(KV), {'{engine="thrashes"}': 1})
    promtool.test([case.expect(pace.seconds(17), which(KV), {})])


def cached(pace: Pace, engine: str, *phases: tuple[float, float, float], requests: float = 10) -> dict[str, str]:
    """A phase is steps, prompt tokens per scrape and the share of them found in the cache."""
    ended = f'llm_requests_total{{instance="{engine}",model="org/{engine}",class="siso",outcome="ok",tenant="other"}}'
    hits, prompt = (
        f'{name}{{instance="{engine}",engine="{engine}",rank="0",model="org/{engine}"}}'
        for name in ("llm_engine_prefix_cache_hits_tokens_total", "llm_engine_prompt_tokens_total")
    )
    return {
        ended: grows(pace, *((steps, requests) for steps, _, _ in phases)),
        hits: grows(pace, *((steps, tokens * share) for steps, tokens, share in phases)),
        prompt: grows(pace, *((steps, tokens) for steps, tokens, _ in phases)),
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
    case = Case(pace.spec, series, pace.step).expect(pace.seconds(300), which(CACHE), {})
    case.expect(pace.seconds(313), which(CACHE), {'{engine="off"}': 1})
    promtool.test([case.expect(pace.seconds(329), which(CACHE), {})])


@pytest.mark.parametrize("starts,fires", [(1, False), (2, False), (3, True)])
def test_three_restarts_fire_by_start_time_or_by_counters_that_begin_again(
    promtool: Promtool, pace: Pace, starts: int, fires: bool
) -> None:
    """A start is seen as a new start time; an engine that tells none is seen by its counters."""
    tokens = series_with_labels("llm_engine_generation_tokens_total", "silent")
    series = {
        'llm_engine_start_time_seconds{instance="told",engine="told"}': gauge(
            pace, *((2, 100 * start) for start in range(starts)), (120, 100 * starts)
        ),
        series_with_labels("llm_engine_generation_tokens_total", "told"): grows(pace, (120, 5)),
        tokens: " ".join(counter((5, pace.scrapes(2) - 1)) for _ in range(starts)) + f" {grows(pace, (100, 5))}",
    }
    at, over = pace.seconds(2 * starts + 4), pace.seconds(2 * starts + 80)
    firing = {'{engine="told"}': 1.0, '{engine="silent"}': 1.0} if fires else {}
    case = Case(pace.spec, series, pace.step).expect(at, which(RESTARTS), firing)
    promtool.test([case.expect(over, which(RESTARTS), {})])


def test_what_is_not_measured_raises_nothing(promtool: Promtool, spec: SloFile) -> None:
    """An engine of which only the queue is known."""
    pace = Pace(spec)
    series = {series_with_labels("llm_engine_requests_waiting", "e"): gauge(pace, (10, 50))}
    promtool.test([Case(spec, series, pace.step).expect_silent(pace.seconds(10))])
