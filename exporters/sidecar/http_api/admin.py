"""The endpoints under /admin/, which need the admin token: config changes, drain, report of a warm-up."""

import asyncio
import hmac
import time
from collections.abc import Callable

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from exporters.engines.group import EngineGroup
from exporters.sidecar.drain_control import Drain
from exporters.sidecar.http_api.admin_messages import (
    Accepted,
    Declaration,
    Drained,
    Refused,
    Warmed,
    mistakes,
    read_admin_token,
)

PREFIX = "/admin/"
MAX_BODY = 64 * 1024
BODY_SECONDS = 10.0
MAX_SETTINGS = 100
"""Limit of declared settings of an engine, because each is a series."""


class Admin:
    """The admin endpoints; they accept only the admin token, not the credentials of /metrics."""

    def __init__(self, fleet: EngineGroup, drain: Drain, cut_requests: Callable[[], int], token_file: str) -> None:
        self._fleet = fleet
        self._drain = drain
        self._cut_requests = cut_requests
        self._path = token_file
        self._token: bytes | None = None

    def read(self) -> None:
        """Read the token file again; if it is invalid, keep the token. Raises UsageError if the file is invalid."""
        self._token = read_admin_token(self._path, "--admin-token-file")

    @property
    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/admin/flip", self._declare),
            web.get("/admin/flips", self._list),
            web.post("/admin/drain", self._drain_sidecar),
            web.post("/admin/warm", self._report_warm),
        ]

    async def authorize(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        scheme, _, value = request.headers.get("authorization", "").partition(" ")
        token = value.strip().encode(errors="surrogateescape")
        if self._token is not None and scheme.lower() == "bearer" and hmac.compare_digest(token, self._token):
            return await handler(request)
        return web.Response(
            status=401,
            text="vllm-slo: this endpoint needs 'Authorization: Bearer ...' with the token of --admin-token-file\n",
            headers={"www-authenticate": 'Bearer realm="vllm-slo admin"'},
        )

    async def _declare(self, request: web.Request) -> web.Response:
        if (request.content_length or 0) > MAX_BODY:
            return _refused([f"the body has {request.content_length} bytes; the limit is {MAX_BODY}"], 413)
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await request.read()
        except TimeoutError:
            return _refused([f"the body was not complete within {BODY_SECONDS:g} s"], 408)
        try:
            declaration = msgspec.json.decode(body, type=Declaration)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return _refused([f'{error}; write {{"set": {{"NAME": "VALUE"}}, "note": "TEXT"}}'])
        states = {state.name: state for state in self._fleet.states}
        errors = mistakes(declaration)
        if declaration.engine is not None and declaration.engine not in states:
            errors.append(f"engine: {declaration.engine[:100]!r} is not known; known: {', '.join(states)}")
        engines = list(states) if declaration.engine is None else [declaration.engine]
        for name in engines:
            if (
                name in states
                and len(states[name].watch.history.declared.keys() | declaration.set.keys()) > MAX_SETTINGS
            ):
                errors.append(f"set: {name} would have more than {MAX_SETTINGS} declared settings")
        if errors:
            return _refused(errors)
        return _json(Accepted(self._fleet.declare(engines, declaration.set, declaration.note)))

    async def _list(self, _: web.Request) -> web.Response:
        watches = {state.name: state.watch for state in self._fleet.states}
        changes = [(change.at, name, change) for name, watch in watches.items() for change in watch.changes]
        changes.sort(key=lambda change: change[:2])
        listed = [{"engine": name, **msgspec.to_builtins(change)} for _, name, change in changes]
        engines = {
            name: {"revision": watch.revision, "declared": watch.history.declared, "awaited": watch.history.awaited}
            for name, watch in watches.items()
        }
        return _json({"engines": engines, "flips": listed, "now": time.time()})

    async def _drain_sidecar(self, _: web.Request) -> web.Response:
        seconds = await self._drain.request()
        return _json(Drained(round(seconds, 3), self._cut_requests(), self._fleet.troubles(time.monotonic())))

    async def _report_warm(self, _: web.Request) -> web.Response:
        return _json(Warmed(self._fleet.report_warm()))


def _refused(errors: list[str], status: int = 400) -> web.Response:
    return _json(Refused(errors), status)


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value) + b"\n", status=status, content_type="application/json")
