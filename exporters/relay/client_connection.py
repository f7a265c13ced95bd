"""A client's connection: parses one request at a time and writes the responses."""

import asyncio
import socket
import struct
import time
from collections.abc import MutableSet
from typing import Protocol, cast

from exporters.relay import error_responses, http1_parser
from exporters.relay.exchange import Exchange, ExchangeContext

MAX_PIPELINED = 64 * 1024
"""Bytes of further requests that are buffered during an exchange; reading on shows when the client has gone."""

LINGER_SECONDS = 2.0
"""A client in the middle of sending loses our last response to a reset unless we go on reading for a moment."""


class ConnectionContext(ExchangeContext, Protocol):
    """What a client's connection needs of the relay process, beside what its exchanges need."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def connections(self) -> MutableSet["ClientConnection"]: ...


class ClientConnection(asyncio.Protocol):
    """Cuts requests from the bytes that arrive; a pipelined one waits until the response before it is written."""

    __slots__ = (
        "_body",
        "_buffer",
        "_closed",
        "_context",
        "_exchange",
        "_last_read_at",
        "_reading",
        "_receiving",
        "_scanned",
        "_transport",
        "_unwritten",
        "_unwritten_since",
        "_upload_paused",
        "writable",
    )

    def __init__(self, context: ConnectionContext) -> None:
        self._context = context
        self._transport: asyncio.Transport
        self._buffer = b""  # what has arrived and is not part of a request yet
        self._scanned = 0  # bytes of it that hold no end of a head
        self._exchange: Exchange | None = None
        self._receiving: Exchange | None = None  # the same exchange, while its body is arriving
        self._body: http1_parser.Body
        self._upload_paused = False
        self._reading = True
        self._closed = False  # bytes that arrive after this are ignored
        self._last_read_at = time.monotonic()
        self._unwritten = 0
        self._unwritten_since = 0.0
        self.writable = True

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # A write goes out at once, and what the kernel does not take holds the engine back. Not 0: for uvloop's TLS
        # an empty buffer would then be full.
        self._transport.set_write_buffer_limits(high=1, low=0)
        self._context.connections.add(self)

    def data_received(self, data: bytes) -> None:
        if self._closed:
            return
        self._last_read_at = time.monotonic()
        self._buffer = self._buffer + data if self._buffer else data
        self._process_buffer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._context.connections.discard(self)
        self._closed = True
        self._buffer = b""
        if self._exchange is not None:
            self._exchange.client_gone()

    def pause_writing(self) -> None:
        self.writable = False
        self._unwritten, self._unwritten_since = self._transport.get_write_buffer_size(), time.monotonic()
        if self._exchange is not None:
            self._exchange.client_writable(writable=False)

    def resume_writing(self) -> None:
        self.writable = True
        if self._exchange is not None:
            self._exchange.client_writable(writable=True)

    # Called by the exchange.

    def send(self, data: bytes) -> None:
        self._transport.write(data)

    def abort(self) -> None:
        self._exchange = self._receiving = None
        self._closed = True
        self._transport.abort()

    def reset(self) -> None:
        """Abort with a reset: a client for whom the close is the end of a response must not see an orderly close."""
        sock = self._transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.abort()

    def pause_upload(self, *, pause: bool) -> None:
        """The engine is slower than the upload."""
        self._upload_paused = pause
        self._update_reading()

    def exchange_over(self, *, reusable: bool) -> None:
        mid_request = self._receiving is not None
        self._exchange = self._receiving = None
        self._upload_paused = False
        if not reusable:
            self._close(mid_request=mid_request)
        elif self._buffer:
            self._context.loop.call_soon(self._process_buffer)
        elif self._context.draining:
            self._transport.close()
        else:
            self._update_reading()

    # Called by the relay.

    def drain(self) -> None:
        """No further request on this connection."""
        if self._exchange is None:
            self._transport.close()

    def check_timeouts(self, now: float) -> None:
        """End what has waited too long for this client."""
        config = self._context.config
        awaited = (self._exchange is None or self._receiving is not None) and self._reading
        if awaited and config.client_idle is not None and now - self._last_read_at > config.client_idle:
            if self._buffer or self._receiving:
                self._refuse(408, f"no byte of the request for {config.client_idle:g} s", "request_timeout")
            else:
                self._transport.close()
        elif not self.writable and config.cut_stalled_client is not None:
            unwritten = self._transport.get_write_buffer_size()
            if unwritten < self._unwritten:
                self._unwritten, self._unwritten_since = unwritten, now
            elif now - self._unwritten_since > config.cut_stalled_client:
                self._transport.abort()

    # Internal.

    def _process_buffer(self) -> None:
        """Parse as much of the buffer as can be parsed now."""
        try:
            while self._buffer and not self._closed:
                if self._receiving is not None:
                    self._receive_body(self._receiving)
                elif self._exchange is not None or not self._begin_request():
                    break
            self._update_reading()
        except Exception as error:  # noqa: BLE001 - a fault of ours must not leave the client waiting
            self._context.exchange_failed(error)
            self._transport.abort()

    def _begin_request(self) -> bool:
        """Start on the next request, if its head is complete."""
        while self._buffer.startswith(b"\r\n"):  # empty lines before a request are ignored: RFC 9112, section 2.2
            self._buffer, self._scanned = self._buffer[2:], 0
        buffer, limit = self._buffer, self._context.config.max_head
        try:
            end = http1_parser.head_end(buffer, "request", self._scanned)
            if (end or len(buffer)) > limit:
                self._refuse(431, f"the request's head is larger than {limit} bytes", "head_too_large")
                return False
            if not end:
                self._scanned = len(buffer)
                return False
            head = http1_parser.parse_request(buffer[:end])
        except http1_parser.BadHttpError as error:
            self._refuse(error.status, error.message, error.code)
            return False
        self._buffer, self._scanned = buffer[end:], 0
        exchange = self._exchange = Exchange(self._context, self, head)
        if head.has_body:
            self._receiving = exchange
            self._body = http1_parser.ChunkedBody() if head.chunked else http1_parser.SizedBody(head.length)
        exchange.begin()
        if self._receiving is exchange and not self._buffer and b"expect" in head.fields:
            self._transport.write(error_responses.CONTINUE)
        return True

    def _receive_body(self, exchange: Exchange) -> None:
        body = self._body
        pieces = body.feed(self._buffer)
        self._buffer = body.rest
        for piece in pieces:
            exchange.body(piece)
        if self._receiving is not exchange:  # the response ended before the request did
            return
        if body.broken:
            self._refuse(400, "the request's body is not in valid chunks", "bad_chunk")
        elif body.done:
            self._receiving = None
            exchange.body_complete()

    def _refuse(self, status: int, message: str, code: str) -> None:
        """Nothing more can be read from this client."""
        if self._exchange is not None:
            self._exchange.refuse(status, message, code)
        else:
            self._transport.write(error_responses.error(status, message, code, close=True))
            self._close(mid_request=True)

    def _close(self, *, mid_request: bool) -> None:
        self._closed = True
        self._buffer = b""
        if mid_request and self._transport.can_write_eof():
            self._transport.write_eof()
            self._update_reading()
            self._context.loop.call_later(LINGER_SECONDS, self._transport.abort)
        else:
            self._transport.close()

    def _update_reading(self) -> None:
        read = not self._upload_paused and len(self._buffer) <= MAX_PIPELINED
        if read != self._reading and not self._transport.is_closing():
            self._reading = read
            if read:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()
