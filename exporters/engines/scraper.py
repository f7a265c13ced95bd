"""Scrapes one engine at an interval: its metrics, its models, its version and its settings."""

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import Any

import aiohttp
import msgspec

from exporters.engines.engine_settings import models_settings, server_info_settings
from exporters.engines.engine_state import EngineState
from exporters.engines.normalisation import EngineMetrics, normalise
from exporters.engines.scrape_targets import Target
from exporters.engines.signal_table import VLLM
from exporters.engines.table_schema import EngineType

IDENTITY_SECONDS = 30.0
"""The interval at which models and version are requested while the process stays the same."""

IDENTITY_TIMEOUT_SECONDS = 1.0
"""The time that each of these pages may delay the next scrape."""

RETRY_SECONDS = 5.0
"""The interval after one of these pages has timed out: a request at each scrape would slow down all scrapes."""

SERVER_INFO = "/server_info?config_format=json"
"""vLLM serves it with VLLM_SERVER_DEV_MODE=1; its first response takes some seconds, for collecting the environment."""

SERVER_INFO_TRIES = 6
"""Half a minute; until then, a changed fingerprint may still be explained by a setting of that page."""

DOWN_SECONDS = 1.0
"""The longest interval between scrapes of an engine that is down."""

MAX_PAGE_BYTES = 64 * 1024 * 1024
"""Decompressed; one rank of vLLM is 60 KiB. A larger page is not cut, because its counters would seem to decrease."""

# Not OpenMetrics: in that format Python's client library writes `vllm_` in place of `vllm:`, and it ignores `q`. vLLM's
# Rust frontend sends it all the same.
_HEADERS = {"accept": "text/plain;version=0.0.4, */*;q=0.1"}


class PageTooLargeError(ValueError):
    """A page larger than `MAX_PAGE_BYTES`."""


class Scraper:
    """Updates one `EngineState`; a slow or broken engine only makes it stale."""

    def __init__(
        self,
        target: Target,
        interval: float,
        on_models: Callable[[tuple[str, ...]], None],
        tls: ssl.SSLContext,
        on_scrape: Callable[[], None] = lambda: None,
    ) -> None:
        self._target = target
        self._interval = interval
        self._on_models = on_models
        self._tls = tls
        self._on_scrape = on_scrape
        self._page_settings: dict[str, str] = {}  # of the present process, from pages other than its metrics
        self._server_info_tries = 0
        self._identify_at = 0.0
        self._timeout = aiohttp.ClientTimeout(total=max(interval, 2.0))
        self.state = EngineState(target.name)

    async def run(self) -> None:
        """Scrape once per interval, for ever."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        connector = aiohttp.TCPConnector(ssl=self._tls)
        async with aiohttp.ClientSession(timeout=self._timeout, connector=connector) as session:
            while True:
                await self.scrape(session)
                self._on_scrape()
                # The names of models must be known before their first requests end, or these count as `other`.
                interval = self._interval if self.state.up else min(self._interval, DOWN_SECONDS)
                due = max(due + interval, loop.time())
                await asyncio.sleep(due - loop.time())

    async def scrape(self, session: aiohttp.ClientSession) -> None:
        """Scrape once; a failure is counted and makes the engine `down`."""
        state = self.state
        metrics = await self._fetch_metrics(session)
        if isinstance(metrics, str):
            state.errors[metrics] += 1
            state.up = False
            if metrics == "status" and time.monotonic() > self._identify_at:
                # The engine serves, but may need a flag to expose metrics.
                await self._identify(session, state.metrics.engine_type)
            return
        for reason in +metrics.faults:
            state.errors[reason] += 1  # counts scrapes, not lines: a page of garbage is one event
        came_up = not state.up or metrics.start_time != state.metrics.start_time
        if came_up:
            self._page_settings = {}
            self._server_info_tries = SERVER_INFO_TRIES if metrics.engine_type is VLLM else 0
            self._observe_settings(metrics)  # before the other pages: responses already carry the new fingerprint
        if came_up or time.monotonic() > self._identify_at:
            await self._identify(session, metrics.engine_type)
        self._observe_settings(metrics)
        state.metrics, state.last_success_at = metrics, time.monotonic()
        state.up = True

    def _observe_settings(self, metrics: EngineMetrics) -> None:
        watch = self.state.watch
        watch.settings_pending = self._server_info_tries > 0
        watch.observe({**self._page_settings, **metrics.settings}, metrics.start_time, time.time())

    async def _fetch_metrics(self, session: aiohttp.ClientSession) -> EngineMetrics | str:
        """The content of the metrics page, or the reason of the failure."""
        try:
            body = await _fetch(session, self._target.metrics_url)
            # An invalid byte invalidates its line. In a thread: 1,500 samples take 20 ms, the largest page a second.
            return await asyncio.to_thread(normalise, body.decode(errors="replace"))
        except aiohttp.ClientResponseError:
            return "status"
        except aiohttp.ClientPayloadError:
            return "payload"
        except TimeoutError:
            return "timeout"
        except (aiohttp.ClientError, OSError):
            return "connection"
        except PageTooLargeError:
            return "size"
        except ValueError:
            return "parse"

    async def _identify(self, session: aiohttp.ClientSession, engine_type: EngineType | None) -> None:
        """Request the models, the version and the settings; a page that an engine does not have changes nothing."""
        self._identify_at = time.monotonic() + IDENTITY_SECONDS
        base_url, models_url = self._target.base_url, self._target.models_url
        path, key = engine_type.version_page if engine_type is not None else ("/version", "version")
        own_models_url = f"{base_url}/v1/models"

        def read_models(page: Any) -> None:
            self.state.models = tuple(str(model["id"]) for model in page["data"])
            self._on_models(self.state.models)
            if own_models_url == models_url:
                read_model_settings(page)

        def read_model_settings(page: Any) -> None:
            self._page_settings.update(models_settings(page))

        def read_version(page: Any) -> None:
            self.state.version = self._page_settings["version"] = str(page[key])

        def read_server_info(page: Any) -> None:
            self._page_settings.update(server_info_settings(page))

        pages = [(models_url, read_models), (f"{base_url}{path}", read_version)]
        if own_models_url != models_url:  # a gateway's list is that of several engines
            pages.append((own_models_url, read_model_settings))
        tries = self._server_info_tries
        if tries:
            pages.append((f"{base_url}{SERVER_INFO}", read_server_info))
            self._server_info_tries = 0  # its response stays the same for the life of the process
        for url, read_page in pages:
            try:
                async with asyncio.timeout(IDENTITY_TIMEOUT_SECONDS):
                    read_page(msgspec.json.decode(await _fetch(session, url)))
            except aiohttp.ClientResponseError:
                pass  # no such page
            except TimeoutError:
                self._identify_at = time.monotonic() + RETRY_SECONDS
                if read_page is read_server_info:
                    self._server_info_tries = tries - 1
            except (aiohttp.ClientError, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
                self._identify_at = 0.0  # an incomplete response: request it again at the next scrape


async def _fetch(session: aiohttp.ClientSession, url: str) -> bytes:
    async with session.get(url, headers=_HEADERS) as response:
        response.raise_for_status()
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > MAX_PAGE_BYTES:
                raise PageTooLargeError(url)
        return bytes(body)
