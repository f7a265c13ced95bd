"""The lab's ceilings are those of the simulated GPU and model."""

import json
from pathlib import Path

import pytest

from compose.cli import main
from compose.lab.services import ROOFLINE
from compose.simulator.presets.preset import DEFAULT_PRESET, PRESETS
from tests.exporters.analysis.roofline.model_configs import QWEN_14B


def test_the_lab_shows_the_roofline_of_what_it_simulates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert DEFAULT_PRESET == "rtx6000ada-qwen2.5-14b"
    model = tmp_path / "config.json"
    model.write_text(json.dumps(QWEN_14B))
    batches = [word for batch in (1, 8, 64, 128) for word in ("--batch", str(batch))]
    command = ["roofline", "--gpu", "RTX 6000 Ada", "--model-config", str(model), *batches, "--format", "json"]
    assert main(command) == 0
    assert capsys.readouterr().out == ROOFLINE.read_text(encoding="utf-8")


def test_no_simulated_step_is_faster_than_the_card() -> None:
    preset, ceilings = PRESETS[DEFAULT_PRESET], json.loads(ROOFLINE.read_text(encoding="utf-8"))
    assert 2048 / preset.step_seconds(tokens=2048, context=2048) < ceilings["prefill_tokens_per_second"]
    assert 128 / preset.step_seconds(tokens=128, context=128 * 400) < ceilings["decode_tokens_per_second"]["128"]
