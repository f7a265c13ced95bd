"""Connections to the engine: a pool of idle ones, and the parser that turns a response into calls on its exchange."""

import asyncio
import os
import ssl
import time
from collections.abc import Callable
from typing import Protocol, cast

from exporters.configuration.origin import Origin
from exporters.configuration.tls import tls_reason
from exporters.relay import http1_parser
from exporters.relay.http1_parser import Reply

IDLE_SECONDS = 4.0
"""Idle connections retire before uvicorn, which vLLM serves with, closes them at 5 s under our next request."""

_REPLY_BEGINS = b"HTTP/1."

MAX_REPLY_HEAD = 256 * 1024
"""Bytes of an engine's status line and headers."""


class Answered(Protocol):
    """The exchange that a response belongs to; `at` is monotonic seconds."""

    def on_read(self, reply: Reply | None, pieces: list[bytes], at: float, *, ended: bool) -> None: ...
    def on_broken(self, at: float) -> None: ...
    def on_fault(self, error: Exception, at: float) -> None: ...
    def on_lost(self, at: float) -> None: ...
    def on_writable(self, *, writable: bool) -> None: ...

    def even(self) -> Callable[[bytes], bool] | None:
        """What takes the next read of a body in chunks, if it can; None where each must be looked into."""


class UpstreamConnection(asyncio.Protocol):
    """One connection to the engine; it serves one exchange at a time."""

    __slots__ = (
        "_body",
        "_even",
        "_exchange",
        "_head_only",
        "_held",
        "_keep_alive",
        "_paused",
        "_pool",
        "answered",
        "idle_since",
        "reused",
        "transport",
        "unwritten",
    )

    def __init__(self, pool: "UpstreamPool") -> None:
        self._pool = pool
        self.transport: asyncio.Transport
        self._exchange: Answered | None = None
        self._head_only = False
        self._held = b""  # of a head that has not ended
        self._body: http1_parser.Body | None = None
        self._even: Callable[[bytes], bool] | None = None
        self._keep_alive = False
        self._paused = False
        self.answered = False
        """Whether a byte of a response has come."""
        self.unwritten = False
        """Whether a part of the request is still in our memory."""
        self.reused = False
        self.idle_since = 0.0

    def begin(self, exchange: Answered, *, head_only: bool) -> None:
        self._exchange = exchange
        self._head_only = head_only
        self._body = None
        self.answered = False

    def abandon(self) -> None:
        """Nobody waits for the response: close at once, so that the engine stops working on it."""
        self._exchange = self._even = None
        self.transport.abort()

    def pause(self, *, pause: bool) -> None:
        """Stop or go on reading the response."""
        if pause != self._paused and not self.transport.is_closing():
            self._paused = pause
            if pause:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        # A write goes out at once, and what the kernel does not take is known to be unwritten. Not 0: for uvloop's TLS
        # an empty buffer would then be full.
        self.transport.set_write_buffer_limits(high=1, low=0)

    def data_received(self, data: bytes) -> None:
        even = self._even
        if even is not None and even(data):
            return
        exchange = self._exchange
        if exchange is None:  # bytes that nobody asked for: what follows could not be told apart
            self.transport.abort()
            return
        at = time.monotonic()
        self._even = None
        self.answered = True
        try:
            self._read(exchange, data, at)
        except Exception as error:  # noqa: BLE001 - a fault of ours must not leave the client waiting
            self._exchange = None
            self.transport.abort()
            exchange.on_fault(error, at)

    def _read(self, exchange: Answered, data: bytes, at: float) -> None:
        reply: Reply | None = None
        try:
            if self._body is None:
                reply, data = self._head(data)
        except http1_parser.BadHttpError:
            self._break(exchange, at)
            return
        body = self._body
        if body is None:
            return
        pieces = body.feed(data)
        if body.done and self._exchange is exchange:
            self._finish(clean=not body.rest)
        exchange.on_read(reply, pieces, at, ended=body.done)
        if body.broken:
            self._break(exchange, at)
        elif not body.done and isinstance(body, http1_parser.Chunks) and body.between:
            self._even = exchange.even()

    def _head(self, data: bytes) -> tuple[Reply | None, bytes]:
        """The head, if it has ended, and what came after it."""
        data = self._held + data
        if not data.startswith(_REPLY_BEGINS[: len(data)]):
            raise http1_parser.BadHttpError("another protocol")
        while end := http1_parser.head_end(data, "response"):
            reply = http1_parser.reply(data[:end], head_only=self._head_only)
            data = data[end:]
            if reply.status >= 200:
                break
            if reply.status == 101:
                raise http1_parser.BadHttpError("an upgrade that nobody asked for")
        else:  # 100 Continue and the like are between the engine and us
            if len(data) > MAX_REPLY_HEAD:
                raise http1_parser.BadHttpError("an endless head")
            self._held = data
            return None, b""
        self._held = b""
        self._keep_alive = reply.keep_alive and (reply.chunked or reply.length is not None)
        if reply.chunked:
            self._body = http1_parser.Chunks()
        elif reply.length is not None:
            self._body = http1_parser.Sized(reply.length)
        else:
            self._body = http1_parser.UntilClose()
        return reply, data

    def _break(self, exchange: Answered, at: float) -> None:
        if self._exchange is exchange:
            self._exchange = None
            self.transport.abort()
            exchange.on_broken(at)

    def _finish(self, *, clean: bool) -> None:
        """The response is whole: the connection is free for another."""
        self._exchange = None
        # What we have not finished writing would be read as the next request.
        if self._keep_alive and clean and not self.unwritten and not self._head_only:
            self.pause(pause=False)
            self._pool.put_back(self)
        else:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._pool.forget(self)
        exchange, self._exchange, self._even = self._exchange, None, None
        if exchange is None:
            return
        at = time.monotonic()
        if exc is None and isinstance(self._body, http1_parser.UntilClose):
            exchange.on_read(None, [], at, ended=True)  # the close is the end of such a body
        else:
            exchange.on_lost(at)

    def pause_writing(self) -> None:
        self.unwritten = True
        if self._exchange:
            self._exchange.on_writable(writable=False)

    def resume_writing(self) -> None:
        self.unwritten = False
        if self._exchange:
            self._exchange.on_writable(writable=True)


