"""The metrics port: /metrics in text and OpenMetrics, /healthz and /readyz."""

import asyncio
from collections.abc import Callable, Iterable

from aiohttp import web
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry


class _Collected(Collector):
    """Families collected on the event loop, for rendering elsewhere."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def application(collect: Callable[[], Iterable[Metric]], why_not_ready: Callable[[], str | None]) -> web.Application:
    """The pages; `why_not_ready` says in words what keeps traffic away, or None."""

    async def metrics(request: web.Request) -> web.Response:
        registry = CollectorRegistry()
        registry.register(_Collected(list(collect())))
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        body = await asyncio.to_thread(encode, registry)
        response = web.Response(body=body, headers={"content-type": content_type})
        response.enable_compression()
        return response

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        reason = why_not_ready()
        return web.Response(text="ready\n") if reason is None else web.Response(status=503, text=f"{reason}\n")

    async def index(_: web.Request) -> web.Response:
        return web.Response(text="vllm-slo sidecar\n/metrics\n/healthz\n/readyz\n")

    app = web.Application()
    app.add_routes(
        [web.get("/", index), web.get("/metrics", metrics), web.get("/healthz", healthz), web.get("/readyz", readyz)]
    )
    return app
