"""A calibration by the recording of a real engine, judged on its recordings with another setting or load."""

import gzip
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from compose.experiments.cells import cell_run, virtual_cell
from compose.experiments.cells.simulated_engine import simulated
from compose.experiments.setup import experiment_file
from compose.experiments.setup.level import Level
from compose.simulator.presets.preset import PRESETS
from compose.whatif.calibration import Latencies, Speed, calibrate, residuals
from compose.whatif.combinations import Base, combinations
from compose.whatif.log_fit import fit_log, latencies
from compose.whatif.recorded_traffic import RecordedTraffic, attainments, read_traffic
from exporters.vocabulary import slo_file
from loadgen.results.record import ClientOutcome, Record
from loadgen.results.regrading import regrade

FOLDER = Path(__file__).parent.parent / "experiments/recordings"
RECORDINGS = FOLDER / "h200/cells"
TURNS = replace(experiment_file.load(experiment_file.find("seed-004-single")), requests=150)
RULE = slo_file.loads(TURNS.slos)
ENGINE = {"num_gpu_blocks": ["3562"], "max_num_seqs": ["256"], "enable_prefix_caching": ["false"]}
WHOLE_PROMPTS = {"enable_chunked_prefill": ["false"], "max_num_batched_tokens": ["8192"]}
TIMEOUT = 180.0


def recorded(name: str, folder: Path) -> RecordedTraffic:
    """The recording as a request log."""
    log = folder / f"{name}.jsonl"
    with gzip.open(RECORDINGS / name / "phases-1/requests.jsonl.gz", "rt") as lines, log.open("w") as file:
        for each in map(json.loads, lines):
            ended = each["outcome"] == "ok"
            line = {
                "time": datetime.fromtimestamp(1_790_000_000 + each["due"], UTC).isoformat(),
                "class": each["class"],
                "route": each["endpoint"],
                "stream": each["stream"],
                "outcome": "ok" if ended else "client_abort",
                "prompt_tokens": each.get("prompt_tokens") or each["asked_prompt_tokens"],
                "completion_tokens": each.get("completion_tokens"),
                "max_tokens": each["max_tokens"],
                "e2e_ms": (each["closed"] - each["due"]) * 1000,
                "slo": {},
            }
            line |= {f"{key}_ms": each[key] * 1000 for key in ("ttft", "tpot") if ended and each.get(key)}
            file.write(json.dumps(line) + "\n")
    return read_traffic([log])


@pytest.mark.long
def test_a_calibration_holds_for_another_setting_of_the_scheduler(tmp_path: Path) -> None:
    """The goals of the step model: medians of at most 20 % for TTFT and 7 % for TPOT."""
    base = Base(PRESETS["h200-qwen2.5-14b"])
    (fitted,) = combinations(base, ENGINE, {})
    speed, _ = fit_log(fitted, recorded("base", tmp_path), TIMEOUT)
    (other,) = combinations(Base(base.preset, speed=speed), {**ENGINE, **WHOLE_PROMPTS}, {})
    traffic = recorded("nochunk", tmp_path)
    left = residuals(latencies(other, traffic, TIMEOUT), traffic.measured)
    assert left.requests > 400
    assert left.ttft is not None
    assert left.tpot is not None
    assert (left.ttft < 0.20, left.tpot < 0.07) == (True, True), left


def measured_turns(rate: float) -> list[Record]:
    """The requests of seed-004-single on an H200."""
    with gzip.open(FOLDER / f"h200-seed-004-single/cells/phase0/{rate:g}-1/requests.jsonl.gz", "rb") as lines:
        return [regrade(msgspec.json.decode(line, type=Record), RULE) for line in lines]


def simulated_turns(rate: float, speed: Speed, folder: Path) -> list[Record]:
    """The same requests in virtual time."""
    plan = cell_run.plan(TURNS, folder, "phase0", Level(rate), 1)
    preset, flags = simulated(plan.engine)
    virtual_cell.measure(plan, RULE, speed.of(preset), flags, TURNS.max_concurrency)
    lines = (plan.folder / "requests.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Record) for line in lines]


def latencies_of(records: Sequence[Record]) -> dict[int, Latencies]:
    return {each.number: Latencies(each.ttft, each.tpot) for each in records if each.outcome is ClientOutcome.OK}


def goodput(records: Sequence[Record]) -> float:
    return attainments(Counter(("", record.good) for record in records))[""].share


@pytest.mark.long
def test_a_calibration_at_one_rate_holds_for_higher_ones(tmp_path: Path) -> None:
    """The goals of the step model at up to twice the rate of the fit; goodput within 10 points, also beyond."""
    speed = calibrate(
        lambda tried: latencies_of(simulated_turns(1.0, tried, tmp_path)), latencies_of(measured_turns(1.0))
    )
    found = PRESETS["h200-llama-70b-fp8-dynamic"]
    preset = speed.of(PRESETS["h200-llama-70b-fp8"])
    assert found.memory_bytes_per_second == pytest.approx(preset.memory_bytes_per_second, rel=0.01)
    assert found.flop_per_second == pytest.approx(preset.flop_per_second, rel=0.01)
    for rate, largest in (1.5, 0.20), (2.0, 0.20), (2.5, 0.25):
        measured, predicted = measured_turns(rate), simulated_turns(rate, speed, tmp_path)
        left = residuals(latencies_of(predicted), latencies_of(measured))
        assert left.requests == len(measured)
        assert left.ttft is not None
        assert left.tpot is not None
        assert (left.ttft < largest, left.tpot < 0.07) == (True, True), (rate, left)
        assert goodput(predicted) == pytest.approx(goodput(measured), abs=0.10)
