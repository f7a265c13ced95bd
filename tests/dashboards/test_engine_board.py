"""The results of the queries of the dashboard "Engine" for one engine."""

import pytest

from dashboards.boards.engine import BOARD
from exporters.slos import SHIPPED, load
from tests.dashboards.dashboard_files import expanded_queries, page_of
from tests.support.promtool import Case, Promtool, constant, counter

PAGE = page_of(BOARD)
SCRAPES = 240
AT = 15.0 * (SCRAPES - 2)
WHO = 'engine="e:1",instance="s:1"'
RANK, MODEL = f'{WHO},rank="0"', f'{WHO},rank="0",model="m"'


def assert_rows(series: dict[str, str], title: str, legend: str, rows: dict[str, float], promtool: Promtool) -> None:
    """Assert the rows of a query of a panel."""
    case = Case(load(SHIPPED), series, 15).expect(AT, f"round({expanded_queries(PAGE, title)[legend]}, 0.001)", rows)
    promtool.test([case])


@pytest.mark.lab
@pytest.mark.parametrize(
    "hits, computed", [pytest.param(15, 2.0, id="a third is cached"), pytest.param(None, 3.0, id="no such counter")]
)
def test_computed_prompt_tokens_exclude_cached_tokens(promtool: Promtool, hits: int | None, computed: float) -> None:
    series = {f"llm_engine_prompt_tokens_total{{{MODEL}}}": counter((45, SCRAPES))}
    if hits is not None:
        series[f"llm_engine_prefix_cache_hits_tokens_total{{{MODEL}}}"] = counter((hits, SCRAPES))
    legend = "{{engine}} at {{instance}}"
    assert_rows(series, "Prompt tokens computed", legend, {f"{{{WHO}}}": computed}, promtool)


@pytest.mark.lab
def test_kv_tokens_are_usage_times_capacity_per_rank(promtool: Promtool) -> None:
    series = {
        f"llm_engine_kv_cache_usage_ratio{{{MODEL}}}": constant(0.25, SCRAPES),
        f"llm_engine_kv_cache_capacity_tokens{{{RANK}}}": constant(1000, SCRAPES),
    }
    legend = "in use: {{engine}} rank {{rank}} at {{instance}}"
    assert_rows(series, "KV cache in tokens", legend, {f"{{{RANK}}}": 250}, promtool)


@pytest.mark.lab
def test_restarts_are_changes_of_the_start_time(promtool: Promtool) -> None:
    series = {f"llm_engine_start_time_seconds{{{WHO}}}": "100x80 900x80 _x10 2000x80"}
    assert_rows(series, "Restarts in range", "{{engine}}", {f"{{{WHO}}}": 2}, promtool)


@pytest.mark.lab
def test_settings_that_are_none_are_left_out(promtool: Promtool) -> None:
    series = {
        f'llm_engine_setting_info{{{WHO},setting="{setting}",value="{value}"}}': constant(1, SCRAPES)
        for setting, value in (("block_size", "16"), ("sliding_window", "None"))
    }
    rows = {f'{{{WHO},setting="block_size",value="16"}}': 1.0}
    assert_rows(series, "Settings", "Setting, Value, Engine, Sidecar", rows, promtool)


@pytest.mark.lab
def test_only_signals_that_the_engine_lacks_are_listed(promtool: Promtool) -> None:
    series = {
        f'llm_engine_signal_exposed{{{WHO},signal="{signal}"}}': constant(exposed, SCRAPES)
        for signal, exposed in (("llm_engine_requests_running", 1), ("llm_engine_requests_deferred", 0))
    }
    rows = {f'{{{WHO},signal="llm_engine_requests_deferred"}}': 0.0}
    assert_rows(series, "This engine does not expose", "Series, Engine, Sidecar", rows, promtool)
