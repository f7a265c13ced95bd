"""The results of the queries of the dashboard "Engine" for one engine."""

import pytest

from dashboards.boards import slo_objective
from dashboards.boards.engine import BOARD
from dashboards.live.reader import panels_of
from exporters.engines.signal_table import SIGNALS
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Kind
from exporters.vocabulary.slo_file import SHIPPED, load
from tests.dashboards.dashboard_files import expanded_queries, page_of
from tests.support.dashboard_queries import series_in
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


@pytest.mark.parametrize(
    "hits, external_hits, computed",
    [
        pytest.param(15, None, 2.0, id="a third is cached"),
        pytest.param(None, None, 3.0, id="no such counter"),
        pytest.param(15, 30, 0.0, id="the rest is in an external cache"),
    ],
)
def test_computed_prompt_tokens_exclude_cached_tokens(
    promtool: Promtool, hits: int | None, external_hits: int | None, computed: float
) -> None:
    series = {f"llm_engine_prompt_tokens_total{{{MODEL}}}": counter((45, SCRAPES))}
    for name, each in (("prefix_cache_hits", hits), ("external_prefix_cache_hits", external_hits)):
        if each is not None:
            series[f"llm_engine_{name}_tokens_total{{{MODEL}}}"] = counter((each, SCRAPES))
    legend = "{{engine}} at {{instance}}"
    assert_rows(series, "Prompt tokens computed", legend, {f"{{{WHO}}}": computed}, promtool)


def test_a_row_of_the_worst_requests_has_their_command_and_the_runbook(promtool: Promtool) -> None:
    (query,) = expanded_queries(page_of(slo_objective.BOARD), "Worst requests").values()
    series = {
        f'llm_instance:slo_bad_events:ratio{{instance="{instance}",class="{name}",slo="ttft",window="5m"}}': each
        for instance, name, each in (
            ("s:1", "siso", "0.1x60 0.75x60 0x120"),
            ("s:2", "siso", constant(0.25, SCRAPES)),
            ("s:1", "lilo", constant(0, SCRAPES)),
        )
    }
    command = "vllm-slo requests --request-log requests.jsonl --class siso --slo ttft=bad --sort e2e_ms --limit 10"
    rows = {
        f'{{class="siso",class_name="siso",command="{command} --since -3600 --until 0",instance="{instance}",'
        'runbook="LLMErrorBudgetBurn",slo="ttft"}': share
        for instance, share in (("s:1", 0.75), ("s:2", 0.25))
    }
    promtool.test([Case(load(SHIPPED), series, 15).expect(AT, query, rows)])


def test_kv_tokens_are_usage_times_capacity_per_rank(promtool: Promtool) -> None:
    series = {
        f"llm_engine_kv_cache_usage_ratio{{{MODEL}}}": constant(0.25, SCRAPES),
        f"llm_engine_kv_cache_capacity_tokens{{{RANK}}}": constant(1000, SCRAPES),
    }
    legend = "in use: {{engine}}/{{rank}} at {{instance}}"
    assert_rows(series, "KV cache in tokens", legend, {f"{{{RANK}}}": 250}, promtool)


def test_restarts_are_changes_of_the_start_time(promtool: Promtool) -> None:
    series = {f"llm_engine_start_time_seconds{{{WHO}}}": "100x80 900x80 _x10 2000x80"}
    assert_rows(series, "Restarts in range", "{{engine}}", {f"{{{WHO}}}": 2}, promtool)


def test_settings_that_are_none_are_left_out(promtool: Promtool) -> None:
    series = {
        f'llm_engine_setting_info{{{WHO},setting="{setting}",value="{value}"}}': constant(1, SCRAPES)
        for setting, value in (("block_size", "16"), ("sliding_window", "None"))
    }
    rows = {f'{{{WHO},setting="block_size",value="16"}}': 1.0}
    assert_rows(series, "Settings", "Setting, Value, Engine, Sidecar", rows, promtool)


