"""A calibration by the recording of a real engine, judged on its recording with another scheduler setting."""

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from compose.simulator.engine.presets import PRESETS
from compose.whatif.calibration import residuals
from compose.whatif.combinations import Base, combinations
from compose.whatif.log_fit import UNGRADED, fit_log
from compose.whatif.prediction import replay
from compose.whatif.recorded_traffic import RecordedTraffic, read_traffic

RECORDINGS = Path(__file__).parent.parent / "experiments/recordings/h200/cells"
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
    left = residuals(replay(other, traffic, UNGRADED, TIMEOUT)[0], traffic.measured)
    assert left.requests > 400
    assert left.ttft is not None
    assert left.tpot is not None
    assert (left.ttft < 0.20, left.tpot < 0.07) == (True, True), left
