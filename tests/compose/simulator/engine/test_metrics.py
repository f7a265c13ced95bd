"""The families, types, buckets and labels are those of a recorded vLLM."""

from dataclasses import replace

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from compose.simulator.engine.flags import apply_changes, preset_flags
from compose.simulator.engine.metrics import EngineMetrics, token_buckets
from compose.simulator.engine.scheduler import Scheduler
from compose.simulator.presets.preset import PRESETS
from compose.simulator.presets.speculative_decoding import Speculation
from exporters.engines.signal_table import VLLM
from exporters.engines.vllm_buckets import family
from tests.contract.expositions import RECORDED

TOY = PRESETS["toy"]
NOT_SIMULATED = ("vllm:nixl", "vllm:kv_offload", "vllm:num_requests_kv_fetch")
"""Families of options that the simulator does not have."""
LATENCY = "0.3 0.5 0.8 1.0 1.5 2.0 2.5 5.0 10.0 15.0 20.0 30.0 40.0 50.0 60.0 120.0 240.0 480.0 960.0 1920.0 7680.0"
TTFT = "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1.0 2.5 5.0 7.5 10.0 20.0 40.0 80.0 160.0 640.0 2560.0"
ITL = "0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1.0 2.5 5.0 7.5 10.0 20.0 40.0 80.0"
ITERATION = "1.0 8.0 16.0 32.0 64.0 128.0 256.0 512.0 1024.0 2048.0 4096.0 8192.0 16384.0"
TOKENS = "1.0 2.0 5.0 10.0 20.0 50.0 100.0 200.0 500.0 1000.0 2000.0"


def exposed(speculation: Speculation | None = None) -> dict[str, Metric]:
    flags = apply_changes(preset_flags(TOY), {"max_model_len": 2048})
    preset = replace(TOY, speculation=speculation)
    metrics = EngineMetrics(flags, preset, model="tiny", scheduler=Scheduler(flags, preset), started=1.0)
    return {each.name: each for each in text_string_to_metric_families(metrics.text().decode())}


def test_every_family_is_one_of_vllm_and_none_that_the_sidecar_reads_is_missing() -> None:
    recorded = {
        f"vllm:{name}": each["type"] for name, each in RECORDED["families"].items() if "0.33.0" in each["in"].split()
    }
    speculative = exposed(Speculation(rates=(0.5,)))
    types = {name: each.type for name, each in speculative.items() if not name.endswith("_created")}
    own = {
        "process_start_time_seconds": "gauge",
        "vllm_slo_simulator_info": "gauge",
        "vllm_slo_simulator_lag_seconds": "histogram",
    }
    assert types.items() <= (recorded | own).items()
    read = {source.name.removesuffix("_total") for row in VLLM.rows if (source := family(row, "0.33.0"))}
    assert {name for name in read if not name.startswith(NOT_SIMULATED)} <= types.keys()


def test_without_drafts_there_are_no_families_of_speculative_decoding() -> None:
    names = {"drafts", "draft_tokens", "accepted_tokens", "accepted_tokens_per_pos"}
    speculative = {name for name in exposed(Speculation(rates=(0.5, 0.25))) if not name.endswith("_created")}
    plain = {name for name in exposed() if not name.endswith("_created")}
    assert speculative - plain == {f"vllm:spec_decode_num_{name}" for name in names}


def test_admission_rejections_have_the_labels_of_vllm_and_are_0_without_a_queue_limit() -> None:
    (rejections,) = (each for name, each in exposed().items() if name == "vllm:admission_rejections")
    samples = {tuple(sample.labels.items()): sample.value for sample in rejections.samples}
    assert samples == {
        (("model_name", "tiny"), ("reason", "max_num_queued_reqs")): 0.0,
        (("model_name", "tiny"), ("reason", "max_num_queued_tokens")): 0.0,
    }


@pytest.mark.parametrize(
    "name, bounds",
    [
        ("time_to_first_token_seconds", TTFT),
        ("inter_token_latency_seconds", ITL),
        ("request_time_per_output_token_seconds", ITL),
        ("e2e_request_latency_seconds", LATENCY),
        ("request_queue_time_seconds", LATENCY),
        ("iteration_tokens_total", ITERATION),
        ("request_prompt_tokens", TOKENS),
        ("request_num_preemptions", "1.0 2.0 3.0 4.0 5.0 10.0 20.0"),
        ("request_params_n", "1.0 2.0 5.0 10.0 20.0"),
    ],
)
def test_the_buckets_are_those_of_vllm(name: str, bounds: str) -> None:
    buckets = [s.labels for s in exposed()[f"vllm:{name}"].samples if s.name.endswith("_bucket")]
    assert [labels["le"] for labels in buckets] == [*bounds.split(), "+Inf"]
    assert set(buckets[0]) == {"le", "model_name", "engine"}


def test_token_buckets_end_below_the_models_length() -> None:
    assert token_buckets(8192)[-3:] == (1000, 2000, 5000)
    assert token_buckets(1000)[-1] == 1000