class UpstreamPool:
    """Hands out connections to one origin, newest idle one first."""

    def __init__(self, origin: Origin, connect_timeout: float, loop: asyncio.AbstractEventLoop) -> None:
        self.origin = origin
        self._connect_timeout = connect_timeout
        self._loop = loop
        self._idle: list[UpstreamConnection] = []
        self._connecting: set[asyncio.Task[None]] = set()

    def take(self) -> UpstreamConnection | None:
        """An idle connection that the engine will not have closed, if there is one."""
        now = time.monotonic()
        while self._idle:
            connection = self._idle.pop()
            if now - connection.idle_since < IDLE_SECONDS and not connection.transport.is_closing():
                connection.reused = True
                return connection
            connection.transport.close()
        return None

    def connect(self, made: Callable[[UpstreamConnection], None], failed: Callable[[str], None]) -> asyncio.Task[None]:
        """Open a new connection; exactly one of the callbacks is called unless the task is cancelled."""

        async def attempt() -> None:
            try:
                async with asyncio.timeout(self._connect_timeout):
                    _, connection = await self._loop.create_connection(
                        lambda: UpstreamConnection(self), self.origin.host, self.origin.port, ssl=self.origin.tls
                    )
            except TimeoutError:
                failed(f"no connection within {self._connect_timeout:g} s")
            except ssl.SSLError as error:
                failed(tls_reason(error))
            except OSError as error:
                failed((os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)).lower())
            else:
                made(connection)

        task = self._loop.create_task(attempt())
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        return task

    def put_back(self, connection: UpstreamConnection) -> None:
        connection.idle_since = time.monotonic()
        self._idle.append(connection)

    def forget(self, connection: UpstreamConnection) -> None:
        if connection in self._idle:
            self._idle.remove(connection)

    def retire(self) -> None:
        """Close what has been idle too long; called now and then."""
        oldest = time.monotonic() - IDLE_SECONDS
        while self._idle and self._idle[0].idle_since < oldest:
            self._idle.pop(0).transport.close()

    def close(self) -> None:
        for connection in self._idle:
            connection.transport.close()
        self._idle.clear()
