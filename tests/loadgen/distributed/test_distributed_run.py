"""A run by several worker processes sends what a run by one process sends."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import gevent
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.distributed.common_settings import common_settings
from loadgen.distributed.master_run import MasterRun
from loadgen.distributed.messages import Ready
from loadgen.results.record import ClientOutcome, read_records, read_run
from loadgen.run.load_metrics import LoadCollector
from loadgen.run.settings import RunSettings, from_arguments
from loadgen.schedule import scenario
from loadgen.schedule.phases import ClosedLoop
from loadgen.schedule.requests import PlannedRequest, Workload, schedule_hash
from loadgen.schedule.share import Share, SharedSchedule
from tests.loadgen.load_process import (
    finished_load,
    load,
    received,
    release,
    running_load,
    scripted_server,
    write_scenario,
)
from tests.loadgen.run_flags import parsed, refusal
from tests.support.waiting import HANG, wait_until


def _schedule(path: Path) -> Workload:
    chosen = scenario.load(path)
    return Workload(chosen, chosen.phases, chosen.seed)


@given(st.integers(1, 9), st.integers(0, 100))
def test_the_parts_of_all_workers_add_up_to_the_whole(workers: int, total: int) -> None:
    parts = [Share(index, workers).part(total) for index in range(workers)]
    assert sum(parts) == total
    assert max(parts) - min(parts) <= 1


@given(workers=st.integers(1, 5))
def test_each_request_is_in_one_share(tmp_path_factory: pytest.TempPathFactory, workers: int) -> None:
    path = write_scenario(tmp_path_factory.mktemp("share"), "siso", "liso", rate=20, duration="2s")
    whole = _schedule(path)
    shares = [SharedSchedule(whole, Share(index, workers)) for index in range(workers)]
    requests: list[PlannedRequest] = sorted((one for share in shares for one in share), key=lambda one: one.number)
    assert schedule_hash(requests) == schedule_hash(whole)
    phase = ClosedLoop("one", 2, users=7)
    taken = [one for share in shares for one in islice(share.users(phase), 10)]
    assert sorted(one.number for one in taken) == list(range(10 * workers))
    parts = [part for index in range(workers) for part in Share(index, workers).phases([phase])]
    assert sum(part.users for part in parts if isinstance(part, ClosedLoop)) == 7


@pytest.mark.slow
def test_two_workers_send_each_request_of_the_schedule_once(tmp_path: Path) -> None:
    path = write_scenario(tmp_path, "siso", "refuse", rate=60, duration="800ms")
    planned = list(_schedule(path))
    done = finished_load(path, "--workers", "2")
    assert (done.status, done.errors) == (0, "")
    run, records, requests = done.run, done.records, done.requests
    assert (run.schedule, run.ended, len(run.workers)) == (schedule_hash(planned), "completed", 2)
    assert [worker.lost for worker in run.workers] == [None, None]
    assert Counter(record.number for record in records) == Counter(request.number for request in planned)
    by_number = {request.number: request for request in planned}
    assert all(record.due == round(by_number[record.number].due, 6) for record in records)
    assert {record.request_id for record in records} == {request["x-request-id"] for request in requests}
    assert len(requests) == len(planned) > 20
    # Both workers count from the same instant.
    starts = {request["x-request-id"]: float(request["x-request-start"].removeprefix("t=")) for request in requests}
    assert all(abs(starts[record.request_id] - run.start - record.due) < 1e-5 for record in records)
    assert "by worker: 0 " in " ".join(done.shown.split())
    assert load("report", str(done.out)).stdout == done.shown


@pytest.mark.slow
def test_the_users_of_a_closed_loop_are_split_exactly(tmp_path: Path) -> None:
    path, out = write_scenario(tmp_path, "siso", rate=1, duration="1s"), tmp_path / "out"
    path.write_text(path.read_text().replace("rate: 1", "users: 3, think_time: 50ms"))
    with scripted_server("--hold") as target, running_load(path, target, out, "--workers", "2") as process:
        assert wait_until(lambda: len(received(target)) == 3)
        release(target)
        _, errors = process.communicate(timeout=HANG)
    assert (process.returncode, errors) == (0, "")
    records = sorted(read_records(out), key=lambda record: record.due)
    assert len({record.number for record in records}) == len(records) >= 3
    for index, record in enumerate(records):
        assert sum(earlier.closed > record.due for earlier in records[:index]) < 3


@pytest.mark.slow
def test_what_a_lost_worker_has_not_recorded_counts_as_never_sent(tmp_path: Path) -> None:
    path, out = write_scenario(tmp_path, "siso", rate=60, duration="800ms"), tmp_path / "out"
    planned = list(_schedule(path))
    flags = ("--workers", "2", "--log-level", "error")
    with scripted_server("--hold") as target, running_load(path, target, out, *flags) as process:
        assert wait_until(lambda: len(received(target)) == len(planned))  # all are open, none is recorded
        first, _ = (int(pid) for pid in _children(process.pid))
        os.kill(first, signal.SIGKILL)
        assert wait_until(lambda: not Path(f"/proc/{first}").exists())
        release(target)
        shown, errors = process.communicate(timeout=HANG)
    assert process.returncode == 0  # with --allow-invalid
    run, records = read_run(out), read_records(out)
    (lost,) = [index for index, worker in enumerate(run.workers) if worker.lost is not None]
    (line,) = errors.splitlines()
    assert line.endswith(f" ERROR load: worker {lost} was lost: its requests without a record count as not sent")
    assert Counter(record.number for record in records) == Counter(request.number for request in planned)
    for record in records:
        is_lost = record.number % 2 == lost
        assert record.outcome is (ClientOutcome.NOT_SENT if is_lost else ClientOutcome.OK)
        assert record.error == (f"worker {lost} was lost" if is_lost else None)
    assert any(line.startswith(f"INVALID: worker {lost} was lost after") for line in shown.splitlines())


@pytest.mark.slow
def test_a_stopped_run_stops_all_workers(tmp_path: Path) -> None:
    path, out = write_scenario(tmp_path, "hang", rate=40, duration="2m"), tmp_path / "out"
    flags = ("--grace", "200ms", "--workers", "2")
    with scripted_server() as target, running_load(path, target, out, *flags) as process:
        assert wait_until(lambda: len(received(target)) >= 10)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=HANG)
        requests = received(target)
    assert (process.returncode, errors) == (0, "")
    assert read_run(out).ended == "stopped"
    assert Counter(record.outcome for record in read_records(out)) == {ClientOutcome.CUT: len(requests)}


@pytest.mark.slow
def test_workers_end_with_a_master_that_is_killed(tmp_path: Path) -> None:
    path, out = write_scenario(tmp_path, "hang", rate=40, duration="2m"), tmp_path / "out"
    with scripted_server() as target, running_load(path, target, out, "--workers", "2") as process:
        assert wait_until(lambda: len(received(target)) > 0)
        workers = _children(process.pid)
        process.kill()
        assert len(workers) == 2
        assert wait_until(lambda: not any(Path(f"/proc/{worker}/fd/0").exists() for worker in workers))


@pytest.mark.slow
def test_a_limit_that_leaves_a_worker_without_a_slot_is_refused(tmp_path: Path) -> None:
    path = write_scenario(tmp_path, "siso", rate=60, duration="1s")
    done = finished_load(path, "--workers", "2", "--max-concurrency", "1")
    assert (done.status, done.shown, done.out.exists()) == (2, "", False)
    assert done.errors == "vllm-slo: --max-concurrency 1: is divided among 2 workers; set at least 2\n"


@pytest.mark.slow
def test_failures_of_all_workers_are_noticed(tmp_path: Path) -> None:
    done = finished_load(write_scenario(tmp_path, "refuse", rate=60, duration="300ms"), "--workers", "2")
    (notice,) = done.errors.splitlines()
    assert notice.partition(" WARNING load: ")[2].startswith("the first 5 requests all failed: rejected, status 429")
    assert done.status == 0


def _children(pid: int) -> list[str]:
    return [child for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()]


class _Refusing:
    """A pool of two workers: one has another schedule than the master, the clock of the other one differs."""

    run = 1

    def __init__(self, settings: RunSettings) -> None:
        self._common = dict(common_settings(settings))

    def begin(self) -> int:
        return 2

    def send(self, index: int, message: object) -> None:
        pass

    def messages(self, _: float) -> Iterator[tuple[int, Ready]]:
        yield 1, Ready(1, settings=self._common)
        yield 0, Ready(1, settings=self._common | {"schedule": "0" * 64})

    def skew(self, index: int, _: Ready) -> float:
        return -3.25 * index

    def name(self, index: int) -> str:
        return f"worker {index}"


def test_every_worker_that_cannot_take_part_is_named() -> None:
    settings = run_flags()
    pool: Any = _Refusing(settings)
    assert refusal(lambda: MasterRun(settings, LoadCollector(settings.slos), pool)) == (
        "worker 0: has other settings than the master: schedule; start all with the same version, files and "
        "VLLM_SLO_* variables\n"
        "worker 1: its clock is 3.2 s behind the master's; synchronise both, for example by NTP"
    )


def test_other_greenlets_run_while_a_schedule_is_hashed() -> None:
    settings, turns = run_flags("2m"), 0

    def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            gevent.sleep(0)

    greenlet = gevent.spawn(turn)
    try:
        common_settings(settings)
    finally:
        greenlet.kill()
    assert turns >= len(list(settings.plan.schedule)) // 100 > 1


def run_flags(duration: str = "2s") -> RunSettings:
    target = ("--target", "http://127.0.0.1:1", "--out", "unused", "--no-check", "--model", "m")
    return from_arguments(parsed("--scenario", "demo", *target, "--duration", duration))
