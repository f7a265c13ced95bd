"""A steady load of short streams on the lab."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import aiohttp

from compose.lab.running import Lab

# Requests per second; an engine with one slot serves half of them.
RATE = 20.0


@contextlib.asynccontextmanager
async def offered(lab: Lab) -> AsyncIterator[None]:
    """Short streams at a steady rate, regardless of their outcome."""
    model = str((await (await lab.http.get(lab.config.ports.url("relay") + "/v1/models")).json())["data"][0]["id"])
    body = {"model": model, "stream": True, "max_tokens": 8, "messages": [{"role": "user", "content": "hello"}]}

    async def send() -> None:
        with contextlib.suppress(aiohttp.ClientError):
            async with lab.http.post(lab.config.ports.url("relay") + "/v1/chat/completions", json=body) as response:
                await response.read()

    async def send_all() -> None:
        async with asyncio.TaskGroup() as open_requests:
            while True:
                open_requests.create_task(send())
                await asyncio.sleep(1 / RATE)

    load = asyncio.create_task(send_all())
    try:
        yield
    finally:
        load.cancel()
        await asyncio.gather(load, return_exceptions=True)
