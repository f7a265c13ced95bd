"""Scrapes the metrics, models, version and settings of one engine at an interval."""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from math import inf
from typing import Any

import aiohttp
import msgspec

from exporters.engines.bearer_token import DENIED, AccessLog, EngineToken, shown_url
from exporters.engines.normalisation import EngineMetrics, normalise
from exporters.engines.scrape_targets import Target
from exporters.engines.server_info import ServerInfoReader
from exporters.engines.settings import models_settings
from exporters.engines.signal_table import VLLM
from exporters.engines.state import MODELS_UNAUTHORIZED, UNAUTHORIZED, EngineState
from exporters.engines.table_schema import EngineType
from exporters.text.connect_errors import connect_reason
from exporters.text.names import cut
from exporters.text.outage_log import OutageLog

IDENTITY_SECONDS = 30.0
"""Interval of the requests for models and version while the process stays the same."""

IDENTITY_TIMEOUT_SECONDS = 1.0
"""Timeout of each of these requests, because they delay the next scrape."""

RETRY_SECONDS = 5.0
"""Interval after one of these requests timed out or was denied; one at each scrape would slow down all scrapes."""

HURRY_SECONDS = 5.0
"""The longest interval while requests wait and nothing moves, so that it is soon known whether that is so."""

DOWN_SECONDS = 1.0
"""The longest interval between scrapes of an engine that is down."""

MAX_RESPONSE_BYTES = 64 * 1024 * 1024
"""The maximum after decompression; one rank of vLLM has 60 KiB. Larger responses fail, because truncated counters may
seem to decrease."""

_IS_PAUSED = "/is_paused"
"""Served with VLLM_SERVER_DEV_MODE=1."""

# Not OpenMetrics: in that format Python's client library writes `vllm_` instead of `vllm:`, and it ignores `q`. vLLM's
# Rust frontend sends OpenMetrics regardless.
_HEADERS = {"accept": "text/plain;version=0.0.4, */*;q=0.1"}


logger = logging.getLogger("vllm_slo.engines")


