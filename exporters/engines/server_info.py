"""Reads the settings in vLLM's /server_info beside the scrapes, which do not wait for a slow response."""

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp
import msgspec

from exporters.engines.settings import SERVER_INFO, server_info_settings

TIMEOUT_SECONDS = 5.0
"""Timeout of a request: under load vLLM takes more than a second."""

TRIES = 6
"""Half a minute, in which that response may still show the setting that changed the fingerprint."""


class ServerInfoReader:
    """The settings of one process after the other; `pending` while a response may still show more of them."""

    def __init__(self, fetch: Callable[[aiohttp.ClientSession, str], Awaitable[bytes]], base_url: str) -> None:
        self._fetch = fetch
        self._url = f"{base_url}{SERVER_INFO}"
        self._tries = 0
        self._request: asyncio.Task[None] | None = None
        self.settings: dict[str, str] = {}

    @property
    def pending(self) -> bool:
        return self._tries > 0

    def start_over(self, *, is_vllm: bool) -> None:
        """Forget the settings of the earlier process, and request those of the next one if it is vLLM."""
        self.close()
        self._tries, self.settings = TRIES if is_vllm else 0, {}

    def close(self) -> None:
        """End a request that is being sent."""
        if self._request is not None:
            self._request.cancel()
            self._request = None

    async def read(self, session: aiohttp.ClientSession, seconds: float) -> None:
        """Send the request unless it is being sent or has been answered, and wait for `seconds` at most."""
        if self.pending and self._request is None:
            self._request = asyncio.create_task(self._read(session))
            await asyncio.wait([self._request], timeout=seconds)

    async def _read(self, session: aiohttp.ClientSession) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                self.settings = server_info_settings(msgspec.json.decode(await self._fetch(session, self._url)))
            self._tries = 0  # once per process, because the response stays the same
        except TimeoutError:
            self._tries -= 1
        except (aiohttp.ClientError, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self._tries = 0  # the engine does not have this endpoint
        self._request = None
