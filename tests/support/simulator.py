"""A simulated engine for a test."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

from compose.simulator.api.restarting_server import Simulator, SimulatorConfig
from compose.simulator.engine.flags import preset_flags
from compose.simulator.presets.preset import PRESETS, Preset


@contextlib.asynccontextmanager
async def simulator(
    model: str = "tiny",
    *,
    preset: Preset = PRESETS["toy"],
    max_num_seqs: int | None = None,
    response_cache: bool = False,
    invalid_output: float = 0.0,
) -> AsyncIterator[str]:
    """The URL of a simulated engine."""
    flags = replace(preset_flags(preset), response_cache=response_cache)
    if max_num_seqs is not None:
        flags = replace(flags, max_num_seqs=max_num_seqs)
    config = SimulatorConfig(
        host="127.0.0.1",
        port=0,
        preset=preset,
        model=model,
        flags=flags,
        restart_seconds=0.0,
        invalid_output=invalid_output,
    )
    engine = Simulator(config)
    running = asyncio.create_task(engine.run())
    await engine.listening.wait()
    try:
        yield f"http://127.0.0.1:{engine.port}"
    finally:
        engine.stop()
        await running
