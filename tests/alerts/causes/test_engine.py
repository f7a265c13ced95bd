"""Alerts on causes inside an engine: each fires, stays silent on similar states, and ends."""

import pytest

from exporters.vocabulary.slo_file import SloFile, load
from tests.alerts.firing import firing
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


def tickets(alert: str) -> str:
    return firing(alert, "engine", severity="ticket")


def test_a_queue_longer_than_the_batch_fires_after_a_while(promtool: Promtool, pace: Pace) -> None:
    waiting, running = "llm_engine_requests_waiting", "llm_engine_requests_running"
    series = {
        series_with_labels(waiting, "full"): gauge(pace, (4, 0), (5, 40), (6, 2)),
        series_with_labels(running, "full"): gauge(pace, (15, 16)),
        series_with_labels(waiting, "short queue"): gauge(pace, (4, 0), (1, 40), (10, 2)),
        series_with_labels(running, "short queue"): gauge(pace, (15, 16)),
        series_with_labels(waiting, "shorter"): gauge(pace, (4, 0), (11, 12)),
        series_with_labels(running, "shorter"): gauge(pace, (15, 16)),
        series_with_labels(waiting, "nothing runs"): gauge(pace, (15, 40)),
        series_with_labels(running, "nothing runs"): gauge(pace, (15, 0)),
    }
    case = Case(pace.spec, series, pace.step / 5)
    case.expect(pace.seconds(5.8), tickets(QUEUE), {}).expect(pace.seconds(8.8), tickets(QUEUE), {'{engine="full"}': 1})
    promtool.test([case.expect(pace.seconds(13), tickets(QUEUE), {})])


def test_a_full_kv_cache_fires_only_with_preemptions(promtool: Promtool, pace: Pace) -> None:
    usage, preemptions = "llm_engine_kv_cache_usage_ratio", "llm_engine_preemptions_total"
    series = {
        series_with_labels(usage, "thrashes"): gauge(pace, (4, 0.5), (6, 0.98), (8, 0.6)),
        series_with_labels(preemptions, "thrashes"): grows(pace, (4, 0), (6, 1), (8, 0)),
        series_with_labels(usage, "only full"): gauge(pace, (18, 0.99)),
        series_with_labels(preemptions, "only full"): grows(pace, (18, 0)),
        series_with_labels(usage, "not full"): gauge(pace, (18, 0.7)),
        series_with_labels(preemptions, "not full"): grows(pace, (18, 1)),
        series_with_labels(usage, "few preemptions"): gauge(pace, (18, 0.97)),
        series_with_labels(preemptions, "few preemptions"): counter((0, pace.scrapes(7)), (4, 1), (0, pace.scrapes(8))),
    }
    case = Case(pace.spec, series, pace.step).expect(pace.seconds(4), tickets(KV), {})
    case.expect(pace.seconds(9), tickets(KV), {'{engine="thrashes"}': 1})
    promtool.test([case.expect(pace.seconds(17), tickets(KV), {})])


def cached(pace: Pace, engine: str, *phases: tuple[float, float, float], requests: float = 10) -> dict[str, str]:
    """A phase is steps, prompt tokens per scrape and the hit ratio."""
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


def test_less_than_half_of_last_weeks_hit_ratio_fires(promtool: Promtool) -> None:
    pace = Pace(load(ROOT / "alerts/slos.yaml"))
    series = {
        **cached(pace, "off", (300, 1000, 0.6), (14, 1000, 0), (16, 1000, 0.6)),
        **cached(pace, "less", (300, 1000, 0.6), (30, 1000, 0.4)),
        **cached(pace, "always-low", (300, 1000, 0.06), (30, 1000, 0)),
        **cached(pace, "little-traffic", (300, 1000, 0.6), (30, 1000, 0), requests=0.02),
        **cached(pace, "no-baseline-yet", (250, 1000, 0.6), (30, 1000, 0)),
    }
    case = Case(pace.spec, series, pace.step).expect(pace.seconds(300), tickets(CACHE), {})
    case.expect(pace.seconds(313), tickets(CACHE), {'{engine="off"}': 1})
    promtool.test([case.expect(pace.seconds(329), tickets(CACHE), {})])


@pytest.mark.parametrize(
    "starts,failed,fires",
    [(1, 1, False), (2, 1, False), (3, 1, True), (3, 0, False), (5, 0, False), (6, 0, True)],
)
def test_three_restarts_with_failed_requests_or_six_fire_by_start_time_or_by_counter_resets(
    promtool: Promtool, pace: Pace, starts: int, failed: float, fires: bool
) -> None:
    """A start changes the start time; without a start time, it resets the counters."""
    tokens = series_with_labels("llm_engine_generation_tokens_total", "counters")
    series = {
        'llm_engine_start_time_seconds{instance="start-time",engine="start-time"}': gauge(
            pace, *((2, 100 * start) for start in range(starts)), (120, 100 * starts)
        ),
        series_with_labels("llm_engine_generation_tokens_total", "start-time"): grows(pace, (120, 5)),
        tokens: " ".join(counter((5, pace.scrapes(2) - 1)) for _ in range(starts)) + f" {grows(pace, (100, 5))}",
        **{
            f'llm_requests_total{{instance="{each}",model="org/m",class="siso",outcome="truncated",tenant="other"}}': (
                grows(pace, (2 * starts, failed), (100, 0))
            )
            for each in ("start-time", "counters")
        },
    }
    at, over = pace.seconds(2 * starts + 4), pace.seconds(2 * starts + 80)
    firing = {'{engine="start-time"}': 1.0, '{engine="counters"}': 1.0} if fires else {}
    case = Case(pace.spec, series, pace.step).expect(at, tickets(RESTARTS), firing)
    promtool.test([case.expect(over, tickets(RESTARTS), {})])


def test_missing_series_raise_no_alert(promtool: Promtool, spec: SloFile) -> None:
    """An engine that exposes only its queue."""
    pace = Pace(spec)
    series = {series_with_labels("llm_engine_requests_waiting", "e"): gauge(pace, (10, 50))}
    promtool.test([Case(spec, series, pace.step).expect_silent(pace.seconds(10))])
