"""The event loop of the exporter, whose threads are started at its start.

The executor of asyncio starts threads as needed, and fails if the system refuses one, also when the loop ends.
"""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple, Unpack

from exporters.processes.worker_threads import WorkerThreads

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

LOOKUPS = WORKERS = 2
"""Threads for lookups of names, which may take long, and for all other work."""


class ThreadedLoop(asyncio.SelectorEventLoop):
    """An event loop with threads of its own instead of a default executor."""

    def __init__(self) -> None:
        super().__init__()
        self._lookups = WorkerThreads(LOOKUPS, "lookups of names")
        self._workers = WorkerThreads(WORKERS, "compression and parsing")

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[_Ts]], _T], *args: *_Ts
    ) -> asyncio.Future[_T]:
        return super().run_in_executor(executor or self._workers, func, *args)

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        def look_up() -> Any:
            return socket.getaddrinfo(host, port, **options)

        return await self.run_in_executor(self._lookups, look_up)

    def close(self) -> None:
        super().close()
        self._lookups.shutdown(wait=False, cancel_futures=True)
        self._workers.shutdown(wait=False, cancel_futures=True)


def run_in_threaded_loop(main: Coroutine[None, None, None]) -> None:
    with asyncio.Runner(loop_factory=ThreadedLoop) as runner:
        runner.run(main)
