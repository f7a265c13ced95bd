"""Measures each callback of the event loop of a relay in memory, while one side sends an input."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from exporters.configuration.sidecar import SidecarConfig
from tests.fuzz.wire import CONFIG, Bench, Wire, feed, settle
from tests.support.hostile_inputs import Input
from tests.support.prompt_hashing import Hashing

Cost = TypeVar("Cost")


@dataclass
class Costs(Generic[Cost]):
    """What each callback of the event loop cost, and each call in the thread that hashes prompts."""

    bench: Bench
    loop: list[Cost] = field(default_factory=list)
    thread: list[Cost] = field(default_factory=list)


async def costs_of(
    sent: Input, size: int, measure: Callable[[Callable[[], object]], Cost], config: SidecarConfig = CONFIG
) -> Costs[Cost]:
    """The costs of an input of about `size` bytes; `measure` runs a callback and returns its cost."""
    loop, hashing = asyncio.get_running_loop(), Hashing()
    costs: Costs[Cost] = Costs(Bench(config))
    relay: Executor = hashing
    costs.bench.relay.hashing = relay
    call_soon = loop.call_soon

    def run(callback: Callable[..., object], *arguments: Any) -> None:
        costs.loop.append(measure(partial(callback, *arguments)))
        while hashing.tasks:
            costs.thread.append(measure(hashing.tasks.pop(0)))

    def measured_soon(
        callback: Callable[..., object], *arguments: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if type(getattr(callback, "__self__", None)).__module__.startswith("exporters."):
            return call_soon(run, callback, *arguments, context=context)
        return call_soon(callback, *arguments, context=context)

    async def idle() -> None:
        before = -1
        while len(costs.loop) > before:
            before = len(costs.loop)
            await settle()

    loop.call_soon = measured_soon  # type: ignore[assignment]
    try:
        wire: Wire = costs.bench.client
        if sent.request is not None:
            run(feed, wire, sent.request)
            await idle()
            (wire,) = costs.bench.pool.wires
        for read in sent.reads(size):
            if not wire.is_reading():
                await idle()
            if not wire.is_reading():
                break
            run(feed, wire, read)
            await asyncio.sleep(0)
        await idle()
        if sent.ends:
            wire.lose()
            await idle()
    finally:
        loop.call_soon = call_soon  # type: ignore[method-assign]
    costs.bench.client.lose()
    await settle()
    return costs
