"""A recommendation for an overload on an H200, and what the H200 then measured: the figures of docs/whatif.md."""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from compose.cli import main
from compose.whatif.recorded_traffic import read_traffic
from tests.exporters.analysis.roofline.model_configs import QWEN_14B

RECORDINGS = Path(__file__).parent / "recordings"
SLOS = """\
version: 1
period: 30d
first_token_timeout: 90s
classes: [{name: siso}, {name: silo}, {name: liso}, {name: lilo}]
slos:
  - {name: ttft, classes: [siso, silo, liso, lilo], signal: ttft, threshold: 2s, objective: 95%}
  - {name: tpot, classes: [silo, lilo], signal: tpot, threshold: 40ms, objective: 95%}
"""
RECORDED = "max_num_seqs=48", "enable_prefix_caching=false", "num_gpu_blocks=12000", "max_num_batched_tokens=8192"


def predictions(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> Sequence[dict[str, float]]:
    """The predicted share of good requests by class, for the recorded settings and each combination."""
    (folder / "slos.yaml").write_text(SLOS)
    (folder / "config.json").write_text(json.dumps(QWEN_14B))
    log, slos, model = RECORDINGS / "recorded.jsonl.gz", folder / "slos.yaml", folder / "config.json"
    files = ["--request-log", str(log), "--slos", str(slos), "--gpu", "H200", "--model-config", str(model)]
    recorded = [word for setting in RECORDED for word in ("--recorded", setting)]
    assert main(["whatif", *files, *recorded, "--calibrate", "--format", "json", *words]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return [{name: each["share"] for name, each in found["good"].items()} for found in document["predictions"]]


@pytest.mark.slow
def test_the_recommended_settings_give_the_predicted_goodput(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tried = ["--try", "enable_prefix_caching=true", "--try", "max_num_seqs=96,192"]
    recorded, half, recommended = predictions(tmp_path, capsys, *tried)
    before, after = (read_traffic([RECORDINGS / f"{name}.jsonl.gz"]) for name in ("recorded", "tried"))
    assert recorded == {name: pytest.approx(each.share, abs=0.03) for name, each in before.attained.items()}
    assert recommended == {name: pytest.approx(each.share, abs=0.03) for name, each in after.attained.items()}
    assert all(recorded[name] < half[name] < recommended[name] for name in recorded)
    assert median(each.tpot or 0 for each in after.measured.values()) == pytest.approx(0.0172, abs=0.0001)
