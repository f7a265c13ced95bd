"""Without a sidecar, vLLM's own histograms burn the same budgets, in every spelling of Prometheus."""

import re

from alerts.plan import Plan
from alerts.rule_file import render
from exporters.engines.vllm_buckets import NEWEST, OLDEST
from exporters.vocabulary.slo_file import loads
from tests.alerts.firing import burning, firing
from tests.contract.expositions import DATA
from tests.support.promtool import Case, Pace, Promtool, constant, counter
from tests.support.slo_files import ENGINE_ONLY, engine_only

BURN, LOW, DOWN, STALLED = "LLMErrorBudgetBurn", "LLMErrorBudgetLowTraffic", "LLMEngineDown", "LLMEngineWedged"
UNMEASURED = "LLMSLOUnmeasured"

SPEC = loads(ENGINE_ONLY)
PAGE = burning(SPEC, "fast-page", "model", slo="ttft")
ENGINE = 'job="vllm",instance="v:8000"'


def pace() -> Pace:
    return Pace(SPEC).coarse


def scraped(
    at: Pace,
    *phases: tuple[float, float, float],
    model: str = "org/m",
    family: str = "vllm:time_to_first_token_seconds",
    le: str = "1.0",
) -> dict[str, str]:
    """Count and bucket of one histogram; a phase is steps, requests per scrape, share of slow ones."""
    labels = f'{ENGINE},engine="0",model_name="{model}"'
    good = [(rate * (1 - slow), at.scrapes(steps)) for steps, rate, slow in phases]
    return {
        f"{family}_count{{{labels}}}": counter(*((rate, at.scrapes(steps)) for steps, rate, _ in phases), start=1000),
        f'{family}_bucket{{{labels},le="{le}"}}': counter(*good, start=900),
    }


def up(at: Pace, steps: float) -> dict[str, str]:
    return {f"up{{{ENGINE}}}": constant(1, at.scrapes(steps))}


def case(at: Pace, series: dict[str, str]) -> Case:
    return Case(at.spec, series, at.spec.scrape_interval, sidecar_is_up=False)


SPELLINGS = {
    "as exposed by Python, and stored by Prometheus 3": ("vllm:time_to_first_token_seconds", "1.0"),
    "a whole number as stored by Prometheus 2": ("vllm:time_to_first_token_seconds", "1"),
    "OpenMetrics of the Python client, without the colon": ("vllm_time_to_first_token_seconds", "1.0"),
}


def test_slow_requests_page_above_the_factor_and_the_page_ends(promtool: Promtool) -> None:
    """A model for each spelling of the histogram."""
    at = pace()
    series = up(at, 30)
    for model, (family, le) in SPELLINGS.items():
        for where, slow in (("above", 0.75), ("below", 0.69)):
            phases = (14, 100, 0), (12, 100, slow), (4, 100, 0)
            series |= scraped(at, *phases, model=f"{where}: {model}", family=family, le=le)
    pages = {f'{{model="above: {model}"}}': 1.0 for model in SPELLINGS}
    burning = case(at, series).expect(at.seconds(14), PAGE, {}).expect(at.seconds(26), PAGE, pages)
    promtool.test([burning.expect(at.seconds(29), PAGE, {}).expect_silent(at.seconds(29), UNMEASURED, slo="ttft")])


def test_the_series_of_the_sidecar_have_the_counts_of_the_histogram(promtool: Promtool) -> None:
    """Two ranks of one engine and a second engine with a counter reset are summed."""
    at = pace()
    rank = {name.replace('engine="0"', 'engine="1"'): values for name, values in scraped(at, (14, 30, 0.2)).items()}
    again = {
        name.replace("v:8000", "w:8000"): f"{values} {counter((10, at.scrapes(2)))}"
        for name, values in scraped(at, (11.8, 10, 0)).items()
    }
    labels = 'class="all",model="org/m",slo="ttft",window="1h"'
    counts = case(at, {**scraped(at, (14, 10, 0.5)), **rank, **again, **up(at, 14)})
    hour = at.scrapes(12)
    # Events after the last scrape before the reset are missing.
    missing = f"{50 * hour} - llm_slo:events:increase{{{labels}}}"
    # 10, and the extrapolation from 59 scrapes.
    counts.expect(at.seconds(13), f"count({missing} <= 11)", {"{}": 1})
    counts.expect(at.seconds(13), f"round(llm_slo:bad_events:increase{{{labels}}})", {f"{{{labels}}}": 11 * hour})
    promtool.test([counts])


