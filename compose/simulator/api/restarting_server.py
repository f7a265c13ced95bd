"""Serves the simulated engine and restarts it on the same port after each config change and after its outage."""

import asyncio
import logging
import os
import time
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from compose.simulator.api.engine_loop import EngineLoop
from compose.simulator.api.vllm_api import VllmApi
from compose.simulator.engine.flags import EngineFlags
from compose.simulator.presets.preset import Preset
from exporters.text.addresses import Address
from exporters.text.errors import UsageError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatorConfig:
    """The configuration of all starts, and the engine flags of the first start."""

    host: str
    port: int
    preset: Preset
    model: str
    flags: EngineFlags
    restart_seconds: float
    invalid_output: float = 0.0  # share of the JSON outputs


@dataclass(frozen=True, slots=True)
class _Start:
    """A start of the engine, `after` seconds of refused connections; `at` in unix seconds."""

    flags: EngineFlags
    at: float
    after: float = 0.0


class Simulator:
    """Runs until `stop` is called; `port` is valid once `listening` is set."""

    def __init__(self, config: SimulatorConfig) -> None:
        self.listening = asyncio.Event()
        self.port = config.port
        self._config = config
        self._stopped = asyncio.Event()
        self._outage_at: float | None = None  # on the clock of the event loop

    def stop(self) -> None:
        self._stopped.set()

    async def run(self) -> None:
        """Serve, and restart after each config change and after the outage."""
        start: _Start | None = _Start(self._config.flags, time.time())
        if self._config.flags.outage_seconds:
            self._outage_at = asyncio.get_running_loop().time() + self._config.flags.outage_after
        while start is not None and not self._stopped.is_set():
            start = await self._serve(start)
            if start is not None:
                await self._wait_before_restart(start.after)

    async def _serve(self, start: _Start) -> _Start | None:
        """Serve until a config change, the outage or `stop`; returns the next start, if there is one."""
        config, loop = self._config, asyncio.get_running_loop()
        next_start: asyncio.Future[_Start] = loop.create_future()

        def restart(flags: EngineFlags) -> None:
            if not next_start.done():
                next_start.set_result(_Start(flags, time.time(), config.restart_seconds))

        def fail() -> None:
            self._outage_at = None
            if not next_start.done():
                length = start.flags.outage_seconds
                next_start.set_result(_Start(start.flags, time.time() + length, length))

        engine_loop = EngineLoop(start.flags, config.preset, model=config.model, started=start.at)
        api = VllmApi(
            engine_loop, config.preset, model=config.model, restart=restart, invalid_output=config.invalid_output
        )
        outage = None if self._outage_at is None else loop.call_at(self._outage_at, fail)
        runner = web.AppRunner(api.app(), access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        try:
            listener = await self._listen(runner)
            stopped = asyncio.ensure_future(self._stopped.wait())
            either: tuple[asyncio.Future[Any], ...] = (stopped, next_start)
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            self.listening.clear()
            listener.close()
            engine_loop.stop()
            for connection in list(runner.server.connections if runner.server else ()):
                if connection.transport is not None:
                    connection.transport.abort()
        finally:
            if outage is not None:
                outage.cancel()
            await runner.cleanup()
        return next_start.result() if next_start.done() else None

    async def _listen(self, runner: web.AppRunner) -> asyncio.Server:
        config = self._config
        loop = asyncio.get_running_loop()
        if runner.server is None:
            raise RuntimeError("the runner was not set up")
        try:
            listener = await loop.create_server(runner.server, config.host, self.port, backlog=1024)
        except OSError as error:
            raise UsageError(
                f"cannot listen on {Address(config.host, self.port)}: {_reason(error)}; choose another with --listen"
            ) from error
        self.port = listener.sockets[0].getsockname()[1]
        _log.info(
            "serving a SIMULATED vLLM: model %s, preset %s, http://%s, seed %d",
            config.model,
            config.preset.name,
            Address(config.host, self.port),
            config.flags.seed,
        )
        self.listening.set()
        return listener

    async def _wait_before_restart(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopped.wait(), seconds)
        except TimeoutError:
            return


def _reason(error: OSError) -> str:
    # asyncio adds text to the system's reason; a failed DNS lookup has no error number of the system
    return os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error.strerror or error)
