"""The HTTP server of the trace store: OTLP in, pages and JSON out."""

import asyncio
import logging
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import msgspec
from aiohttp import web

from exporters.analysis.traces.list_page import list_page
from exporters.analysis.traces.page_frame import POLICY, error_page
from exporters.analysis.traces.request_search import parse_search
from exporters.analysis.traces.span_parser import Request, Span, parse_spans
from exporters.analysis.traces.span_store import SpanStore
from exporters.analysis.traces.trace_page import trace_page
from exporters.configuration.otlp_endpoints import TRACES_PATH
from exporters.sidecar.tracing.engine_spans import MESSAGE_BYTES, RefusedError
from exporters.sidecar.tracing.otlp_receiver import BUSY, OtlpReceiver
from exporters.text.errors import InvalidValueError
from exporters.text.units import spell_duration

CLEANING_SECONDS = 10.0
"""Time between deletions while no spans arrive."""

_STYLE = Path(__file__).with_name("style.css")
_TRACE_ID = re.compile(r"[0-9a-f]{32}")

logger = logging.getLogger("vllm_slo.traces")


class FoundRequests(msgspec.Struct):
    """The response of /api/traces."""

    found: int
    requests: list[Request]


class FoundTrace(msgspec.Struct):
    """The response of /api/traces/ID."""

    trace_id: str
    spans: list[Span]


class TraceServer:
    """Routes of one store; `clock` returns unix seconds."""

    def __init__(self, store: SpanStore, keep: float, clock: Callable[[], float]) -> None:
        self._store = store
        self._keep = keep
        self._clock = clock
        self._receiver = OtlpReceiver(self._add, _acknowledge)
        self._fails = False
        self._style = _STYLE.read_text(encoding="utf-8")

    def application(self) -> web.Application:
        # The receiver decompresses itself, so that it can stop at the size limit.
        app = web.Application(client_max_size=MESSAGE_BYTES)
        app.add_routes(
            [
                web.post(TRACES_PATH, self._receiver.http),
                web.get("/", self._list),
                web.get("/traces/{trace_id}", self._trace),
                web.get("/api/traces", self._list_json),
                web.get("/api/traces/{trace_id}", self._trace_json),
                web.get("/style.css", self._styles),
                web.get("/healthz", self._health),
            ]
        )
        app.on_response_prepare.append(_secure)
        return app

    async def close(self) -> None:
        await self._receiver.close()

    async def delete_old(self) -> None:
        """Delete what exceeds the limits, until cancelled."""
        while True:
            await asyncio.sleep(CLEANING_SECONDS)
            try:
                await asyncio.to_thread(self._store.delete_old, self._clock())
            except sqlite3.Error as error:
                self._report(error)

    def _add(self, data: bytes) -> int:
        """Store a message, in the thread of the receiver; a sender that is answered `busy` sends it again."""
        spans = parse_spans(data)
        try:
            self._store.add(spans, self._clock())
        except sqlite3.Error as error:
            self._report(error)
            raise RefusedError(BUSY) from error
        if self._fails:
            self._fails = False
            logger.info("spans are stored again")
        return len(spans)

    def _report(self, error: sqlite3.Error) -> None:
        if not self._fails:
            self._fails = True
            logger.error("the file cannot be written, so spans are refused: %s", error)

    async def _list(self, request: web.Request) -> web.Response:
        try:
            found = await self._requests(request)
        except InvalidValueError as error:
            return _html(error_page("Invalid filter", str(error).splitlines()), status=400)
        values = await asyncio.to_thread(self._store.values)
        return _html(list_page(found.requests, found.found, dict(request.query), values))

    async def _list_json(self, request: web.Request) -> web.Response:
        try:
            return _json(await self._requests(request))
        except InvalidValueError as error:
            return _json({"error": str(error)}, status=400)

    async def _requests(self, request: web.Request) -> FoundRequests:
        now = self._clock()
        requests, found = await asyncio.to_thread(self._store.requests, parse_search(request.query.items(), now), now)
        return FoundRequests(found, requests)

    async def _trace(self, request: web.Request) -> web.Response:
        trace_id, spans = await self._spans(request)
        if not spans:
            return _html(error_page("No such trace", [self._why_unknown()]), status=404)
        return _html(await asyncio.to_thread(trace_page, trace_id, spans))

    async def _trace_json(self, request: web.Request) -> web.Response:
        trace_id, spans = await self._spans(request)
        if not spans:
            return _json({"error": self._why_unknown()}, status=404)
        return _json(FoundTrace(trace_id, spans))

    async def _spans(self, request: web.Request) -> tuple[str, list[Span]]:
        trace_id = request.match_info["trace_id"].lower()
        if not _TRACE_ID.fullmatch(trace_id):
            return trace_id, []
        return trace_id, await asyncio.to_thread(self._store.trace, trace_id, self._clock())

    def _why_unknown(self) -> str:
        return (
            f"No span of this trace is stored: it was not sent, it arrived more than {spell_duration(self._keep)} ago, "
            "or it was deleted because newer spans needed the space."
        )

    async def _styles(self, _: web.Request) -> web.Response:
        return web.Response(text=self._style, content_type="text/css")

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")


async def _acknowledge(_: int) -> None:
    """Stored spans need nothing else."""


async def _secure(_: web.Request, response: web.StreamResponse) -> None:
    response.headers["Content-Security-Policy"] = POLICY
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "no-referrer"
    response.headers["Cache-Control"] = "no-store"


def _html(text: str, status: int = 200) -> web.Response:
    return web.Response(text=text, content_type="text/html", status=status)


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json", status=status)
