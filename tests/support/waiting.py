"""Waits for conditions; the limit is only a guard against hangs, so no test depends on the speed of the machine."""

import asyncio
import inspect
import time
from collections.abc import Callable

HANG = 120.0
"""Seconds; far more than a busy machine needs."""


async def until(condition: Callable[[], object], seconds: float = HANG) -> None:
    """Wait until a condition, which may be a coroutine function, is true."""
    async with asyncio.timeout(seconds):
        while True:
            result = condition()
            if await result if inspect.isawaitable(result) else result:
                return
            await asyncio.sleep(0.005)


async def growing_pause(began: float) -> None:
    """A twentieth of the time since `began` (monotonic), so that what is repeated does not occupy a busy machine."""
    await asyncio.sleep(max(0.001, (time.monotonic() - began) / 20))


async def cpu_time_until(condition: Callable[[], object]) -> float:
    """The CPU seconds of this process until a condition is true: it waits without a pause, and others do not count."""
    before = time.process_time()
    while not condition():
        await asyncio.sleep(0)
    return time.process_time() - before


def wait_until(condition: Callable[[], bool], seconds: float = HANG) -> bool:
    """The same without an event loop; returns whether the condition is true."""
    limit = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < limit:
        time.sleep(0.02)
    return holds