def test_only_signals_that_the_engine_lacks_are_listed(promtool: Promtool) -> None:
    series = {
        f'llm_engine_signal_exposed{{{WHO},signal="{signal}"}}': constant(exposed, SCRAPES)
        for signal, exposed in (("llm_engine_requests_running", 1), ("llm_engine_requests_deferred", 0))
    }
    rows = {f'{{{WHO},signal="llm_engine_requests_deferred"}}': 0.0}
    assert_rows(series, "Missing signals", "Series, Engine, Sidecar", rows, promtool)


def test_rejections_are_added_over_ranks_and_kept_by_reason(promtool: Promtool) -> None:
    series = {
        f'llm_engine_admission_rejections_total{{{WHO},rank="{rank}",model="m",reason="{reason}"}}': counter(
            (each, SCRAPES)
        )
        for rank in "01"
        for reason, each in (("max_num_queued_reqs", 15), ("max_num_queued_tokens", 30))
    }
    rows = {
        f'{{{WHO},reason="max_num_queued_reqs"}}': 2.0,
        f'{{{WHO},reason="max_num_queued_tokens"}}': 4.0,
    }
    assert_rows(series, "Admission rejections", "{{reason}}: {{engine}} at {{instance}}", rows, promtool)


def test_ranks_are_counted_by_their_current_sleep_state(promtool: Promtool) -> None:
    series = {
        f'llm_engine_sleep_state{{{MODEL},state="{state}"}}': constant(value, SCRAPES)
        for state, value in (("awake", 0), ("weights_offloaded", 1), ("discard_all", 0))
    }
    assert_rows(series, "Sleep state", "{{state}}", {'{state="weights_offloaded"}': 1.0}, promtool)


def test_prompt_tokens_are_shown_by_source(promtool: Promtool) -> None:
    series = {
        f'llm_engine_prompt_tokens_by_source_total{{{MODEL},source="{source}"}}': counter((each, SCRAPES))
        for source, each in (("local_compute", 45), ("external_kv_transfer", 15))
    }
    rows = {'{source="local_compute"}': 3.0, '{source="external_kv_transfer"}': 1.0}
    assert_rows(series, "Prompt tokens by source", "{{source}}", rows, promtool)


def test_requests_that_load_kv_cache_are_added_over_ranks_by_stage(promtool: Promtool) -> None:
    series = {
        f'llm_engine_requests_kv_fetch{{{WHO},rank="{rank}",model="m",stage="{stage}"}}': constant(value, SCRAPES)
        for rank in "01"
        for stage, value in (("waiting_to_start", 1), ("in_progress", 3))
    }
    rows = {f'{{{WHO},stage="waiting_to_start"}}': 2.0, f'{{{WHO},stage="in_progress"}}': 6.0}
    assert_rows(series, "Requests in KV load", "{{stage}}: {{engine}} at {{instance}}", rows, promtool)


