"""`vllm-slo simulate --calibrate`: the coefficients of another engine from its log, written and read as a preset."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

import pytest

from compose.cli import main
from compose.simulator.presets.preset import PRESETS, Preset
from compose.simulator.presets.preset_file import read_preset
from compose.whatif.calibration import Latencies
from compose.whatif.combinations import Base, combinations
from compose.whatif.log_fit import latencies
from compose.whatif.recorded_traffic import read_traffic

TOY = PRESETS["toy"]
METRICS = (
    'vllm:cache_config_info{num_gpu_blocks="900",block_size="16",enable_prefix_caching="False",cache_dtype="auto"} 1\n'
)


def write_log(path: Path, served: Mapping[int, Latencies] = MappingProxyType({})) -> None:
    """60 requests in 12 s with prompts of 200 to 788 tokens and answers of 20 to 49, and their latencies."""
    lines = []
    for number in range(60):
        found = served.get(number)
        line = {
            "time": datetime.fromtimestamp(1_790_000_000 + 0.2 * number, UTC).isoformat(),
            "class": "chat",
            "route": "/v1/completions",
            "stream": True,
            "outcome": "ok",
            "prompt_tokens": 200 + 84 * (number % 8),
            "completion_tokens": 20 + number % 30,
            "e2e_ms": 1000.0,
            "slo": {"ttft": "good"},
        }
        if found is not None and found.ttft is not None and found.tpot is not None:
            line |= {"ttft_ms": found.ttft * 1000, "tpot_ms": found.tpot * 1000}
        lines.append(json.dumps(line) + "\n")
    path.write_text("".join(lines))


def calibrate(folder: Path, engine: Preset, *words: str) -> int:
    """Fit the preset `toy` to a log that `engine` has served."""
    log, metrics = folder / "requests.jsonl", folder / "metrics"
    write_log(log)
    (served,) = combinations(Base(engine), {}, {})
    write_log(log, latencies(served, read_traffic([log]), 60.0))
    metrics.write_text(METRICS)
    files = ["--request-log", str(log), "--engine-metrics", str(metrics), "--out", str(folder / "fitted.json")]
    return main(["simulate", "--preset", "toy", "--calibrate", *files, *words])


@pytest.mark.slow
@pytest.mark.parametrize(
    "memory, compute",
    [pytest.param(0.5, 1.0, id="memory"), pytest.param(1.0, 0.6, id="arithmetic"), pytest.param(0.7, 1.5, id="both")],
)
def test_the_coefficients_of_the_engine_that_served_the_log_are_found(
    memory: float, compute: float, tmp_path: Path
) -> None:
    engine = replace(
        TOY,
        memory_bytes_per_second=TOY.memory_bytes_per_second * memory,
        flop_per_second=TOY.flop_per_second * compute,
    )
    assert calibrate(tmp_path, engine) == 0
    fitted = read_preset(tmp_path / "fitted.json")
    assert fitted.preset.memory_bytes_per_second == pytest.approx(engine.memory_bytes_per_second, rel=0.05)
    assert fitted.preset.flop_per_second == pytest.approx(engine.flop_per_second, rel=0.05)
    errors = fitted.calibration.ttft_error, fitted.calibration.tpot_error
    assert all(error is not None and error < 0.03 for error in errors)


@pytest.mark.slow
def test_the_file_has_the_settings_and_the_range_of_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert calibrate(tmp_path, TOY, "--max-num-seqs", "32") == 0
    fitted = read_preset(tmp_path / "fitted.json")
    assert (fitted.preset.num_gpu_blocks, fitted.preset.max_num_seqs) == (900, 32)
    shown = capsys.readouterr().err.splitlines()
    assert shown[-2].startswith("calibrated: memory x 1.00, arithmetic x 1.00; median errors of 60 requests: TTFT 0.0%")
    assert shown[-1] == "holds for 200 to 788 prompt tokens, 20 to 49 completion tokens, 1 to 5 open requests"


@pytest.mark.slow
def test_whatif_reads_the_file_and_names_what_is_outside_its_range(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert calibrate(tmp_path, TOY) == 0
    log = tmp_path / "requests.jsonl"
    log.write_text(log.read_text().replace('"prompt_tokens": 788', '"prompt_tokens": 1788'))
    (tmp_path / "slos.yaml").write_text(
        "version: 1\nperiod: 30d\nclasses: [{name: chat}]\n"
        "slos: [{name: ttft, classes: [chat], signal: ttft, threshold: 5s, objective: 95%}]\n"
    )
    files = ["--request-log", str(log), "--slos", str(tmp_path / "slos.yaml")]
    capsys.readouterr()
    assert main(["whatif", *files, "--preset-file", str(tmp_path / "fitted.json"), "--format", "json"]) == 0
    shown = capsys.readouterr()
    assert "prompt tokens of the log, 200 to 1788, are outside the range of the calibration" in shown.err
    assert json.loads(shown.out)["errors"]["tpot"] < 0.03


@pytest.mark.parametrize(
    "words, reason",
    [
        pytest.param(["--calibrate"], "--calibrate: give the log of a load run", id="no log"),
        pytest.param(["--out", "x"], "--out: is only used with --calibrate", id="not calibrated"),
        pytest.param(["--preset", "toy", "--preset-file", "x"], "--preset: give --preset, --preset-file,", id="two"),
        pytest.param(["--gpu", "H100"], "--gpu: give --gpu and --model-config together", id="no model"),
        pytest.param(["--preset-file", "missing"], "--preset-file: missing: No such file", id="no file"),
    ],
)
def test_wrong_flags_are_refused(words: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", *words]) == 2
    assert reason in capsys.readouterr().err
