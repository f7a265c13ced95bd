"""Serves one life after another on the same port: a flip resets every connection and closes the port for a while."""

import asyncio
import os
import sys
import time
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from compose.simulator.engine_flags import Settings
from compose.simulator.engine_loop import Life
from compose.simulator.presets import Preset
from compose.simulator.vllm_api import Service
from exporters.addresses import Address
from exporters.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatorConfig:
    """What stays the same across restarts, and the settings of the first life."""

    host: str
    port: int
    preset: Preset
    model: str
    settings: Settings
    restart_seconds: float


@dataclass(frozen=True, slots=True)
class _Birth:
    settings: Settings
    at: float  # unix seconds at which the restart began


class Simulator:
    """Runs until `stop` is called; `port` is known once `listening` is set."""

    def __init__(self, config: SimulatorConfig) -> None:
        self.listening = asyncio.Event()
        self.port = config.port
        self._config = config
        self._stopped = asyncio.Event()
        self._next: asyncio.Future[Settings]

    def stop(self) -> None:
        """End the life that runs, and begin no other."""
        self._stopped.set()

    async def run(self) -> None:
        """Live, restart, live."""
        birth: _Birth | None = _Birth(self._config.settings, time.time())
        while birth is not None and not self._stopped.is_set():
            birth = await self._live(birth)
            if birth is not None:
                await self._wait(self._config.restart_seconds)

    async def _live(self, birth: _Birth) -> _Birth | None:
        """One life; returns the next one's birth, if there is to be one."""
        config = self._config
        flipped: asyncio.Future[_Birth] = asyncio.get_running_loop().create_future()

        def restart(settings: Settings) -> None:
            if not flipped.done():
                flipped.set_result(_Birth(settings, time.time()))

        life = Life(birth.settings, config.preset, model=config.model, started=birth.at)
        service = Service(life, config.preset, model=config.model, restart=restart)
        runner = web.AppRunner(service.app(), access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        try:
            listener = await self._listen(runner)
            stopped = asyncio.ensure_future(self._stopped.wait())
            either: tuple[asyncio.Future[Any], ...] = (stopped, flipped)
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            self.listening.clear()
            listener.close()
            life.end()
            _reset(runner)
        finally:
            await runner.cleanup()
        return flipped.result() if flipped.done() else None

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
        self.listening.set()
        return listener

    async def _wait(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopped.wait(), seconds)
        except TimeoutError:
            return


def announce(config: SimulatorConfig, port: int) -> None:
    """The one line on stderr at start."""
    print(
        f"vllm-slo simulate: a SIMULATED vLLM serves {config.model} as preset {config.preset.name} "
        f"on http://{Address(config.host, port)} (seed {config.settings.seed})",
        file=sys.stderr,
        flush=True,
    )


def _reason(error: OSError) -> str:
    # asyncio wraps the system's text in its own; a failed name look-up has no number of the system
    return os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error.strerror or error)


def _reset(runner: web.AppRunner) -> None:
    for connection in list(runner.server.connections if runner.server else ()):
        if connection.transport is not None:
            connection.transport.abort()
