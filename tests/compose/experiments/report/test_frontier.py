"""The frontier of throughput and latency, and the floor of TPOT, on points that are made by hand."""

import json
from pathlib import Path

import pytest
from msgspec import structs

from compose.experiments.report.floor import floors
from compose.experiments.report.frontier import frontier, frontier_rows, pareto_plots, points
from compose.experiments.report.groups import Experiment, read_groups
from compose.experiments.report.json_export import as_json
from compose.experiments.report.metrics import TPOT_P50
from compose.experiments.setup.cell_store import Configuration
from compose.experiments.setup.level import Level
from compose.simulator.presets.preset import PRESETS
from compose.vllm_cpu import launch
from exporters.analysis.roofline.formulas import Setup
from exporters.analysis.roofline.gpus import SHIPPED, Dtype, find_gpu, read_gpus
from exporters.analysis.roofline.model_shape import read_shape
from loadgen.results.record import Record
from tests.compose.experiments.report.report_folders import COUNT, ENGINE, SECONDS, Made, requests, write
from tests.exporters.analysis.roofline.model_configs import QWEN_14B

TEN, FIFTY = Level(concurrency=10), Level(concurrency=50)
FIGURES = {
    ("slow", TEN): (100, 0.03),
    ("slow", FIFTY): (200, 0.05),
    ("fast", TEN): (150, 0.02),
    ("fast", FIFTY): (400, 0.04),
    ("odd", TEN): (100, 0.01),
    ("odd", FIFTY): (400, 0.05),
}
"""Output tokens of a request, and its TPOT in seconds."""


def same(tokens: int, tpot: float) -> list[Record]:
    return [structs.replace(each, completion_tokens=tokens, tpot=tpot) for each in requests(1.0)]


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    cells = [Made(name, same(*figures), level=level) for (name, level), figures in FIGURES.items()]
    return read_groups(write(tmp_path_factory.mktemp("frontier") / "out", cells), None)


def test_a_point_of_every_configuration_and_level_has_its_throughput_and_latency(experiment: Experiment) -> None:
    found = {(each.configuration, each.at): (each.gain, each.cost) for each in points(experiment, TPOT_P50)}
    assert found == {
        (name, level.text): (tokens * COUNT / SECONDS, tpot) for (name, level), (tokens, tpot) in FIGURES.items()
    }


@pytest.mark.slow
def test_the_frontier_is_that_of_a_drawing_by_hand(experiment: Experiment) -> None:
    best = [point.name for point in frontier(points(experiment, TPOT_P50))]
    assert best == ["fast with 50 users", "fast with 10 users", "odd with 10 users"]
    column = {row[0]: (row[1], row[4]) for row in frontier_rows(experiment)}
    assert column == {
        "slow with 10 users": ("200", "30 ms"),
        "slow with 50 users": ("400", "50 ms"),
        "fast with 10 users": ("300", "20 ms*"),
        "fast with 50 users": ("800", "40 ms*"),
        "odd with 10 users": ("200", "10 ms*"),
        "odd with 50 users": ("800", "50 ms"),
    }
    assert json.loads(as_json(experiment))["frontiers"]["tpot_p50"] == best


def test_a_plot_joins_the_points_of_a_configuration_and_marks_the_frontier(experiment: Experiment) -> None:
    plot = list(pareto_plots(experiment))[2]
    kinds = [each.get("class") for each in plot.iter("circle")]
    assert sorted(kind for kind in kinds if kind) == ["dot best"] * 3 + ["dot other"] * 3
    lines = [each for each in plot.iter("path") if (each.get("class") or "").startswith("line")]
    assert [each.get("class") for each in lines] == ["line joined"] * 3 + ["line good"]
    assert [(each.get("d") or "").count("L") for each in lines] == [1, 1, 1, 2]


def test_the_floor_is_the_time_to_read_weights_and_cache_for_each_token(tmp_path: Path) -> None:
    preset = PRESETS["t4-qwen2.5-0.5b"]
    reading = structs.replace(ENGINE, kv_capacity_tokens=100_000, kv_usage_mean=0.5)
    drafted = structs.replace(reading, drafts=10, draft_tokens=50, accepted_draft_tokens=25)
    configurations = [
        Configuration("plain", {}, preset.name),
        Configuration("drafted", {}, preset.name),
        Configuration("fp8", {"quantization": "fp8"}, preset.name),
        Configuration("unknown-flag", {"tensor-parallel-size": "2"}, preset.name),
        Configuration("no-preset", {}),
    ]
    engines = {"drafted": drafted}
    cells = [Made(each.name, requests(1.0), engine=engines.get(each.name, reading)) for each in configurations]
    written = write(tmp_path / "out", cells, configurations=configurations)
    found = {each.group.name: each for each in floors(read_groups(written, None))}
    assert [*found] == ["plain", "drafted", "fp8"]
    weights, cache = 0.99e9 / 320e9, 50_000 * 12_288 / 320e9
    assert found["plain"].tpot == pytest.approx(weights + cache)
    assert found["drafted"].tpot == pytest.approx((weights + cache) / 3.5)
    assert found["fp8"].tpot == pytest.approx(0.53 * weights + cache)
    for engine in (launch.NAME, "vllm serve MODEL --port {port}"):
        elsewhere = write(tmp_path / engine, cells, configurations=configurations, engine=engine)
        assert [*floors(read_groups(elsewhere, None))] == []


def test_the_floor_of_a_preset_is_that_of_the_roofline(tmp_path: Path) -> None:
    """But for the embedding, which the preset leaves out and a step does not read."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(QWEN_14B))
    setup = Setup(
        gpu=find_gpu("RTX 6000 Ada", read_gpus(SHIPPED)),
        shape=read_shape(path),
        dtype=Dtype.BF16,
        weight_dtype=Dtype.BF16,
        kv_dtype=Dtype.BF16,
        context=1000,
    )
    floor = PRESETS["rtx6000ada-qwen2.5-14b"].tpot_floor(16 * 1000)
    assert floor == pytest.approx(setup.memory_seconds(16), rel=0.02)
