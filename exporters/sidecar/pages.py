"""The metrics port: /metrics in text and OpenMetrics, /healthz and /readyz, and /admin/ where that is on."""

import asyncio
from collections.abc import Callable, Iterable

from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from exporters.sidecar.admin import PREFIX, Admin
from exporters.sidecar.credentials import Credentials

OPEN_PAGES = {"/healthz", "/readyz"}
"""Pages that need no credential: a kubelet has none."""


class _Collected(Collector):
    """Families collected on the event loop, for rendering elsewhere."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def application(
    collect: Callable[[], Iterable[Metric]],
    why_not_ready: Callable[[], str | None],
    credentials: Credentials | None = None,
    admin: Admin | None = None,
) -> web.Application:
    """The pages; `why_not_ready` says in words what keeps traffic away, or None."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if admin is not None and request.path.startswith(PREFIX):
            return await admin.guarded(request, handler)
        given = request.headers.get("authorization", "")
        if credentials is None or request.path in OPEN_PAGES or credentials.admit(given):
            return await handler(request)
        challenges = credentials.challenges
        wanted = " or ".join(f"'Authorization: {challenge.split()[0]} ...'" for challenge in challenges)
        text = f"vllm-slo: this page needs {wanted} with a credential of --metrics-auth-file\n"
        response = web.Response(status=401, text=text)
        for challenge in challenges:
            response.headers.add("www-authenticate", challenge)
        return response

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

    app = web.Application(middlewares=[guard])
    app.add_routes(
        [web.get("/", index), web.get("/metrics", metrics), web.get("/healthz", healthz), web.get("/readyz", readyz)]
    )
    if admin is not None:
        app.add_routes(admin.routes)
    return app
