"""Waits for a condition; the limit only guards against a hang, so that no test depends on the machine's speed."""

import asyncio
import inspect
import time
from collections.abc import Callable

HANG = 60.0
"""Seconds after which a condition will never hold: far more than a busy machine takes."""


async def until(condition: Callable[[], object], seconds: float = HANG) -> None:
    """Wait until a condition, plain or awaited, holds."""
    async with asyncio.timeout(seconds):
        while True:
            result = condition()
            if await result if inspect.isawaitable(result) else result:
                return
            await asyncio.sleep(0.005)


def wait_until(condition: Callable[[], bool], seconds: float = HANG) -> bool:
    """The same without a loop; whether the condition holds."""
    limit = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < limit:
        time.sleep(0.02)
    return holds
