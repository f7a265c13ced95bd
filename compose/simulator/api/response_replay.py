"""Answers repeated requests to the simulated API from a response cache: the same bytes again, all at once."""

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from compose.simulator.api.response_cache import HIT_SECONDS, ResponseCache

PATHS = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"})


class Writable(Protocol):
    """Where a stream is written."""

    def write(self, data: bytes) -> None: ...

    def is_closing(self) -> bool: ...


_recorder: ContextVar[Writable | None] = ContextVar("recorder", default=None)
"""The recorder of the request that the task handles; keys of a request differ between versions of aiohttp."""


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """The bytes of a response; those of a stream are HTTP chunks."""

    content: bytes
    stream: bool


class _Recorder:
    """Writes to a connection and keeps a copy."""

    def __init__(self, connection: Writable) -> None:
        self.written: list[bytes] = []
        self._connection = connection

    def write(self, data: bytes) -> None:
        self.written.append(data)
        self._connection.write(data)

    def is_closing(self) -> bool:
        return self._connection.is_closing()


def replaying(cache: ResponseCache[StoredResponse]) -> Middleware:
    """A middleware that keeps every complete response, and sends it again for the same path and body."""

    @web.middleware
    async def replay(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path not in PATHS or request.transport is None:
            return await handler(request)
        body = await request.read()
        stored = cache.find(request.path, body)
        if stored is not None:
            await asyncio.sleep(HIT_SECONDS)
            return await _send(stored, request)
        recorder = _Recorder(request.transport)
        token = _recorder.set(recorder)
        try:
            response = await handler(request)
        finally:
            _recorder.reset(token)  # the task also handles the next request of the connection
        if response.status == 200:
            unary = response.body if isinstance(response, web.Response) else None
            stream = not isinstance(unary, bytes)
            content = unary if isinstance(unary, bytes) else b"".join(recorder.written)
            cache.keep(request.path, body, StoredResponse(content, stream))
        return response

    return replay


async def _send(stored: StoredResponse, request: web.Request) -> web.StreamResponse:
    if not stored.stream:
        return web.Response(body=stored.content, content_type="application/json")
    response = await open_stream(request)
    if request.transport is not None:
        request.transport.write(stored.content)
    await response.write_eof()
    return response


def writer_of(request: web.Request) -> Writable | None:
    """Where the chunks of a stream are written; None if the client has disconnected."""
    return _recorder.get() or request.transport


async def open_stream(request: web.Request) -> web.StreamResponse:
    """The response of a stream, whose headers have been sent."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    response.enable_chunked_encoding()
    await response.prepare(request)
    return response
