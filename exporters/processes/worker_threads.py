"""Threads that are started at once: a limit of the system may refuse them later, and without them the caller works."""

import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import cache
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")

GRPC_THREADS = max(4, min(16, os.cpu_count() or 1)) + 6
"""Threads of gRPC: its core has one per core of the machine within these bounds."""

logger = logging.getLogger("vllm_slo.threads")


@cache
def require_threads(count: int) -> None:
    """Check once that threads can be started, for a library that aborts the process without them.

    Raises:
        ThreadsRefusedError: the system refuses them.
    """
    _started(count, "test").shutdown()


class ThreadsRefusedError(RuntimeError):
    """The system does not allow so many threads."""


def _started(count: int, name: str) -> ThreadPoolExecutor:
    pool = ThreadPoolExecutor(count, name)
    all_started = threading.Event()
    try:
        for _ in range(count):
            pool.submit(all_started.wait)  # a thread that waits cannot take the next task
    except RuntimeError as error:
        raise ThreadsRefusedError(*error.args) from error
    finally:
        all_started.set()
    return pool


class WorkerThreads(Executor):
    """Does work in threads, or in that of the caller if the system has refused to start one of them."""

    def __init__(self, count: int, name: str) -> None:
        self._pool: ThreadPoolExecutor | None = None
        try:
            self._pool = _started(count, name)
        except ThreadsRefusedError as error:
            logger.warning("%s: %s; other work waits for it", name, error)

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> "Future[_T]":
        if self._pool is not None:
            return self._pool.submit(fn, *args, **kwargs)
        future: Future[_T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - as in a thread
            future.set_exception(error)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait, cancel_futures=cancel_futures)
