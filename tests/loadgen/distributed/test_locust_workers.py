"""Locust with the project's locustfile: its web page, and `--master` and `--worker`, as separate processes."""

import json
import math
import signal
import urllib.error
import urllib.request
from collections import Counter
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from loadgen.distributed.common_settings import differences
from loadgen.results.record import ClientOutcome, Record, read_records, read_run
from loadgen.results.summary import summarise_class
from tests.loadgen.load_process import received, release, scripted_server, write_scenario
from tests.loadgen.locust_process import cluster, locust
from tests.support.ports import free_port
from tests.support.waiting import HANG, wait_until

pytestmark = pytest.mark.slow

HEADLESS = ("--headless", "--only-summary")
IMPATIENT = """
from loadgen.distributed import worker_pool
from loadgen.locustfile import Mix
worker_pool.LOST_AFTER = 6.0  # instead of 15 s
"""


def _variables(scenario: Path, out: Path, target: str) -> dict[str, str]:
    return {"scenario": str(scenario), "out": str(out), "target": target, "grace": "100ms"}


def _messages(log: Path) -> list[str]:
    """The messages of the load generator, without Locust's time and process."""
    lines = [line.partition("/loadgen.")[2] for line in log.read_text().splitlines()]
    return [line.partition(": ")[2] for line in lines if line]


def _text(url: str, form: bytes | None = None) -> str:
    """What Locust's page responds; nothing while it does not listen."""
    try:
        with urllib.request.urlopen(url, form, timeout=HANG) as response:
            text: str = response.read().decode()
            return text
    except urllib.error.HTTPError:
        raise
    except OSError:
        return ""


def _in_order(records: list[Record]) -> list[int]:
    return sorted(record.number for record in records)


@pytest.mark.long
def test_the_share_of_a_killed_worker_counts_as_never_sent_and_the_master_reports(tmp_path: Path) -> None:
    path, out, log = write_scenario(tmp_path, "siso", rate=30, duration="2s"), tmp_path / "out", tmp_path / "log"
    (tmp_path / "impatient.py").write_text(IMPATIENT)
    flags = (*HEADLESS, "-f", str(tmp_path / "impatient.py"))
    with (
        scripted_server("--hold") as target,
        cluster(log, _variables(path, out, target), *flags) as (master, workers),
    ):
        assert wait_until(lambda: any(out.glob("*/run.json")) and len(received(target)) > 10)
        workers[0].kill()
        assert wait_until(lambda: "was lost" in log.read_text())
        release(target)
        assert (master.wait(HANG), workers[1].wait(HANG)) == (1, 0)
        sent = received(target)
    (folder,) = out.iterdir()
    assert {path.name for path in folder.iterdir()} >= {"run.json", "requests.jsonl", "summary.json", "report.html"}
    run, records = read_run(folder), read_records(folder)
    (lost,) = [index for index, worker in enumerate(run.workers) if worker.lost is not None]
    assert f"worker {lost} was lost: its requests without a record count as not sent" in _messages(log)
    assert _in_order(records) == list(range(len(records)))
    assert {record.outcome for record in records if record.number % 2 == lost} == {ClientOutcome.NOT_SENT}
    ok = [record for record in records if record.number % 2 != lost]
    assert {record.outcome for record in ok} == {ClientOutcome.OK}
    assert {record.request_id for record in ok} < {request["x-request-id"] for request in sent}
    assert f"INVALID: worker {lost} was lost after" in log.read_text()


def test_ctrl_c_at_the_master_ends_all_with_a_report(tmp_path: Path) -> None:
    path, out, log = write_scenario(tmp_path, "hang", rate=30, duration="1m"), tmp_path / "out", tmp_path / "log"
    with (
        scripted_server() as target,
        cluster(log, _variables(path, out, target), *HEADLESS) as (master, workers),
    ):
        assert wait_until(lambda: len(received(target)) > 4)
        master.send_signal(signal.SIGINT)
        assert (master.wait(HANG), [worker.wait(HANG) for worker in workers]) == (1, [0, 0])  # Locust: requests failed
        requests = received(target)
    (folder,) = out.iterdir()
    run, records = read_run(folder), read_records(folder)
    assert (run.ended, [worker.lost for worker in run.workers]) == ("stopped", [None, None])
    assert Counter(record.outcome for record in records) == {ClientOutcome.CUT: len(requests)}
    assert "Traceback" not in log.read_text()


