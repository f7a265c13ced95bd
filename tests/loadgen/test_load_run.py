"""Real Locust against a scripted server, each in a process of its own."""

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from loadgen import scenario
from loadgen.arrivals import arrivals
from loadgen.request_record import Fate, read_records, read_run
from loadgen.summary import figures

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CLI = [sys.executable, "-W", "error", "-c", "import sys; from compose.cli import main; sys.exit(main())", "load"]
SHAPE = "{share: 1, prompt_tokens: {min: 10, max: 20}, output_tokens: {min: 5, max: 20}}"


@contextmanager
def scripted(*flags: str) -> Iterator[str]:
    command = [sys.executable, str(HERE / "scripted_server.py"), *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
        finally:
            server.terminate()


def load(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*CLI, *words], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def seen(target: str) -> list[dict[str, str]]:
    with urllib.request.urlopen(f"{target}/seen", timeout=5) as answer:
        found: list[dict[str, str]] = json.load(answer)
    return found


def write(folder: Path, *classes: str, rate: float, duration: str, timeout: str = "5s") -> Path:
    path = folder / "scenario.yaml"
    shapes = "".join(f"  {name}: {SHAPE}\n" for name in classes)
    phases = f"[{{name: one, duration: {duration}, rate: {rate}}}]"
    path.write_text(f"name: small\nseed: 3\ntimeout: {timeout}\nclasses:\n{shapes}phases: {phases}\n")
    return path


def test_a_slow_server_builds_a_queue_that_every_latency_shows(tmp_path: Path) -> None:
    path, out = write(tmp_path, "siso", rate=20, duration="1500ms"), tmp_path / "out"
    with scripted("--slots", "1", "--first", "0.1", "--gap", "0") as target:
        done = load("run", str(path), "--target", target, "--out", str(out))
        arrived = seen(target)
    assert (done.returncode, done.stderr) == (0, "")
    run, records = read_run(out), read_records(out)
    planned = list(arrivals(scenario.load(path).phases, 3))

    # offered == recorded == what the server saw, each when it was meant
    assert sorted(record.due for record in records) == [round(arrival.due, 6) for arrival in planned]
    assert {record.request_id for record in records} == {request["x-request-id"] for request in arrived}
    assert len(arrived) == len(planned) > 20
    starts = {request["x-request-id"]: float(request["x-request-start"].removeprefix("t=")) for request in arrived}
    assert all(abs(starts[record.request_id] - run.start - record.due) < 1e-5 for record in records)
    assert {record.outcome for record in records} == {Fate.OK}

    # open loop: the server takes 0.1 s for each, one after the other, and nobody waited for it before sending
    by_due = sorted(records, key=lambda record: record.due)
    last = by_due[-1]
    backlog = len(by_due) * 0.1 - last.due
    assert last.e2e is not None
    assert last.e2e >= backlog - 0.1
    assert last.sent is not None
    assert sum(record.closed > last.sent for record in by_due) > len(by_due) / 3
    assert all(record.e2e is not None and record.send_lag is not None for record in records)
    streamed = [record for record in by_due if record.ttft is not None]
    assert all(record.ttft == pytest.approx((record.first or 0) - record.due, abs=1e-5) for record in streamed)

    # the summary says what the records say, and can be had again
    summary: dict[str, Any] = json.loads((out / "summary.json").read_text())
    assert summary["total"]["offered"] == len(planned)
    assert summary["classes"][0]["ttft"]["p50"] == figures("siso", records).ttft.p50
    assert run.ended == "completed"
    assert load("report", str(out)).stdout == done.stdout


def test_every_kind_of_failure_is_counted_and_none_is_fatal(tmp_path: Path) -> None:
    names = ("siso", "refuse", "fail", "tear", "hang", "drop")
    path, out = write(tmp_path, *names, rate=60, duration="800ms", timeout="1s"), tmp_path / "out"
    with scripted("--gap", "0") as target:
        done = load("run", str(path), "--target", target, "--out", str(out), "--max-open", "40")
    assert (done.returncode, done.stderr) == (0, "")
    records = read_records(out)
    fates = Counter((record.request_class, record.outcome) for record in records if record.stream)
    assert set(fates) == {
        ("siso", Fate.OK),
        ("refuse", Fate.REJECTED),
        ("fail", Fate.UPSTREAM_ERROR),
        ("tear", Fate.TRUNCATED),
        ("hang", Fate.TIMEOUT),
        ("drop", Fate.UPSTREAM_UNREACHABLE),
    }
    usual = next(record for record in records if record.outcome is Fate.OK and record.stream)
    assert (usual.prompt_tokens, usual.cached_tokens, usual.queue) == (usual.asked_prompt_tokens - 1, 16, 0.0015)
    assert usual.completion_tokens == usual.max_tokens == usual.chunks
    assert {record.error for record in records if record.request_class == "refuse"} == {"too many"}


def test_a_run_that_is_stopped_records_what_was_open_and_what_was_not_sent(tmp_path: Path) -> None:
    path, out = write(tmp_path, "hang", rate=40, duration="1h"), tmp_path / "out"
    with scripted() as target:
        words = ["run", str(path), "--target", target, "--out", str(out), "--grace", "200ms", "--max-open", "10"]
        process = subprocess.Popen([*CLI, *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while len(seen(target)) < 10:
            time.sleep(0.05)
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        shown, errors = process.communicate(timeout=20)
        arrived = seen(target)
    assert (process.returncode, errors) == (0, "")
    assert read_run(out).ended == "stopped"
    fates = Counter(record.outcome for record in read_records(out))
    assert fates[Fate.CUT] == len(arrived) == 10
    assert fates[Fate.NOT_SENT] > 0
    assert f"cut 10, not_sent {fates[Fate.NOT_SENT]}" in shown
    assert "were due but not sent" in shown


def test_a_target_that_does_not_answer_is_refused_before_any_load(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = load("run", "mixed", "--target", "http://127.0.0.1:1", "--out", str(out))
    assert (done.returncode, done.stdout, out.exists()) == (2, "", False)
    assert done.stderr == (
        "vllm-slo: --target http://127.0.0.1:1: cannot connect to http://127.0.0.1:1: connection refused; "
        "start it first, or give --no-check\n"
    )


def test_a_model_that_is_not_served_and_a_used_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "requests.jsonl").touch()
    with scripted() as target:
        wrong = load("run", "mixed", "--target", target, "--out", str(tmp_path), "--model", "other")
        used = load("run", "mixed", "--target", target, "--out", str(tmp_path))
    assert (wrong.returncode, used.returncode) == (2, 2)
    assert wrong.stderr == f"vllm-slo: --model other: is not served by {target}; it has scripted\n"
    assert used.stderr == f"vllm-slo: --out {tmp_path}: holds a run already; choose another folder or remove it\n"


def test_reporting_never_loads_gevent_nor_does_anything_but_running() -> None:
    code = "import sys, loadgen.command; sys.exit('gevent' in sys.modules or 'locust' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
