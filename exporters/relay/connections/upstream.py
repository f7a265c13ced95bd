"""Connections to the engine: a pool of idle connections, and a protocol that parses the responses."""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from exporters.configuration.origin import Origin
from exporters.http import parser
from exporters.http.lines import MAX_LINES, few_lines
from exporters.http.parser import ResponseHead
from exporters.relay.bodies.request_body import Piece
from exporters.relay.connections import tcp_keepalive
from exporters.relay.connections.host_lookup import HostLookup
from exporters.relay.connections.write_batch import WriteBatch
from exporters.relay.metering.fast_path import Forwarding
from exporters.text.connect_errors import KINDS, OTHER_FAILURE, TIMEOUT, connect_kind, connect_reason
from exporters.text.outage_log import OutageLog

IDLE_SECONDS = 4.0
"""Idle connections are closed before uvicorn, the HTTP server of vLLM, closes them after 5 s."""

MAX_AHEAD = 256
"""Connections that are idle or being opened, above which none is opened ahead of a request."""

FRESH_SECONDS = 1.0
"""A connection opened ahead counts as new up to this age, and an attempt to open one up to this age is used."""

_RESPONSE_BEGINS = b"HTTP/1."

MAX_RESPONSE_HEAD = 256 * 1024
"""Bytes of a response's status line and headers."""

_logger = logging.getLogger("vllm_slo.relay")


class ResponseHandler(Protocol):
    """The exchange that a response belongs to; `at` is monotonic seconds."""

    switches_protocol: bool

    def on_read(self, head: ResponseHead | None, pieces: list[bytes], at: float, *, ended: bool) -> None: ...
    def on_broken(self, at: float) -> None: ...
    def on_fault(self, error: Exception, at: float) -> None: ...
    def on_lost(self, at: float) -> None: ...
    def on_writable(self, at: float, *, writable: bool) -> None: ...

    def fast_path(self) -> Forwarding | None:
        """Forwards the next reads of a chunked body; None: always parse."""


