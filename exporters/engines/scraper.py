"""Looks at one engine at an interval: its /metrics, its models and version, and what it shows of its configuration."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import aiohttp
from prometheus_client.core import Metric

from exporters import signals
from exporters.engines.exposition import LABELS_OF_VALUES, VLLM, Reading, read
from exporters.engines.flips import ConfigWatch
from exporters.sidecar.tally import counter, gauge
from exporters.signals import Kind

IDENTITY_SECONDS = 30.0
"""How often models and version are asked for although nothing seems to have changed."""

AWAY_SECONDS = 1.0
"""How often an engine that does not answer is looked for."""

REASONS = ("connection", "timeout", "status", "parse")


@dataclass(slots=True)
class EngineState:
    """What the last scrapes have found of one engine."""

    name: str
    up: bool = False
    reading: Reading = field(default_factory=Reading)
    version: str | None = None
    models: tuple[str, ...] = ()
    errors: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    watch: ConfigWatch = field(default_factory=ConfigWatch)

    def collect(self) -> Iterator[Metric]:
        """The engine's families; what is not known is absent, not zero."""
        name, reading, watch = self.name, self.reading, self.watch
        yield gauge(signals.ENGINE_UP, [((name,), float(self.up))])
        yield counter(signals.ENGINE_SCRAPE_ERRORS, [((name, reason), float(n)) for reason, n in self.errors.items()])
        if self.up:
            for signal in VLLM:
                if (values := reading.values.get(signal)) is None:
                    continue
                assert signal.labels == LABELS_OF_VALUES  # noqa: S101 - the table's own promise
                family = counter if signal.kind is Kind.COUNTER else gauge
                yield family(signal, [((name, rank, model), value) for (rank, model), value in values.items()])
            yield gauge(signals.ENGINE_KV_CAPACITY, [((name, r), v) for r, v in reading.kv_capacity.items()])
            if reading.start_time is not None:
                yield gauge(signals.ENGINE_START_TIME, [((name,), reading.start_time)])
            yield gauge(signals.ENGINE_INFO, [((name, reading.engine_type, self.version or "unknown"), 1.0)])
        if watch.revision is not None:
            yield gauge(signals.ENGINE_CONFIG_INFO, [((name, watch.revision), 1.0)])
            yield gauge(signals.ENGINE_SETTING_INFO, [((name, *item), 1.0) for item in sorted(watch.settings.items())])
        changes = watch.changes.values()
        yield gauge(signals.ENGINE_CONFIG_CHANGE, [((name, c.setting, c.old, c.new), c.at) for c in changes])


class Scraper:
    """Keeps an `EngineState` fresh; a slow or broken engine only makes it stale."""

    def __init__(
        self, upstream: str, metrics_url: str | None, interval: float, on_models: Callable[[tuple[str, ...]], None]
    ) -> None:
        self._upstream = upstream.rstrip("/")
        self._metrics_url = metrics_url or f"{self._upstream}/metrics"
        self._interval = interval
        self._on_models = on_models
        self._identified_at = float("-inf")
        self._timeout = aiohttp.ClientTimeout(total=max(interval, 2.0))
        self.state = EngineState(urlsplit(upstream).netloc.rpartition("@")[2])  # no credentials in a label

    async def run(self) -> None:
        """Scrape for ever, each interval once."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        async with aiohttp.ClientSession(timeout=self._timeout) as session:
            while True:
                await self.scrape(session)
                # A model's name must be known before its first requests end, or they count as `other`.
                interval = self._interval if self.state.up else min(self._interval, AWAY_SECONDS)
                due = max(due + interval, loop.time())
                await asyncio.sleep(due - loop.time())

    async def scrape(self, session: aiohttp.ClientSession) -> None:
        """One look; a failure is counted and makes the engine `down`."""
        state, started = self.state, self.state.reading.start_time
        text = await self._counted(self._text(session, self._metrics_url))
        if text is None:
            state.up = False
            return
        try:
            reading = read(text)
        except ValueError:
            state.errors["parse"] += 1
            state.up = False
            return
        came_up = not state.up or reading.start_time != started
        state.reading = reading
        if came_up or time.monotonic() - self._identified_at > IDENTITY_SECONDS:
            await self._identify(session)
        settings = dict(reading.settings)
        if state.version is not None:
            settings["version"] = state.version
        state.watch.observe(settings, reading.start_time, time.time())
        state.up = True

    async def _identify(self, session: aiohttp.ClientSession) -> None:
        """Ask for the models and the version; an engine that has neither page keeps what was known."""
        self._identified_at = time.monotonic()
        try:
            async with session.get(f"{self._upstream}/v1/models") as response:
                if response.status == 200:
                    listed = await response.json(content_type=None)
                    self.state.models = tuple(str(model["id"]) for model in listed["data"])
                    self._on_models(self.state.models)
            async with session.get(f"{self._upstream}/version") as response:
                if response.status == 200:
                    self.state.version = str((await response.json(content_type=None))["version"])
        except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, TypeError):
            self._identified_at = float("-inf")  # half an answer: ask again at the next scrape

    async def _text(self, session: aiohttp.ClientSession, url: str) -> str:
        async with session.get(url) as response:
            response.raise_for_status()
            return await response.text()

    async def _counted(self, fetching: Awaitable[str]) -> str | None:
        errors = self.state.errors
        try:
            return await fetching
        except aiohttp.ClientResponseError:
            errors["status"] += 1
        except UnicodeDecodeError:
            errors["parse"] += 1
        except (aiohttp.ClientError, OSError) as error:
            errors["timeout" if isinstance(error, TimeoutError) else "connection"] += 1
        return None
