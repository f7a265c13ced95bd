"""Connections to the engine: a pool of idle ones, and the parser that turns a response into calls on its exchange."""

import asyncio
import os
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast
from urllib.parse import urlsplit

import httptools

from exporters.relay.heads import Header
from exporters.usage import UsageError

IDLE_SECONDS = 4.0
"""Idle connections retire before uvicorn, which vLLM serves with, closes them at 5 s under our next request."""

CONNECT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the engine is."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    prefix: str

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def origin(url: str) -> Origin:
    """Read `http://host:port[/prefix]`.

    Raises:
        UsageError: the address is not of this form.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"--upstream: {url!r} is no address: {error}; write http://host:port") from error
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise UsageError(f"--upstream: {url!r} is no address; write http://host:port or https://host:port")
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    return Origin(parts.hostname, port or (443 if tls else 80), tls, parts.path.rstrip("/"))


class Answered(Protocol):
    """The exchange that a response belongs to; `at` is monotonic seconds."""

    def on_head(self, status: int, reason: bytes, headers: list[Header]) -> None: ...
    def on_body(self, pieces: list[bytes], at: float) -> None: ...
    def on_end(self, at: float) -> None: ...
    def on_broken(self, at: float) -> None: ...
    def on_lost(self, at: float) -> None: ...
    def on_writable(self, *, writable: bool) -> None: ...


class UpstreamConnection(asyncio.Protocol):
    """One connection to the engine; it serves one exchange at a time."""

    def __init__(self, pool: "UpstreamPool") -> None:
        self._pool = pool
        self.transport: asyncio.Transport
        self._parser = httptools.HttpResponseParser(self)
        self._exchange: Answered | None = None
        self._head_only = False
        self._reset()
        self.reused = False
        self.idle_since = 0.0

    def _reset(self) -> None:
        self._reason = b""
        self._headers: list[Header] = []
        self._pieces: list[bytes] = []
        self._sized = False
        self._complete = False
        self._head_complete = False
        self._keep_alive = False
        self.answered = False
        """Whether a byte of a response has come."""

    def begin(self, exchange: Answered, *, head_only: bool) -> None:
        self._exchange = exchange
        self._head_only = head_only
        self._reset()

    def abandon(self) -> None:
        """Nobody waits for the response: close at once, so that the engine stops working on it."""
        self._exchange = None
        self.transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None:  # bytes that nobody asked for: what follows could not be told apart
            self.transport.abort()
            return
        at = time.monotonic()
        self.answered = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._flush(exchange, at)
            self._exchange = None
            self.transport.abort()
            exchange.on_broken(at)
            return
        self._flush(exchange, at)
        if self._complete:
            self._finish(exchange, at)

    def _flush(self, exchange: Answered, at: float) -> None:
        if self._pieces:
            pieces, self._pieces = self._pieces, []
            exchange.on_body(pieces, at)

    def _finish(self, exchange: Answered, at: float) -> None:
        if self._exchange is not exchange:  # the exchange gave up while it was handed the body
            return
        self._exchange = None
        if self._keep_alive and not self._head_only:
            self._pool.put_back(self)
        else:
            self.transport.close()
        exchange.on_end(at)

    def connection_lost(self, exc: Exception | None) -> None:
        self._pool.forget(self)
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        at = time.monotonic()
        if self.answered and not self._sized and exc is None and self._head_complete:
            exchange.on_end(at)  # the close is the end of such a body
        else:
            exchange.on_lost(at)

    def pause_writing(self) -> None:
        if self._exchange:
            self._exchange.on_writable(writable=False)

    def resume_writing(self) -> None:
        if self._exchange:
            self._exchange.on_writable(writable=True)

    # httptools

    def on_status(self, status: bytes) -> None:
        self._reason += status

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._complete:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:  # 100 Continue and the like are between the engine and us
            self._headers, self._reason = [], b""
            return
        self._head_complete = True
        # Asked here, because the parser forgets the framing once the message is complete.
        self._keep_alive = self._parser.should_keep_alive()
        names = {name for name, _ in self._headers}
        bodiless = self._head_only or status in {204, 304}
        self._sized = bodiless or b"content-length" in names or b"transfer-encoding" in names
        if self._exchange:
            self._exchange.on_head(status, self._reason, self._headers)
        if bodiless:  # the parser would wait for the body that the headers describe
            self._head_only = True
            self._complete = True

    def on_body(self, body: bytes) -> None:
        if not self._complete:
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() >= 200:
            self._complete = True


class UpstreamPool:
    """Hands out connections to one origin, newest idle one first."""

    def __init__(self, origin: Origin, loop: asyncio.AbstractEventLoop) -> None:
        self.origin = origin
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
                async with asyncio.timeout(CONNECT_SECONDS):
                    _, connection = await self._loop.create_connection(
                        lambda: UpstreamConnection(self), self.origin.host, self.origin.port, ssl=self.origin.tls
                    )
            except TimeoutError:
                failed(f"no connection within {CONNECT_SECONDS:g} s")
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