class ResponseTooLargeError(ValueError):
    """A response larger than `MAX_RESPONSE_BYTES`."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """The reason of a failed scrape: a label value, and a text for the log."""

    reason: str
    text: str


class Scraper:
    """Updates one `EngineState`, which becomes stale while the engine does not respond."""

    def __init__(
        self,
        target: Target,
        interval: float,
        on_models: Callable[[tuple[str, ...]], None],
        tls: ssl.SSLContext,
        on_scrape: Callable[[], None] = lambda: None,
        token: EngineToken | None = None,
    ) -> None:
        self._target = target
        self.set_interval(interval)
        self._on_models = on_models
        self._tls = tls
        self._on_scrape = on_scrape
        self._token = token
        self._access = AccessLog(has_token=token is not None)
        url = shown_url(target.metrics_url)
        self._outages = OutageLog(logger, f"the metrics of engine {target.name} at {url}", "read")
        # Settings of the current process, from responses other than its metrics.
        self._identity_settings: dict[str, str] = {}
        self._server_info = ServerInfoReader(self._fetch, target.base_url)
        self._identify_at = 0.0
        self._ask_paused_at = inf
        """`inf` if this process does not have the endpoint."""
        self._begun_at = 0.0
        self._hurry = asyncio.Event()
        self.state = EngineState(target.name)

    def set_interval(self, interval: float) -> None:
        """Scrape at this interval after the next scrape."""
        self.interval = interval
        self._timeout = max(interval, 2.0)

    def hurry(self, age: float = HURRY_SECONDS) -> None:
        """Scrape now, unless the last scrape began less than `age` seconds ago."""
        if time.monotonic() - self._begun_at >= age:
            self._hurry.set()

    async def run(self) -> None:
        """Scrape once per interval, forever."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        connector = aiohttp.TCPConnector(ssl=self._tls)
        with closing(self._server_info):
            async with aiohttp.ClientSession(connector=connector) as session:
                while True:
                    await self.scrape(session)
                    self._on_scrape()
                    # A request counts as model `other` if it ends before the models of the engine are known.
                    interval = self.interval if self.state.up else min(self.interval, DOWN_SECONDS)
                    due = max(due + interval, loop.time())
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._hurry.wait(), due - loop.time())
                        due = loop.time()

    async def scrape(self, session: aiohttp.ClientSession) -> None:
        """Scrape once; a failure is counted and makes the engine `down`."""
        state = self.state
        self._begun_at = time.monotonic()
        self._hurry.clear()
        metrics = await self._fetch_metrics(session)
        if isinstance(metrics, _Failure):
            state.errors[metrics.reason] += 1
            state.up, state.failure = False, metrics.reason
            if metrics.reason != UNAUTHORIZED:  # the access log has it
                self._outages.failed(cut(metrics.text), time.monotonic())
            if metrics.reason in {"status", UNAUTHORIZED} and time.monotonic() > self._identify_at:
                # The engine is up, but may expose metrics only with a flag.
                await self._identify(session, state.metrics.engine_type)
            return
        if metrics.engine_type is None:
            self._outages.failed("the response has no series of a known engine", time.monotonic())
        else:
            self._outages.succeeded(time.monotonic())
        for reason in +metrics.faults:
            # One per scrape, not one per line.
            state.errors[reason] += 1
        came_up = not state.up or metrics.start_time != state.metrics.start_time
        if came_up:
            self._identity_settings = {}
            self._ask_paused_at = 0.0 if metrics.engine_type is VLLM else inf
            self._server_info.start_over(is_vllm=metrics.engine_type is VLLM)
            # Before the other requests, because completions already have the new fingerprint.
            self._observe_settings(metrics)
        if came_up or time.monotonic() > self._identify_at:
            await self._identify(session, metrics.engine_type)
        await self._server_info.read(session, IDENTITY_TIMEOUT_SECONDS if came_up else 0.0)
        self._observe_settings(metrics)
        state.generation_paused = await self._is_paused(session)
        state.metrics, state.last_success_at = metrics, time.monotonic()
        state.up, state.failure = True, None

    def _observe_settings(self, metrics: EngineMetrics) -> None:
        watch = self.state.watch
        watch.settings_pending = self._server_info.pending
        settings = {**self._identity_settings, **self._server_info.settings, **metrics.settings}
        watch.observe({cut(name): cut(value) for name, value in settings.items()}, metrics.start_time, time.time())

    async def _fetch_metrics(self, session: aiohttp.ClientSession) -> EngineMetrics | _Failure:
        """The content of the `/metrics` response, or why there is none."""
        try:
            async with asyncio.timeout(self._timeout):
                body = await self._fetch(session, self._target.metrics_url)
            self._access.accepted(self._target.metrics_url)
            # An invalid byte invalidates its line. In a thread: 1,500 samples take 20 ms, the largest response 1 s.
            return await asyncio.to_thread(normalise, body.decode(errors="replace"))
        except aiohttp.ClientResponseError as error:
            if error.status not in DENIED:
                is_http = error.__cause__ is None
                return _Failure("status", f"HTTP {error.status}" if is_http else "the response is not HTTP")
            self._access.denied(self._target.metrics_url, error.status, "llm_engine_up is 0")
            return _Failure(UNAUTHORIZED, f"HTTP {error.status}")
        except aiohttp.ClientPayloadError:
            return _Failure("payload", "the response is incomplete")
        except TimeoutError:
            return _Failure("timeout", f"no response within {self._timeout:g} s")
        except aiohttp.ClientConnectorCertificateError as error:
            return _Failure("connection", connect_reason(error.certificate_error))
        except aiohttp.ClientConnectorError as error:
            return _Failure("connection", connect_reason(error.os_error))
        except (aiohttp.ClientError, OSError) as error:
            return _Failure("connection", connect_reason(error))
        except ResponseTooLargeError:
            return _Failure("size", f"the response is larger than {MAX_RESPONSE_BYTES // 1024**2} MiB")
        except ValueError as error:
            return _Failure("parse", f"the response is not an exposition: {error}")

    async def _identify(self, session: aiohttp.ClientSession, engine_type: EngineType | None) -> None:
        """Request the models and the version; an endpoint that the engine does not have is ignored."""
        self._identify_at = time.monotonic() + IDENTITY_SECONDS
        base_url, models_url = self._target.base_url, self._target.models_url
        path, key = engine_type.version_endpoint if engine_type is not None else ("/version", "version")
        own_models_url = f"{base_url}/v1/models"

        def read_models(body: Any) -> dict[str, str]:
            self.state.models = tuple(str(model["id"]) for model in body["data"])
            self._on_models(self.state.models)
            # A gateway lists the models of several engines.
            return models_settings(body) if own_models_url == models_url else {}

        def read_version(body: Any) -> dict[str, str]:
            self.state.version = cut(str(body[key]))
            return {"version": self.state.version}

        requests = [(models_url, read_models), (f"{base_url}{path}", read_version)]
        if own_models_url != models_url:
            requests.append((own_models_url, models_settings))
        for url, read in requests:
            try:
                async with asyncio.timeout(IDENTITY_TIMEOUT_SECONDS):
                    self._identity_settings.update(read(msgspec.json.decode(await self._fetch(session, url))))
                if read is read_models:
                    self._access.accepted(url)
            except aiohttp.ClientResponseError as error:
                # With another status, the engine does not have this endpoint.
                if read is read_models and error.status in DENIED:
                    self.state.errors[MODELS_UNAUTHORIZED] += 1
                    self._access.denied(url, error.status, "models that --model does not name count as `other`")
                    self._identify_at = time.monotonic() + RETRY_SECONDS
            except TimeoutError:
                self._identify_at = time.monotonic() + RETRY_SECONDS
            except (aiohttp.ClientError, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
                # The response is incomplete: request it again at the next scrape.
                self._identify_at = 0.0

    async def _is_paused(self, session: aiohttp.ClientSession) -> bool:
        """Whether vLLM says that generation is paused; unknown, as from a core that does not answer, is not a pause."""
        if time.monotonic() < self._ask_paused_at:
            return False
        try:
            async with asyncio.timeout(IDENTITY_TIMEOUT_SECONDS):
                body = msgspec.json.decode(await self._fetch(session, f"{self._target.base_url}{_IS_PAUSED}"))
            return bool(body["is_paused"])
        except TimeoutError:
            self._ask_paused_at = time.monotonic() + RETRY_SECONDS
        except (aiohttp.ClientError, OSError, ValueError, KeyError, TypeError):
            self._ask_paused_at = inf
        return False

    async def _fetch(self, session: aiohttp.ClientSession, url: str) -> bytes:
        # aiohttp removes the token from a request that is redirected to another host.
        headers = _HEADERS if self._token is None else _HEADERS | self._token.headers(url)
        async with session.get(url, headers=headers) as response:
            response.raise_for_status()
            body = bytearray()
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > MAX_RESPONSE_BYTES:
                    raise ResponseTooLargeError(url)
            return bytes(body)