@pytest.mark.long
def test_each_start_in_the_web_page_is_a_run_and_its_stop_button_ends_it(tmp_path: Path) -> None:
    path, out, log = write_scenario(tmp_path, "hang", rate=30, duration="1m"), tmp_path / "out", tmp_path / "log"
    page = f"http://127.0.0.1:{(port := free_port())}"
    flags = ("--web-host", "127.0.0.1", "--web-port", str(port))

    def ask(address: str, form: bytes | None = None) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(_text(f"{page}{address}", form) or "{}")
        return answer

    def has_received(target: str, count: int) -> bool:
        return len(received(target)) >= count

    def has_reports(count: int) -> bool:
        return len(list(out.glob("*/summary.json"))) == count

    with scripted_server() as target, cluster(log, _variables(path, out, target), *flags):
        assert wait_until(lambda: len(ask("/stats/requests").get("workers", ())) == 2)
        for number in (1, 2):
            enough = len(received(target)) + 5
            assert ask("/swarm", b"user_count=1&spawn_rate=1")["success"]
            assert wait_until(partial(has_received, target, enough))
            assert ask("/stop", b"")["success"]
            assert wait_until(partial(has_reports, number))
        requests = received(target)
    runs = [read_run(folder) for folder in sorted(out.iterdir())]
    assert [(run.ended, len(run.workers)) for run in runs] == [("stopped", 2)] * 2
    assert sum(len(read_records(folder)) for folder in out.iterdir()) == len(requests)


@pytest.mark.long
def test_workers_with_other_files_or_without_access_are_refused(tmp_path: Path) -> None:
    path, out, log = write_scenario(tmp_path, "siso", rate=1, duration="1s"), tmp_path / "out", tmp_path / "log"
    own = ({"seed": "4", "max_open": "9"}, {"scenario": str(tmp_path / "none.yaml")})
    with (
        scripted_server() as target,
        cluster(log, _variables(path, out, target), *HEADLESS, of_workers=own) as (master, workers),
    ):
        assert (master.wait(HANG), [worker.wait(HANG) for worker in workers]) == (2, [0, 0])
        assert received(target) == []
    messages = sorted(message.split(": ", 1)[1] for message in _messages(log))
    assert messages == [
        f"{tmp_path / 'none.yaml'}: neither a file nor a built-in scenario; known: demo, mixed, vllm-cpu",
        (
            "has other settings than the master: schedule, --max-open (9, the master's is 5000); start all with the "
            "same version, files and VLLM_SLO_* variables"
        ),
    ]
    assert not out.exists()


@pytest.mark.parametrize(
    "worker, text",
    [
        pytest.param({"schedule": "0" * 64, "--grace": "10 s"}, "", id="equal"),
        pytest.param({"schedule": "1" * 64, "--grace": "10 s"}, "schedule", id="a hash is not shown"),
        pytest.param({"schedule": "0" * 64}, "--grace (unknown, the master's is 10 s)", id="an older version"),
    ],
)
def test_the_settings_that_differ_are_named(worker: dict[str, str], text: str) -> None:
    assert differences(worker, {"schedule": "0" * 64, "--grace": "10 s"}) == text


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.long)])
def test_the_tab_has_the_figures_of_each_class(tmp_path: Path, workers: int) -> None:
    path, out = write_scenario(tmp_path, "siso", "refuse", rate=40, duration="1s"), tmp_path / "out"
    port = free_port()
    page = f"http://127.0.0.1:{port}"
    flags = ("--autostart", "--users", "1", "--web-host", "127.0.0.1", "--web-port", str(port))
    pages: list[dict[str, Any]] = []

    def ended() -> bool:
        if text := _text(f"{page}/stats/requests"):
            pages.append(json.loads(text))
        return any(out.glob("*/summary.json"))

    with scripted_server() as target, ExitStack() as stack:
        variables = {"scenario": str(path), "out": str(out), "target": target}
        if workers:
            stack.enter_context(cluster(tmp_path / "log", variables, *flags, of_workers=[{}] * workers))
        else:
            stack.enter_context(locust(variables, *flags))
        assert wait_until(ended)
        seen = len(pages)
        assert wait_until(lambda: ended() and pages[-1]["state"] == "stopped" and len(pages) > seen)
        html = _text(page)

    (folder,) = out.iterdir()
    records = read_records(folder)
    (table,) = pages[-1]["extended_stats"]
    assert table["key"] == "slo"
    rows = {row["class"]: row for row in table["data"]}
    assert list(rows) == ["siso", "refuse", "all"]
    for name, row in rows.items():
        exact = summarise_class(name, [record for record in records if name in {"all", record.request_class}])
        assert (row["offered"], row["open"], row["ok"]) == (exact.offered, 0, exact.ok)
        assert row["failed"] == exact.offered - exact.ok
        assert row["goodput"] == ("-" if exact.goodput is None else round(exact.goodput * 100, 2))
        for key, value in (("ttft50", exact.ttft.p50), ("ttft99", exact.ttft.p99), ("end50", exact.e2e.p50)):
            assert value is not None
            # within 0.1 %, and rounded to 0.1 ms
            assert row[key] == "∞" if value == math.inf else abs(row[key] - value * 1000) <= value + 0.051
    assert '"extended_tabs": [{"key": "slo", "title": "SLO"}]' in html
