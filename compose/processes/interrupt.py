"""Runs a coroutine and cancels it on SIGINT and SIGTERM, so that its `finally` blocks run before the process ends."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


class InterruptedBySignalError(Exception):
    """A signal ended the coroutine; `exit_code` is the exit status for the shell."""

    def __init__(self, number: int) -> None:
        self.exit_code = 128 + number
        super().__init__(signal.Signals(number).name)


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """The result of `work`; a second signal also cancels its clean-up.

    Raises:
        InterruptedBySignalError: `work` has ended after SIGINT or SIGTERM.
    """
    return asyncio.run(_guarded(work))


async def _guarded(work: Coroutine[Any, Any, _T]) -> _T:
    task, loop = asyncio.ensure_future(work), asyncio.get_running_loop()
    signals: list[int] = []

    def interrupt(number: int) -> None:
        signals.append(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not signals:
            raise
        raise InterruptedBySignalError(signals[0]) from None
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