class UpstreamConnection(asyncio.Protocol):
    """A connection to the engine, which serves one exchange at a time."""

    def __init__(self, pool: "UpstreamPool") -> None:
        self._pool = pool
        self.transport: asyncio.Transport
        self._exchange: ResponseHandler | None = None
        self._head_only = False
        # The request, while it waits for the write batch.
        self._request = b""
        self._head_buffer = b""
        # Bytes of the head buffer that were searched for the end of the head.
        self._scanned = 0
        # The rest of a read that is parsed in the next iterations of the event loop, and when it arrived.
        self._unparsed: tuple[bytes, float] | None = None
        self._continues = False
        # Set if the connection was lost before all that had arrived was parsed.
        self._loss: tuple[Exception | None] | None = None
        self._body: parser.Body | None = None
        # Whether a fast path is the protocol of the transport.
        self._bypassed = False
        self._keep_alive = False
        self._paused = False
        self._reading = True
        # Whether the last byte of the request was passed to the transport.
        self._request_complete = False
        self.response_begun = False
        """Whether the first byte of the response has arrived."""
        self.unwritten = False
        """Whether bytes of the request that were passed to this connection are not written yet."""
        self.reused = False
        self.idle_since = 0.0
        # Over TLS, after the engine's `close_notify`; without it, others may have cut the response.
        self._closed_in_order = False

    def begin(self, exchange: ResponseHandler, *, head_only: bool) -> None:
        self._exchange = exchange
        self._head_only = head_only
        self._body = None
        self._request_complete = self.response_begun = False

    def send(self, request: bytes) -> None:
        """Write the complete request with the write batch; `on_writable` follows when all of it is written."""
        self.unwritten = True
        self._request = request
        self._pool.writes.add(self._flush)

    def write(self, pieces: Sequence[Piece], *, complete: bool) -> None:
        """Write a part of the request at once, without a copy; `complete`: it is the last part."""
        self._request_complete = complete
        self.transport.writelines(pieces)

    def _flush(self) -> None:
        request, self._request = self._request, b""
        if request and not self.transport.is_closing():
            self._request_complete = True
            self.unwritten = False  # `pause_writing` sets it again
            self.transport.write(request)
            if not self.unwritten:
                self.resume_writing()

    def abandon(self) -> None:
        """Close at once, so that the engine stops processing the request."""
        self._exchange = self._unparsed = None
        self._request = b""
        self._end_bypass()
        self.transport.abort()

    def pause(self, *, pause: bool) -> None:
        """Pause or resume reading the response."""
        self._paused = pause
        self._update_reading()
        if self._unparsed is not None:
            self._continue_soon()

    def _update_reading(self) -> None:
        read = not self._paused and self._unparsed is None
        if read != self._reading and not self.transport.is_closing():
            self._reading = read
            if read:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        # `pause_writing` reports any unsent byte. Not 0: uvloop's TLS would treat an empty buffer as full.
        self.transport.set_write_buffer_limits(high=1, low=0)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            tcp_keepalive.enable(sock)

    def data_received(self, data: bytes) -> None:
        if self._unparsed is not None:  # a transport may pass on what it had read before it was paused
            before, at = self._unparsed
            self._unparsed = before + data, at
            return
        self._parse_lines(data, time.monotonic())

    def _parse_lines(self, data: bytes, at: float) -> None:
        """Parse as many lines of a read as do not block the event loop for too long."""
        exchange = self._exchange
        # Bytes that arrive before a request would be parsed as its response.
        if exchange is None or self._request:
            self.transport.abort()
            return
        self.response_begun = True
        if len(data) > MAX_LINES and len(part := few_lines(data)) < len(data):
            self._unparsed = data[len(part) :], at
            self._update_reading()
            self._continue_soon()
            data = part
        try:
            data, rest = self._to_chunk_end(data)
            self._parse(exchange, data, at)
            if rest and self._bypassed:
                cast("asyncio.Protocol", self.transport.get_protocol()).data_received(rest)
            elif rest and self._exchange is exchange:
                self._parse(exchange, rest, at)
        except Exception as error:  # noqa: BLE001 - an internal error must not leave the client waiting
            self._exchange = None
            self.transport.abort()
            exchange.on_fault(error, at)

    def _continue_soon(self) -> None:
        if not self._continues:
            self._continues = True
            self._pool.loop.call_soon(self._continue)

    def _continue(self) -> None:
        """Parse the next lines of a read, unless the client does not read."""
        self._continues = False
        if self._unparsed is None or (self._paused and self._loss is None):
            return
        (data, at), self._unparsed = self._unparsed, None
        if self._exchange is not None:
            self._parse_lines(data, at)
        if self._unparsed is None:
            self._update_reading()
            if self._loss is not None:
                self.connection_lost(*self._loss)

    def _to_chunk_end(self, data: bytes) -> tuple[bytes, bytes]:
        """A read up to the end of a chunk of which a part has arrived, where the fast path may begin, and its rest."""
        left = self._body.left_of_chunk if isinstance(self._body, parser.ChunkedBody) else 0
        return (data[:left], data[left:]) if left else (data, b"")

    def _parse(self, exchange: ResponseHandler, data: bytes, at: float) -> None:
        head: ResponseHead | None = None
        try:
            if self._body is None:
                head, data = self._parse_head(data)
        except parser.BadHttpError:
            self._break(exchange, at)
            return
        body = self._body
        if body is None:
            return
        pieces = body.feed(data)
        if body.done and self._exchange is exchange:
            self._finish(at, clean=not body.rest and self._unparsed is None)
        exchange.on_read(head, pieces, at, ended=body.done)
        if body.broken:
            self._break(exchange, at)
        elif not body.done and isinstance(body, parser.ChunkedBody) and body.between and self._unparsed is None:
            self._bypass(exchange.fast_path())

    def _bypass(self, fast_path: Forwarding | None) -> None:
        if fast_path is not None:
            fast_path.connection, fast_path.leave = self, self._leave_fast_path
            self._bypassed = True
            self.transport.set_protocol(fast_path)

    def _end_bypass(self) -> None:
        if self._bypassed:
            self._bypassed = False
            self.transport.set_protocol(self)

    def _leave_fast_path(self, data: bytes) -> None:
        self._end_bypass()
        self.data_received(data)

    def _parse_head(self, data: bytes) -> tuple[ResponseHead | None, bytes]:
        """The head, if it is complete, and the bytes after it."""
        data = self._head_buffer + data
        if not data.startswith(_RESPONSE_BEGINS[: len(data)]):
            raise parser.BadHttpError("not HTTP")
        while end := parser.head_end(data, "response", self._scanned):
            self._scanned = 0
            head = parser.parse_response(data[:end], head_only=self._head_only)
            data = data[end:]
            # Interim responses (1xx) are not forwarded.
            if head.status >= 200:
                break
            if head.status == 101:
                if self._exchange is None or not self._exchange.switches_protocol or not head.websocket:
                    raise parser.BadHttpError("unrequested protocol upgrade")
                self._head_buffer = b""
                self._body = parser.CloseDelimitedBody()
                return head, data
        else:
            if len(data) > MAX_RESPONSE_HEAD:
                raise parser.BadHttpError("response head too large")
            self._head_buffer, self._scanned = data, len(data)
            return None, b""
        self._head_buffer = b""
        self._keep_alive = head.keep_alive and (head.chunked or head.length is not None)
        if head.chunked:
            self._body = parser.ChunkedBody()
        elif head.length is not None:
            self._body = parser.SizedBody(head.length)
        else:
            self._body = parser.CloseDelimitedBody()
        return head, data

    def _break(self, exchange: ResponseHandler, at: float) -> None:
        if self._exchange is exchange:
            self._exchange = None
            self.transport.abort()
            exchange.on_broken(at)

    def _finish(self, at: float, *, clean: bool) -> None:
        """The response is complete: reuse or close the connection."""
        self._exchange = None
        # The engine responded early, and would read the next request as the rest of this one.
        if self.unwritten or not self._request_complete:
            self.abandon()
        elif self._keep_alive and clean and not self._head_only:
            self.pause(pause=False)
            self.reused = True
            self._pool.release(self, at)
        else:
            self.transport.close()

    def eof_received(self) -> None:
        """Note an orderly end; not called if a TLS connection ends without `close_notify`."""
        self._closed_in_order = True

    def connection_lost(self, exc: Exception | None) -> None:
        self._pool.discard(self)
        self._request = b""
        if self._unparsed is not None:
            self._loss = (exc,)
            self._continue_soon()
            return
        exchange, self._exchange, self._bypassed = self._exchange, None, False
        if exchange is None:
            return
        at = time.monotonic()
        try:
            if exc is None and self._closed_in_order and isinstance(self._body, parser.CloseDelimitedBody):
                exchange.on_read(None, [], at, ended=True)
            else:
                exchange.on_lost(at)
        except Exception as error:  # noqa: BLE001 - as in data_received
            exchange.on_fault(error, at)

    def pause_writing(self) -> None:
        self.unwritten = True
        if self._exchange:
            self._exchange.on_writable(time.monotonic(), writable=False)

    def resume_writing(self) -> None:
        self.unwritten = False
        if self._exchange:
            self._exchange.on_writable(time.monotonic(), writable=True)


