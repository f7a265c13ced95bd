"""Looks at one engine at an interval: its metrics, its models and version, what it shows of its configuration."""

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import Any

import aiohttp
import msgspec

from exporters.engines.engine_settings import of_models, of_server_info
from exporters.engines.engine_state import EngineState
from exporters.engines.normalisation import Reading, read
from exporters.engines.scrape_targets import Target
from exporters.engines.signal_table import VLLM

IDENTITY_SECONDS = 30.0
"""How often models and version are asked for although nothing seems to have changed."""

IDENTITY_PATIENCE = 1.0
"""How long each of them may hold up the next look."""

HUNG_SECONDS = 5.0
"""When to ask again what did not answer in that time: at once would slow down every look."""

SERVER_INFO = "/server_info?config_format=json"
"""vLLM has it where VLLM_SERVER_DEV_MODE is set; it looks around for some seconds before it answers first."""

SERVER_INFO_TRIES = 6
"""Over half a minute; until then nobody knows whether a changed fingerprint will get its name."""

AWAY_SECONDS = 1.0
"""How often an engine that does not answer is looked for."""

LARGEST_PAGE = 64 * 1024 * 1024
"""Bytes, decompressed; one rank of vLLM is 60 KiB. Half a page would be worse than none: its counters seem to fall."""

# OpenMetrics is read too (vLLM's Rust frontend knows nothing else) but not asked for: Python's client library looks at
# no q, and writes vllm_ there for vllm: .
_ACCEPT = {"accept": "text/plain;version=0.0.4, */*;q=0.1"}


class TooLargeError(ValueError):
    """A page beyond `LARGEST_PAGE`."""


class Scraper:
    """Keeps an `EngineState` fresh; a slow or broken engine only makes it stale."""

    def __init__(
        self,
        target: Target,
        interval: float,
        on_models: Callable[[tuple[str, ...]], None],
        tls: ssl.SSLContext,
        on_look: Callable[[], None] = lambda: None,
    ) -> None:
        self._target = target
        self._interval = interval
        self._on_models = on_models
        self._tls = tls
        self._on_look = on_look
        self._told: dict[str, str] = {}  # of this process's settings, by pages other than its metrics
        self._server_info_tries = 0
        self._identify_at = 0.0
        self._timeout = aiohttp.ClientTimeout(total=max(interval, 2.0))
        self.state = EngineState(target.name)

    async def run(self) -> None:
        """Scrape for ever, each interval once."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        connector = aiohttp.TCPConnector(ssl=self._tls)
        async with aiohttp.ClientSession(timeout=self._timeout, connector=connector) as session:
            while True:
                await self.scrape(session)
                self._on_look()
                # A model's name must be known before its first requests end, or they count as `other`.
                interval = self._interval if self.state.up else min(self._interval, AWAY_SECONDS)
                due = max(due + interval, loop.time())
                await asyncio.sleep(due - loop.time())

    async def scrape(self, session: aiohttp.ClientSession) -> None:
        """One look; a failure is counted and makes the engine `down`."""
        state, started = self.state, self.state.reading.start_time
        reading = await self._look(session)
        if isinstance(reading, str):
            state.errors[reading] += 1
            state.up = False
            if reading == "status" and time.monotonic() > self._identify_at:
                await self._identify(session)  # it serves: an engine may show metrics only where a flag asks for them
            return
        for reason in +reading.faults:
            state.errors[reason] += 1  # looks, not lines: a page of garbage is one event
        came_up = not state.up or reading.start_time != started
        state.reading, state.good_at = reading, time.monotonic()
        if came_up:
            self._told = {}
            self._server_info_tries = SERVER_INFO_TRIES if reading.engine is VLLM else 0
        if came_up or time.monotonic() > self._identify_at:
            await self._identify(session)
        state.watch.more_to_come = self._server_info_tries > 0
        state.watch.observe({**self._told, **reading.settings}, reading.start_time, time.time())
        state.up = True

    async def _look(self, session: aiohttp.ClientSession) -> Reading | str:
        """What the metrics page says, or the reason why not."""
        try:
            body = await _fetch(session, self._target.metrics)
            # A bad byte costs its line. Beside the loop: a page of 1,500 samples takes 20 ms, the largest a second.
            return await asyncio.to_thread(read, body.decode(errors="replace"))
        except aiohttp.ClientResponseError:
            return "status"
        except aiohttp.ClientPayloadError:
            return "payload"
        except TimeoutError:
            return "timeout"
        except (aiohttp.ClientError, OSError):
            return "connection"
        except TooLargeError:
            return "size"
        except ValueError:
            return "parse"

    async def _identify(self, session: aiohttp.ClientSession) -> None:
        """Ask for the models, the version and more; an engine that has no such page keeps what was known."""
        self._identify_at = time.monotonic() + IDENTITY_SECONDS
        engine = self.state.reading.engine
        path, field = engine.version_page if engine is not None else ("/version", "version")
        own_models = f"{self._target.itself}/v1/models"

        def models(told: Any) -> None:
            self.state.models = tuple(str(model["id"]) for model in told["data"])
            self._on_models(self.state.models)
            if own_models == self._target.models:
                settings(told)

        def settings(told: Any) -> None:
            self._told.update(of_models(told))

        def version(told: Any) -> None:
            self.state.version = self._told["version"] = str(told[field])

        def server_info(told: Any) -> None:
            self._told.update(of_server_info(told))

        pages = [(self._target.models, models), (f"{self._target.itself}{path}", version)]
        if own_models != self._target.models:  # a gateway's list is of no one engine
            pages.append((own_models, settings))
        tries = self._server_info_tries
        if tries:
            pages.append((f"{self._target.itself}{SERVER_INFO}", server_info))
            self._server_info_tries = 0  # whatever it answers, in this process's life it will answer the same
        for url, take in pages:
            try:
                async with asyncio.timeout(IDENTITY_PATIENCE):
                    take(msgspec.json.decode(await _fetch(session, url)))
            except aiohttp.ClientResponseError:
                pass  # no such page
            except TimeoutError:
                self._identify_at = time.monotonic() + HUNG_SECONDS
                if take is server_info:
                    self._server_info_tries = tries - 1
            except (aiohttp.ClientError, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
                self._identify_at = 0.0  # half an answer: ask again at the next scrape


async def _fetch(session: aiohttp.ClientSession, url: str) -> bytes:
    async with session.get(url, headers=_ACCEPT) as response:
        response.raise_for_status()
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > LARGEST_PAGE:
                raise TooLargeError(url)
        return bytes(body)