def test_the_error_ratio_matches_a_real_exposition(promtool: Promtool) -> None:
    """VLLM 0.25.1 under overload: 57 of 251 first tokens within a second, 85 of 219 requests within 30 s."""
    at = pace()
    series = up(at, 16)
    for line in (DATA / "vllm-0.25.1.txt").read_text().splitlines():
        if match := re.fullmatch(r"(vllm:\w+|process_\w+)\{?([^{}]*)\}? (\S+)", line):
            name, labels, value = match.groups()
            grown = f"0x{at.scrapes(8)} {float(value):.12g}x{at.scrapes(8)}"
            series[f"{name}{{{','.join(filter(None, (labels, ENGINE)))}}}"] = grown
    ratios = case(at, series)
    for slo, bad in (("ttft", 1 - 57 / 251), ("e2e", 1 - 85 / 219)):
        ratio = f'round(llm_slo:bad_events:ratio{{slo="{slo}",window="1h"}}, 0.0001)'
        ratios.expect(at.seconds(12), ratio, {f'{{class="all",model="m",slo="{slo}",window="1h"}}': round(bad, 4)})
    within = 'round(llm_goodput:requests:ratio_at_%s{window="1h"}, 0.0001)'
    ratios.expect(at.seconds(12), within % "least", {'{class="all",model="m",window="1h"}': 0})
    ratios.expect(at.seconds(12), within % "most", {'{class="all",model="m",window="1h"}': round(57 / 251, 4)})
    ratios.expect(at.seconds(12), "llm_engine_requests_waiting", {
        f'llm_engine_requests_waiting{{{ENGINE},engine="v:8000",rank="0",model="m",model_name="m"}}': 475
    })  # fmt: skip
    promtool.test([ratios])


def test_an_outage_burns_no_budget_and_pages_as_down_or_stalled(promtool: Promtool) -> None:
    at = pace()
    began = Plan.of(SPEC).cold_start / at.step + 2
    length = began + 8
    busy = [(began, 40, 0.0), (8, 0, 0.0)]
    state = {
        f'vllm:num_requests_running{{{ENGINE},engine="0",model_name="org/m"}}': constant(3, at.scrapes(length)),
        f'vllm:generation_tokens_total{{{ENGINE},engine="0",model_name="org/m"}}': counter(
            (50, at.scrapes(began)), (0, at.scrapes(8))
        ),
    }
    stalls = case(at, {**scraped(at, *busy), **state, **up(at, length)})
    stalls.expect_silent(at.seconds(began), STALLED).expect_firing(at.seconds(length - 1), STALLED)
    dead = case(at, {f"up{{{ENGINE}}}": f"{constant(1, at.scrapes(began))} {constant(0, at.scrapes(8))}"})
    dead.expect_silent(at.seconds(began), DOWN).expect_firing(at.seconds(length - 1), DOWN)
    for each in (stalls, dead):
        each.expect_silent(at.seconds(length - 1), BURN)
    promtool.test([stalls, dead])


def test_a_long_start_pages_only_if_no_other_engine_serves_the_model(promtool: Promtool) -> None:
    at, plan = pace(), Plan.of(pace().spec)
    before, loads, after = 20, round(0.8 * plan.cold_start / at.spec.scrape_interval), 20
    labels = 'engine="0",model_name="org/m"'

    def replica(instance: str, *runs: str) -> dict[str, str]:
        here = f'job="vllm",instance="{instance}"'
        return {f"up{{{here}}}": " ".join(runs), f"vllm:num_requests_running{{{here},{labels}}}": "0x1000"}

    restarts = constant(1, before - 1), constant(0, loads - 1), constant(1, after)
    begun, limit = before * at.spec.scrape_interval, plan.warm_up + plan.down_after
    alone = case(at, replica("a", *restarts)).expect_silent(begun + plan.warm_up - at.spec.scrape_interval, DOWN)
    alone.expect_firing(begun + limit + 2 * at.spec.scrape_interval, DOWN)
    of_two = case(at, replica("a", *restarts) | replica("b", "1x1000"))
    for scrape in range(before, before + loads + after, 2):
        of_two.expect_silent(scrape * at.spec.scrape_interval, DOWN)
    promtool.test([alone, of_two])


def test_an_engine_that_is_not_scraped_pages(promtool: Promtool) -> None:
    missing = case(pace(), {}).expect_firing(Plan.of(pace().spec).down_after + 3 * pace().spec.scrape_interval, DOWN)
    promtool.test([missing])


def test_a_missing_bucket_raises_a_ticket_and_records_no_events(promtool: Promtool) -> None:
    at = pace()
    other = scraped(at, (6, 100, 0.5), le="1.5") | scraped(at, (6, 9, 0), family="vllm:e2e_request_latency_seconds")
    series = case(at, {**other, **up(at, 6)})
    series.expect(at.seconds(4), firing(UNMEASURED, "slo", severity="ticket"), {'{slo="ttft"}': 1, '{slo="e2e"}': 1})
    promtool.test([series.expect(at.seconds(4), "llm_slo_events_total", {})])


def test_promtool_accepts_the_rules_for_every_release(promtool: Promtool) -> None:
    for version in (OLDEST, "0.9.2", NEWEST):
        promtool.check(render(engine_only(version)))
