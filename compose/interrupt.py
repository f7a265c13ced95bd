"""Runs a coroutine that ctrl-c and SIGTERM cancel, so that its `finally` blocks clean up before the process ends."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


class InterruptedBySignalError(Exception):
    """A signal ended the work; `exit_code` is what a shell expects of it."""

    def __init__(self, number: int) -> None:
        self.exit_code = 128 + number
        super().__init__(signal.Signals(number).name)


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """The result of `work`; a second signal cancels what its clean-up awaits.

    Raises:
        InterruptedBySignalError: SIGINT or SIGTERM arrived and `work` has cleaned up.
    """
    return asyncio.run(_guarded(work))


async def _guarded(work: Coroutine[Any, Any, _T]) -> _T:
    task, loop = asyncio.ensure_future(work), asyncio.get_running_loop()
    seen: list[int] = []

    def interrupt(number: int) -> None:
        seen.append(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not seen:
            raise
        raise InterruptedBySignalError(seen[0]) from None
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
