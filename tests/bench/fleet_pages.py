"""The pages of many sidecars, made from the page of one: other engine names, and counters that grow."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from aiohttp import web

from compose.lab.ports import HOST

GROWING = ("counter", "histogram")
"""Types whose samples grow; all others are constant."""

PERIOD = 60.0
"""Seconds in which each counter grows by its first value, so that ratios stay as they are."""


class FleetPages:
    """`page` is the text of /metrics, in Prometheus' text format, of a sidecar whose engine has the name `engine`."""

    def __init__(self, page: str, engine: str, names: tuple[str, ...]) -> None:
        self.names = frozenset(names)
        self._engine = engine
        self._parts: list[tuple[str, float | None]] = []
        """Text and, if it is the beginning of a sample that grows, its first value."""
        kind, rest = "", ""
        for line in page.splitlines():
            if line.startswith("# TYPE "):
                kind = line.rpartition(" ")[2]
            series, _, value = line.rpartition(" ")
            if line.startswith("#") or kind not in GROWING:
                rest += f"{line}\n"
            else:
                self._parts.append((f"{rest}{series} ", float(value)))
                rest = "\n"
        self._parts.append((rest, None))

    @property
    def moving(self) -> int:
        """Samples that differ in each scrape; those of a counter at 0 do not."""
        return sum(bool(value) for _, value in self._parts)

    def render(self, name: str, seconds: float) -> str:
        """The page of a sidecar, `seconds` after the start."""
        factor = 1 + seconds / PERIOD
        text = "".join(part if value is None else f"{part}{value * factor:.12g}" for part, value in self._parts)
        return text.replace(f'"{self._engine}"', f'"{name}:8000"')


@contextmanager
def serving(pages: FleetPages, port: int) -> Iterator[None]:
    """Serve each page at `/NAME` from a thread; another name has status 404."""
    began, stop = time.monotonic(), Event()

    async def respond(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in pages.names:
            raise web.HTTPNotFound
        return web.Response(text=pages.render(name, time.monotonic() - began))

    async def serve(ready: Callable[[], None]) -> None:
        app = web.Application()
        app.add_routes([web.get("/{name}", respond)])
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, HOST, port).start()
        ready()
        await asyncio.to_thread(stop.wait)
        await runner.cleanup()

    listening = Event()
    thread = Thread(target=lambda: asyncio.run(serve(listening.set)))
    thread.start()
    try:
        listening.wait()
        yield
    finally:
        stop.set()
        thread.join()
