"""Serves the simulated engine and restarts it on the same port after each config change."""

import asyncio
import logging
import os
import time
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from compose.simulator.engine_flags import EngineFlags
from compose.simulator.engine_loop import EngineLoop
from compose.simulator.presets import Preset
from compose.simulator.vllm_api import VllmApi
from exporters.addresses import Address
from exporters.errors import UsageError

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
    """A start of the engine; `at` in unix seconds."""

    flags: EngineFlags
    at: float


class Simulator:
    """Runs until `stop` is called; `port` is valid once `listening` is set."""

    def __init__(self, config: SimulatorConfig) -> None:
        self.listening = asyncio.Event()
        self.port = config.port
        self._config = config
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        self._stopped.set()

    async def run(self) -> None:
        """Serve, and restart after each config change."""
        start: _Start | None = _Start(self._config.flags, time.time())
        while start is not None and not self._stopped.is_set():
            start = await self._serve(start)
            if start is not None:
                await self._wait_before_restart()

    async def _serve(self, start: _Start) -> _Start | None:
        """Serve until a config change or `stop`; returns the next start after a config change."""
        config = self._config
        next_start: asyncio.Future[_Start] = asyncio.get_running_loop().create_future()

        def restart(flags: EngineFlags) -> None:
            if not next_start.done():
                next_start.set_result(_Start(flags, time.time()))

        engine_loop = EngineLoop(start.flags, config.preset, model=config.model, started=start.at)
        api = VllmApi(
            engine_loop, config.preset, model=config.model, restart=restart, invalid_output=config.invalid_output
        )
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

    async def _wait_before_restart(self) -> None:
        try:
            await asyncio.wait_for(self._stopped.wait(), self._config.restart_seconds)
        except TimeoutError:
            return


def _reason(error: OSError) -> str:
    # asyncio adds text to the system's reason; a failed DNS lookup has no error number of the system
    return os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error.strerror or error)
