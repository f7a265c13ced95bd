"""The thread that hashes the prompts of long bodies, so that the event loop of a relay goes on."""

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from exporters.processes.worker_threads import WorkerThreads
from exporters.relay.bodies.memory import BodyMemory

_Result = TypeVar("_Result")


class HashingThread(WorkerThreads):
    """Runs one function after the other. Until one has run, the bytes among its arguments count as held."""

    def __init__(self, bodies: BodyMemory, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(1, "hashes of long prompts")
        self._bodies = bodies
        self._loop = loop

    def submit(  # type: ignore[override]  # no keyword arguments
        self, function: Callable[..., _Result], /, *arguments: Any
    ) -> Future[_Result]:
        size = sum(len(argument) for argument in arguments if isinstance(argument, bytes))
        self._bodies.hold(size)
        future = super().submit(function, *arguments)
        future.add_done_callback(lambda _: self._release(size))
        return future

    def _release(self, size: int) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, because the process ends
            self._loop.call_soon_threadsafe(self._bodies.release, size)


def is_known(value: object) -> bool:
    """Whether the thread, if it computes the value, has done so."""
    return not isinstance(value, Future) or value.done()


def known(value: _Result | Future[_Result]) -> _Result:
    """The value; waits for the thread if it computes it."""
    return value.result() if isinstance(value, Future) else value
