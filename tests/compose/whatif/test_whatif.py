"""`vllm-slo whatif`: a log of the simulator's own engine, under the same and under other settings."""

import json
from pathlib import Path
from typing import Any

import pytest

from compose.cli import main

SLOS = """\
version: 1
period: 30d
classes:
  - name: chat
slos:
  - {name: ttft, classes: [chat], signal: ttft, threshold: 500ms, objective: 95%}
  - {name: tpot, classes: [chat], signal: tpot, threshold: 50ms, objective: 95%}
"""


def line(number: int, good: bool = True, **more: Any) -> dict[str, Any]:
    """A request each 20 ms, with 400 prompt tokens and 20 output tokens."""
    return {
        "time": f"2026-01-01T00:00:{number // 50:02}.{number % 50 * 20:03}Z",
        "class": "chat",
        "route": "/v1/completions",
        "stream": True,
        "outcome": "ok",
        "prompt_tokens": 400,
        "completion_tokens": 20,
        "max_tokens": 100,
        "e2e_ms": 30_000.0,
        "slo": {"ttft": "good" if good else "bad", "tpot": "good"},
        **more,
    }


def whatif(folder: Path, lines: list[dict[str, Any]], *words: str) -> int:
    (folder / "slos.yaml").write_text(SLOS)
    (folder / "requests.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    files = ["--request-log", str(folder / "requests.jsonl"), "--slos", str(folder / "slos.yaml")]
    return main(["whatif", *files, "--preset", "toy", "--jobs", "1", *words])


def good_shares(capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], list[float]]:
    document = json.loads(capsys.readouterr().out)
    return document, [each["good"]["chat"]["share"] for each in document["predictions"]]


@pytest.mark.slow
def test_a_second_replica_ends_an_overload(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The toy engine computes 20,000 prompt tokens/s, and 50 requests/s ask for as many."""
    status = whatif(
        tmp_path,
        [line(number, good=number < 200) for number in range(400)],
        *("--recorded", "max_num_seqs=8", "--try", "replicas=1,2", "--format", "json"),
        *("--html", str(tmp_path / "page.html")),
    )
    document, shares = good_shares(capsys)
    assert [each["settings"] for each in document["predictions"]] == [{}, {"replicas": "1"}, {"replicas": "2"}]
    assert shares[0] == shares[1] < 0.9
    assert shares[2] == 1.0
    uses = [{each["slo"]: each["use"] for each in found["budget_use"]} for found in document["predictions"]]
    assert uses[0]["ttft"] == pytest.approx((1 - shares[0]) / 0.05, rel=1e-3)
    assert uses[2] == {"ttft": 0, "tpot": 0}
    recorded = document["recorded_budget_use"]
    assert recorded == [{"class": "chat", "slo": "ttft", "use": 10}, {"class": "chat", "slo": "tpot", "use": 0}]
    assert status == (1 if document["contradictions"] else 0)
    least, most = (document["predictions"][0]["good"]["chat"][end] for end in ("least", "most"))
    assert least < shares[0] < most, "a slower engine has longer queues"
    shown = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert f"replicas=2: {shares[2]:.1%} good, 2 GPUs" in shown
    assert "On the frontier: 3, 1, 2." in shown


def test_a_log_that_contradicts_the_prediction_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line(50 * number, good=False) for number in range(8)]  # one a second, which the engine serves at once
    assert whatif(tmp_path, lines) == 1
    shown = capsys.readouterr().out
    assert "NOT TO BE TRUSTED" in shown
    assert "chat: 0% recorded, 100% predicted" in shown


def test_requests_that_did_not_end_have_the_lengths_of_their_class(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    aborted: dict[str, Any] = {"outcome": "client_abort", "prompt_tokens": None, "completion_tokens": None, "slo": {}}
    lines = [line(number, True, **(aborted if number % 2 else {})) for number in range(10)]
    refused: dict[str, Any] = {"outcome": "client_error", "prompt_tokens": None, "completion_tokens": None, "slo": {}}
    assert whatif(tmp_path, [*lines, line(11, True, **refused)], "--format", "json") == 0
    document, _ = good_shares(capsys)
    assert (document["requests"], document["assumed_lengths"]) == (10, 5)
    assert document["predictions"][0]["output_tokens"] == 200  # as the others got 20 of the 100 that they asked for


@pytest.mark.slow
def test_calibration_finds_the_speed_of_an_engine_that_a_preset_does_not_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A memory half as fast: each of 32 decode steps takes 2 ms and a little more for the KV cache."""
    lines = [line(number, True, completion_tokens=33, tpot_ms=2.1) for number in range(0, 600, 10)]
    assert whatif(tmp_path, lines, "--calibrate", "--format", "json") == 0
    shown = capsys.readouterr()
    factor = float(shown.err.partition("calibrated: memory x ")[2].partition(",")[0])
    assert factor == pytest.approx(0.5, abs=0.03)
    assert json.loads(shown.out)["errors"]["tpot"] < 0.02


def test_every_wrong_setting_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert whatif(tmp_path, [line(0)], "--try", "max_seqs=8", "--try", "replicas") == 2
    assert capsys.readouterr().err.splitlines() == [
        "vllm-slo: --try: 'max_seqs' cannot be simulated; did you mean 'max_num_seqs'?",
        "--try: 'replicas' has no value; write NAME=VALUE, such as max_num_seqs=64,128",
    ]


@pytest.mark.parametrize(
    "words, reason",
    [
        pytest.param(["--try", "replicas=0"], "replicas: '0' is not a number from 1 to 1000", id="replicas"),
        pytest.param(["--try", "gpu=H100"], "gpu: needs the sizes of the model", id="GPU of a preset"),
        pytest.param(["--gpu", "H100"], "--preset: give --preset, --preset-file, or --gpu with", id="GPU and preset"),
        pytest.param(["--try", "max_num_seqs=x"], "max_num_seqs", id="flag"),
        pytest.param(["--jobs", "0"], "--jobs: 0 is not a number of processes", id="jobs"),
    ],
)
def test_a_value_that_cannot_be_simulated_is_refused(
    words: list[str], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert whatif(tmp_path, [line(0)], *words) == 2
    assert reason in capsys.readouterr().err


def test_a_log_without_token_counts_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert whatif(tmp_path, [line(0, completion_tokens=None)]) == 2
    assert "no request with token counts" in capsys.readouterr().err


def test_the_requests_of_a_load_run_are_those_of_its_sidecars_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def record(number: int, outcome: str = "ok") -> dict[str, Any]:
        due = number * 0.02
        return {
            "class": "chat",
            "phase": "steady",
            "number": number,
            "request_id": "r",
            "endpoint": "/v1/completions",
            "stream": True,
            "outcome": outcome,
            "due": due,
            "closed": due + 30,
            "asked_prompt_tokens": 400,
            "max_tokens": 100,
            "prompt_tokens": 400,
            "completion_tokens": 20,
            "slo": {"ttft": "good", "tpot": "good"},
        }

    assert whatif(tmp_path, [line(number) for number in range(8)], "--format", "json") == 0
    of_the_log, _ = good_shares(capsys)
    sent = [record(number) for number in range(8)]
    assert whatif(tmp_path, [*sent, record(8, "not_sent")], "--format", "json") == 0
    assert good_shares(capsys)[0] == of_the_log
