"""Work in threads that are started at once, and by the caller if the system refuses them."""

import threading

import pytest

from exporters.processes.worker_threads import ThreadsRefusedError, WorkerThreads, require_threads
from tests.support.refused_threads import REASON, refuse_threads


def test_work_is_done_in_threads_that_run_before_the_first_task(monkeypatch: pytest.MonkeyPatch) -> None:
    with WorkerThreads(2, "work") as threads:
        refuse_threads(monkeypatch)  # a limit that is reached later has no effect
        both = threading.Barrier(2)
        waiting = [threads.submit(both.wait) for _ in range(2)]
        assert {each.result() for each in waiting} == {0, 1}
        assert threads.submit(threading.get_ident).result() != threading.get_ident()


def test_without_threads_the_caller_does_the_work_and_the_lack_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refuse_threads(monkeypatch, after=1)
    with WorkerThreads(2, "work") as threads:
        assert threads.submit(threading.get_ident).result() == threading.get_ident()
        failed = threads.submit(int, "x")
        assert isinstance(failed.exception(), ValueError)
    assert caplog.messages == [f"work: {REASON}; other work waits for it"]


def test_threads_that_are_required_and_refused_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    require_threads(3)
    refuse_threads(monkeypatch, after=2)
    require_threads(3)  # the library has them
    with pytest.raises(ThreadsRefusedError, match=REASON):
        require_threads(4)