OnConnected = Callable[[UpstreamConnection, float], None]
"""Called with the connection and the time, in monotonic seconds."""
OnFailure = Callable[[str, float], None]
"""Called with the reason and the time, in monotonic seconds."""


class _Attempt:
    """Opening one connection, for a request that waits for it or ahead of the first request of a new client."""

    __slots__ = ("on_connected", "on_failure", "started_at", "task")

    def __init__(self, on_connected: OnConnected, on_failure: OnFailure) -> None:
        self.on_connected = on_connected
        self.on_failure = on_failure
        self.started_at = time.monotonic()
        self.task: asyncio.Task[None]


class UpstreamPool:
    """Connections to one origin; the most recently used idle connection is reused first.

    A connection is opened ahead for each new client. Otherwise, in a burst of new clients, the engine would accept a
    connection and read a request in turn, so that the event loop of its API server streams the first responses before
    it reads the last requests: on an H200, TTFT p99 was up to 6 times that of the same burst without a proxy.
    """

    def __init__(
        self, origin: Origin, connect_timeout: float, loop: asyncio.AbstractEventLoop, writes: WriteBatch
    ) -> None:
        self.origin = origin
        self.writes = writes
        self._lookup = HostLookup(origin.host, loop)
        self._connect_timeout = connect_timeout
        self.loop = loop
        self._idle: list[UpstreamConnection] = []
        self._ahead: list[_Attempt] = []  # oldest first
        self._tasks: set[asyncio.Task[None]] = set()
        self._expected = 0
        self._outages = OutageLog(_logger, f"the engine at {origin.authority}", "reached")
        self.failures = dict.fromkeys(KINDS, 0)
        """The number of failed attempts to connect, by kind."""

    @property
    def opening(self) -> int:
        """The number of attempts to connect ahead of a request."""
        return len(self._ahead)

    def expect_request(self) -> None:
        """A client has connected: open a connection for its first request unless enough are idle or being opened."""
        self._expected += 1
        if len(self._idle) + self.opening < min(self._expected, MAX_AHEAD):
            attempt = _Attempt(self.release, lambda _reason, _at: None)  # a request reports its own failure to connect
            self._ahead.append(attempt)
            self._start(attempt)

    def expect_no_request(self) -> None:
        """The client has sent its first request, or disconnected before it."""
        self._expected -= 1

    def acquire(self, now: float) -> UpstreamConnection | None:
        """An idle connection that the engine has not closed, or None."""
        while self._idle:
            connection = self._idle.pop()
            if now - connection.idle_since < IDLE_SECONDS and not connection.transport.is_closing():
                connection.reused = connection.reused or now - connection.idle_since > FRESH_SECONDS
                return connection
            connection.transport.close()
        return None

    def connect(self, on_connected: OnConnected, on_failure: OnFailure) -> asyncio.Task[None]:
        """Open a connection; exactly one of the callbacks is called unless the task is cancelled."""
        if self._ahead and time.monotonic() - self._ahead[0].started_at < FRESH_SECONDS:
            attempt = self._ahead.pop(0)
            attempt.on_connected, attempt.on_failure = on_connected, on_failure
        else:
            attempt = _Attempt(on_connected, on_failure)
            self._start(attempt)
        return attempt.task

    def _start(self, attempt: _Attempt) -> None:
        attempt.task = self.loop.create_task(self._open(attempt))
        self._tasks.add(attempt.task)
        attempt.task.add_done_callback(self._tasks.discard)

    async def _open(self, attempt: _Attempt) -> None:
        failure, kind = "", OTHER_FAILURE
        connection: UpstreamConnection | None = None
        try:
            async with asyncio.timeout(self._connect_timeout) as limit:
                connection = await self._connect_to_any(await self._lookup.addresses())
            if connection.transport.is_closing():
                failure = "the connection was closed at once"
        except Exception as error:  # noqa: BLE001 - a request must not wait for a connection that is not opened
            if limit.expired():
                failure, kind = f"connection timed out after {self._connect_timeout:g} s", TIMEOUT
            else:
                failure, kind = connect_reason(error), connect_kind(error)
        if attempt in self._ahead:
            self._ahead.remove(attempt)
        now = time.monotonic()
        if connection is not None and not failure:
            self._outages.succeeded(now)
            attempt.on_connected(connection, now)
        else:
            self._outages.failed(failure, now)
            self.failures[kind] += 1
            attempt.on_failure(failure, now)

    async def _connect_to_any(self, addresses: list[str]) -> UpstreamConnection:
        """A connection to the first address that accepts it."""
        origin = self.origin
        for number, address in enumerate(addresses, 1):
            try:
                _, connection = await self.loop.create_connection(
                    lambda: UpstreamConnection(self),
                    address,
                    origin.port,
                    ssl=origin.tls,
                    server_hostname=origin.host if origin.tls else None,
                )
            except OSError as error:
                if isinstance(error, ssl.SSLError) or number == len(addresses):
                    raise
            else:
                return connection
        raise OSError("no address")

    def release(self, connection: UpstreamConnection, at: float) -> None:
        connection.idle_since = at
        self._idle.append(connection)

    def discard(self, connection: UpstreamConnection) -> None:
        if connection in self._idle:
            self._idle.remove(connection)

    def close_idle(self) -> None:
        """Close expired idle connections; called periodically."""
        oldest = time.monotonic() - IDLE_SECONDS
        while self._idle and self._idle[0].idle_since < oldest:
            self._idle.pop(0).transport.close()

    def close(self) -> None:
        for connection in self._idle:
            connection.transport.close()
        self._idle.clear()
        for attempt in self._ahead:
            attempt.task.cancel()
        self._ahead.clear()