@pytest.mark.parametrize(
    "queries, rows",
    [
        pytest.param(60, {f"{{{RANK}}}": 0.25}, id="a quarter is found"),
        pytest.param(0, {}, id="no ratio without a KV connector"),
    ],
)
def test_external_hits_are_a_share_of_the_external_queries(
    promtool: Promtool, queries: int, rows: dict[str, float]
) -> None:
    series = {
        f"llm_engine_external_prefix_cache_queries_tokens_total{{{MODEL}}}": counter((queries, SCRAPES)),
        f"llm_engine_external_prefix_cache_hits_tokens_total{{{MODEL}}}": counter((queries // 4, SCRAPES)),
    }
    legend = "{{engine}}/{{rank}} at {{instance}}"
    assert_rows(series, "External prefix cache hits", legend, rows, promtool)


def test_the_quantiles_of_kv_transfers_cover_all_ranks_of_an_engine(promtool: Promtool) -> None:
    series = {
        f'llm_engine_kv_transfer_seconds_bucket{{{WHO},rank="{rank}",model="m",le="{bound}"}}': counter((each, SCRAPES))
        for rank, buckets in (("0", {"0.1": 15, "0.2": 15, "+Inf": 15}), ("1", {"0.1": 0, "0.2": 15, "+Inf": 15}))
        for bound, each in buckets.items()
    }
    assert_rows(series, "KV transfer time", "p50: {{engine}} at {{instance}}", {f"{{{WHO}}}": 0.1}, promtool)
    assert_rows(series, "KV transfer time", "p95: {{engine}} at {{instance}}", {f"{{{WHO}}}": 0.19}, promtool)


@pytest.mark.parametrize(
    "name, title, legend",
    [
        ("kv_offload_stored_bytes", "KV offload", "stored: {{engine}}/{{rank}} at {{instance}}"),
        ("kv_offload_loaded_bytes", "KV offload", "loaded: {{engine}}/{{rank}} at {{instance}}"),
        ("kv_transfer_bytes", "KV transfer", "{{engine}}/{{rank}} at {{instance}}"),
        ("kv_transfer_failures", "KV transfer failures", "failed: {{engine}}/{{rank}} at {{instance}}"),
        ("kv_expired_requests", "KV transfer failures", "expired: {{engine}}/{{rank}} at {{instance}}"),
    ],
)
def test_counters_of_kv_caches_are_rates_per_rank(promtool: Promtool, name: str, title: str, legend: str) -> None:
    series = {f"llm_engine_{name}_total{{{MODEL}}}": counter((60, SCRAPES))}
    assert_rows(series, title, legend, {f"{{{RANK}}}": 4.0}, promtool)


@pytest.mark.parametrize(
    "series, title, legend, row",
    [
        (f"llm_engine_lora_adapters_running{{{WHO}}}", "LoRA adapters", "running: {{engine}} at {{instance}}", WHO),
        (f"llm_engine_lora_adapters_limit{{{WHO}}}", "LoRA adapters", "limit: {{engine}} at {{instance}}", WHO),
        (
            f"llm_engine_kv_offload_pinned_ratio{{{MODEL}}}",
            "KV offload space in transfer",
            "{{engine}}/{{rank}} at {{instance}}",
            RANK,
        ),
    ],
)
def test_gauges_of_optional_features_are_shown_as_exposed(
    promtool: Promtool, series: str, title: str, legend: str, row: str
) -> None:
    assert_rows({series: constant(0.75, SCRAPES)}, title, legend, {f"{{{row}}}": 0.75}, promtool)


def test_every_signal_of_engines_except_latencies_of_requests_is_on_the_dashboard() -> None:
    targets = [each for panel in panels_of(PAGE["panels"]) for each in panel.get("targets", ())]
    shown = {name for each in targets for name in series_in(each["expr"])}
    for signal in SIGNALS:
        if signal.kind is not Kind.HISTOGRAM or signal is signals.ENGINE_KV_TRANSFER:
            assert {signal.name, signal.bucket} & shown, signal.name


def test_the_roofline_share_is_that_of_the_requests_that_run(promtool: Promtool) -> None:
    series = {
        f"llm_engine_generation_tokens_total{{{MODEL}}}": counter((150, SCRAPES)),
        f"llm_engine_prompt_tokens_total{{{MODEL}}}": counter((4500, SCRAPES)),
        f"llm_engine_prefix_cache_hits_tokens_total{{{MODEL}}}": counter((1500, SCRAPES)),
        f"llm_roofline_running_tokens_per_second{{{WHO}}}": constant(20, SCRAPES),
        'llm_roofline_prefill_tokens_per_second{instance="s:1"}': constant(1000, SCRAPES),
    }
    shares = {"decode": 10 / 20, "prefill": 200 / 1000}
    for phase, share in shares.items():
        assert_rows(
            series, "Roofline share", f"{phase}: {{{{engine}}}} at {{{{instance}}}}", {f"{{{WHO}}}": share}, promtool
        )
