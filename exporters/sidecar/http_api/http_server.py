"""The metrics port: /metrics in text and OpenMetrics format, probes of sidecar and engine, and the optional /admin/."""

import asyncio
import gzip
import logging
from collections.abc import Callable, Iterable

from aiohttp import http_exceptions, web
from aiohttp.typedefs import Handler
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder

from exporters.exposition.accumulators import Accumulator, Families
from exporters.sidecar.drain_control import Drain, Report
from exporters.sidecar.http_api.admin import PREFIX, Admin
from exporters.sidecar.http_api.credentials import Credentials

ENGINE_LIVEZ, ENGINE_READYZ = "/engine/livez", "/engine/readyz"
PROBES = {"/healthz", "/readyz", ENGINE_LIVEZ, ENGINE_READYZ}
"""Endpoints without authentication, because a kubelet sends no credentials."""

COMPRESSION = 1
"""The response is a fifth larger than at zlib's default of 6, but takes a third of the time."""

_END = b"# EOF\n"
"""The end of an OpenMetrics exposition."""


def exposition(families: Iterable[Metric | Accumulator], accept: str) -> tuple[bytes, str]:
    """The exposition in the accepted format, identical to prometheus_client's, and its content type."""
    encode, content_type = choose_encoder(accept.lower())
    openmetrics = encode(Families()) == _END
    parts = []
    for family in families:
        if isinstance(family, Accumulator):
            head, lines = encode(Families(family.head())), family.lines(exemplars=openmetrics)
            parts += [head.removesuffix(_END), lines.encode()]
        else:
            parts.append(encode(Families(family)).removesuffix(_END))
    if openmetrics:
        parts.append(_END)
    return b"".join(parts), content_type


def log_no_malformed_requests() -> None:
    """Keep the part of a malformed request that aiohttp quotes, which may be a credential, out of the log."""
    logging.getLogger("aiohttp.server").addFilter(_without_request)


def _without_request(record: logging.LogRecord) -> bool:
    if record.exc_info and isinstance(record.exc_info[1], http_exceptions.HttpProcessingError):
        record.exc_info = None
    return True


async def _send(response: web.Response, request: web.Request) -> None:
    """Send a response, and wait until the socket has accepted all of it."""
    if request.transport is not None:
        request.transport.set_write_buffer_limits(high=0)
    await response.prepare(request)
    await response.write_eof()


def application(
    collect: Callable[[], Iterable[Metric | Accumulator]],
    why_not_ready: Callable[[], str | None],
    credentials: Credentials | None = None,
    admin: Admin | None = None,
    drain: Drain | None = None,
    scraped: Callable[[], None] = lambda: None,
    probe: Callable[[str], tuple[bool, str]] | None = None,
) -> web.Application:
    """The endpoints of the metrics port; `why_not_ready` returns None if the sidecar is ready.

    `scraped` is called after each exposition; `probe` returns whether a probe of the engine succeeds, and its text.
    """

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if admin is not None and request.path.startswith(PREFIX):
            return await admin.authorize(request, handler)
        authorization = request.headers.get("authorization", "")
        if credentials is None or request.path in PROBES or credentials.admit(authorization):
            return await handler(request)
        challenges = credentials.challenges
        schemes = " or ".join(f"'Authorization: {challenge.split()[0]} ...'" for challenge in challenges)
        text = f"vllm-slo: this endpoint needs {schemes} with a credential of --metrics-auth-file\n"
        response = web.Response(status=401, text=text)
        for challenge in challenges:
            response.headers.add("www-authenticate", challenge)
        return response

    async def metrics(request: web.Request) -> web.Response:
        final = drain is not None and drain.counts_are_final and request.method == "GET"
        body, content_type = exposition(collect(), request.headers.get("accept", ""))
        headers = {"content-type": content_type, "vary": "accept-encoding"}
        if "gzip" in request.headers.get("accept-encoding", "").lower():
            headers["content-encoding"] = "gzip"
            body = await asyncio.to_thread(gzip.compress, body, COMPRESSION)
        response = web.Response(body=body, headers=headers)
        scraped()
        if drain is not None and final:
            await _send(response, request)
            drain.report(Report.FINAL_SCRAPE)
        return response

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        reason = why_not_ready()
        return web.Response(text="ready\n") if reason is None else web.Response(status=503, text=f"{reason}\n")

    async def engine(request: web.Request) -> web.Response:
        succeeds, text = probe(request.path) if probe is not None else (True, "no engine is observed\n")
        return web.Response(status=200 if succeeds else 503, text=text)

    async def index(_: web.Request) -> web.Response:
        return web.Response(text="\n".join(["vllm-slo sidecar", "/metrics", *sorted(PROBES), ""]))

    app = web.Application(middlewares=[guard])
    app.add_routes(
        [
            web.get("/", index),
            web.get("/metrics", metrics),
            web.get("/healthz", healthz),
            web.get("/readyz", readyz),
            web.get(ENGINE_LIVEZ, engine),
            web.get(ENGINE_READYZ, engine),
        ]
    )
    if admin is not None:
        app.add_routes(admin.routes)
    return app
