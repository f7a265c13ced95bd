"""A system that refuses to start threads, as under a limit of processes."""

import threading

import pytest

REASON = "can't start new thread"


def refuse_threads(monkeypatch: pytest.MonkeyPatch, after: int = 0) -> None:
    """Let each start of a thread fail, after this number of starts."""
    start, started = threading.Thread.start, 0

    def refuse(thread: threading.Thread) -> None:
        nonlocal started
        started += 1
        if started > after:
            raise RuntimeError(REASON)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
