"""A client's connection: parses one request at a time and writes the responses."""

import asyncio
import socket
import struct
import time
from collections.abc import Callable
from typing import Protocol, cast

from exporters.http import parser
from exporters.http.lines import few_lines
from exporters.relay.connections import error_responses
from exporters.relay.connections.client_limit import MAX_REJECTING
from exporters.relay.connections.exchange import Exchange, ExchangeContext
from exporters.relay.connections.websocket_exchange import WebSocketExchange
from exporters.relay.connections.write_batch import WriteBatch
from exporters.vocabulary.signals import Outcome

MAX_PIPELINED = 64 * 1024
"""Bytes of pipelined requests that are buffered during an exchange."""

HEAD_SECONDS = 30.0
"""Time limit for a request head, from its first byte, which may be that of an empty line before it."""

LINGER_SECONDS = 2.0
"""The time for which the relay reads after an early response, because a reset would discard the response."""


class ConnectionContext(ExchangeContext, Protocol):
    """The part of the relay process that a client connection uses, in addition to its exchanges."""

    writes: WriteBatch
    client_limit: int
    connections: set["ClientConnection"]
    unread: set["ClientConnection"]
    """Clients from which nothing is read at present, so that the event loop does not report a disconnect."""
    rejecting: set["ClientConnection"]
    """Clients above the limit, whose first request gets an error response."""
    rejected_connections: int
    accepting: bool


class ClientConnection(asyncio.Protocol):
    """Parses requests one at a time; a pipelined request waits until the previous response is complete."""

    def __init__(self, context: ConnectionContext) -> None:
        self._context = context
        self._transport: asyncio.Transport
        # Received bytes that are not part of a request yet.
        self._buffer = b""
        # Bytes of the buffer that were searched for the end of the head.
        self._scanned = 0
        # When the first byte of an incomplete head arrived, but not before the end of the previous exchange.
        self._head_since: float | None = None
        self._exchange: Exchange | None = None
        # The same exchange, while its body is arriving.
        self._receiving: Exchange | None = None
        self._body: parser.Body
        # Bytes of responses that wait for the write batch.
        self._unsent: list[bytes] = []
        self._upload_paused = False
        self._reading = True
        self._switched = False
        self._first_request_pending = True
        # Whether the rest of the buffer is parsed in the next iteration of the event loop.
        self._continues = False
        # Set if there are too many clients: when to close the connection.
        self._rejection: asyncio.TimerHandle | None = None
        self._closed = False
        # When the client last sent a byte, received its response, or was no longer delayed by the engine.
        self._idle_since = time.monotonic()
        self._unwritten = 0
        self._unwritten_since = 0.0
        self.writable = True

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # Any unsent byte triggers back-pressure on the engine. Not 0: uvloop's TLS would treat an empty buffer as full.
        self._transport.set_write_buffer_limits(high=1, low=0)
        context = self._context
        if len(context.connections) < context.client_limit:
            context.connections.add(self)
            context.pool.expect_request()
            if context.bodies.requests_wait:
                context.loop.call_soon(self.update_reading)  # uvloop starts to read after this method
        else:
            self._reject()

    def data_received(self, data: bytes) -> None:
        if self._closed:
            return
        self._idle_since = at = time.monotonic()
        self._buffer = self._buffer + data if self._buffer else data
        self._process_buffer(at)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._rejection is not None:
            self._rejection.cancel()
            self._context.rejecting.discard(self)
        self._context.connections.discard(self)
        self._context.unread.discard(self)
        self._expect_no_request()
        self._closed = True
        self._buffer = b""
        self._unsent.clear()
        if self._exchange is not None:
            self._exchange.client_gone(time.monotonic())

    def pause_writing(self) -> None:
        self.writable = False
        at = time.monotonic()
        self._unwritten, self._unwritten_since = self._transport.get_write_buffer_size(), at
        if self._exchange is not None:
            self._exchange.client_writable(at, writable=False)

    def resume_writing(self) -> None:
        self.writable = True
        self._idle_since = at = time.monotonic()
        if self._exchange is not None:
            self._exchange.client_writable(at, writable=True)

    # Called by the exchange.

    def send(self, data: bytes) -> None:
        if self._unsent:
            self._flush()
        self._transport.write(data)

    def stream_writer(self) -> Callable[[bytes], None]:
        """`send` for the rest of a stream: after its head, nothing waits for the write batch."""
        if self._unsent:
            self._flush()
        return self._transport.write

    def send_response(self, data: bytes) -> None:
        """Send a complete response with the write batch."""
        if not self._unsent:
            self._context.writes.add(self._flush)
        self._unsent.append(data)

    def abort(self) -> None:
        self._exchange = self._receiving = None
        self._closed = True
        self._transport.abort()

    def reset(self) -> None:
        """Abort with a TCP reset: a plain close would mark the end of a response that has no other framing."""
        sock = self._transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._flush()
        self.abort()

    def pause_upload(self, *, pause: bool) -> None:
        """Pause or resume reading the request body, because the engine reads it slowly."""
        self._upload_paused = pause
        self.update_reading()

    def switch_protocol(self, replace: Callable[[asyncio.Protocol], asyncio.Protocol]) -> bytes:
        """Read with another protocol from now on; returns the bytes that have already arrived."""
        self._switched = True
        self._transport.set_protocol(replace(self))
        early, self._buffer = self._buffer, b""
        self.update_reading()
        return early

    @property
    def can_end_sending(self) -> bool:
        """Whether the connection can be half-closed; TLS connections cannot."""
        return self._transport.can_write_eof()

    def end_sending(self) -> None:
        self._flush()
        self._transport.write_eof()

    def exchange_over(self, at: float, *, reusable: bool) -> None:
        mid_request = self._receiving is not None
        self._exchange = self._receiving = None
        self._upload_paused = False
        self._idle_since = at
        if not reusable:
            self._close(mid_request=mid_request)
        elif self._buffer:
            self._continue_soon()
        elif not self._context.accepting:
            self._close_transport()
        else:
            self.update_reading()

    # Called by the relay.

    @property
    def busy(self) -> bool:
        """Whether a request is open, a part of its head has arrived, or a part of its response is not written."""
        return self._exchange is not None or bool(self._buffer or self._unsent) or not self.writable

    def drain(self) -> None:
        """Accept no further request on this connection."""
        if not self.busy:
            self._transport.close()

    def shut_down(self, now: float) -> bool:
        """Cut the open request, if there is one."""
        if self._exchange is None:
            return False
        self._exchange.cut(Outcome.UPSTREAM_ERROR, "the sidecar is shutting down", now)
        return True

    def stalled_upload(self, now: float) -> tuple[float, Exchange] | None:
        """The open request and when its body last moved, if the relay holds a part of the body."""
        exchange = self._exchange
        since = None if exchange is None else exchange.holds_body_since(now)
        return None if exchange is None or since is None else (since, exchange)

    def update_reading(self) -> None:
        """Pause or resume reading."""
        waiting = 0 if self._exchange is None and not self._continues else len(self._buffer)
        read = not self._upload_paused and waiting <= MAX_PIPELINED
        bodies = self._context.bodies
        if bodies.uploads_wait and (self._receiving is not None or (bodies.requests_wait and self._exchange is None)):
            read = False
        if read != self._reading and not self._transport.is_closing():
            self._reading = read
            if read:
                self._context.unread.discard(self)
                self._idle_since = time.monotonic()
                self._transport.resume_reading()
            else:
                # The bytes of a WebSocket that were sent before its end are still forwarded.
                if not self._switched:
                    self._context.unread.add(self)
                self._transport.pause_reading()

    @property
    def descriptor(self) -> int:
        """The descriptor of the socket; -1 if it is closed."""
        sock = self._transport.get_extra_info("socket")
        return -1 if sock is None else int(sock.fileno())

    def disconnected(self) -> None:
        """The client has disconnected while nothing is read from it."""
        self._transport.abort()

    def check_timeouts(self, now: float) -> None:
        """Enforce the client timeouts at `now`, in monotonic seconds."""
        config = self._context.config
        awaited = (self._exchange is None or self._receiving is not None) and self._reading
        if not self.writable:
            unwritten = self._transport.get_write_buffer_size()
            if unwritten < self._unwritten:
                self._unwritten, self._unwritten_since = unwritten, now
            elif config.cut_stalled_client is not None and now - self._unwritten_since > config.cut_stalled_client:
                self._transport.abort()
        elif awaited and config.client_idle is not None and now - self._idle_since > config.client_idle:
            self._time_out(f"the client sent no data for {config.client_idle:g} s", now)
        elif self._head_since is not None and now - self._head_since > HEAD_SECONDS:
            self._time_out(f"the request head was not complete within {HEAD_SECONDS:g} s", now)

    # Internal.

    def _time_out(self, message: str, now: float) -> None:
        """Close the connection, with status 408 if a request has begun."""
        if self._buffer or self._receiving:
            self._refuse(408, message, "request_timeout", now)
        else:
            self._close_transport()

    def _reject(self) -> None:
        """Open no connection to the engine, and respond to the first request with an error if it arrives soon."""
        context = self._context
        self._first_request_pending = False
        context.rejected_connections += 1
        if len(context.rejecting) < MAX_REJECTING:
            context.rejecting.add(self)
            self._rejection = context.loop.call_later(LINGER_SECONDS, self._transport.abort)
        else:
            self._closed = True
            self._transport.abort()

    def _process_buffer(self, at: float) -> None:
        """Parse the next request of the buffer, or the next part of its body."""
        try:
            if self._buffer and not self._closed and (self._exchange is not None or self._begin_request(at)):
                if self._receiving is not None and self._buffer:
                    self._receive_body(self._receiving, at)
                # Parsing all that a client may have sent at once would delay the other clients.
                if self._buffer and (self._exchange is None or self._receiving is not None):
                    self._continue_soon()
            self.update_reading()
        except Exception as error:  # noqa: BLE001 - an internal error must not leave the client waiting
            self._context.exchange_failed(error)
            self._transport.abort()

    def _continue_soon(self) -> None:
        if not self._continues:
            self._continues = True
            self._context.loop.call_soon(self._continue)

    def _continue(self) -> None:
        self._continues = False
        self._process_buffer(time.monotonic())

    def _begin_request(self, at: float) -> bool:
        """Start the next request if its head is complete."""
        if self._buffer.startswith(b"\r\n"):
            self._buffer, self._scanned = self._buffer[parser.empty_lines(self._buffer) :], 0
        buffer, limit = self._buffer, self._context.config.max_head
        try:
            end = parser.head_end(buffer, "request", self._scanned)
            if (end or len(buffer)) > limit:
                self._refuse(431, f"the request head is larger than {limit} bytes", "head_too_large", at)
                return False
            if not end:
                self._scanned = len(buffer)
                if self._head_since is None:
                    self._head_since = at
                return False
            head = parser.parse_request(buffer[:end])
        except parser.BadHttpError as error:
            self._refuse(error.status, error.message, error.code, at)
            return False
        self._buffer, self._scanned, self._head_since = buffer[end:], 0, None
        self._expect_no_request()
        exchange = self._exchange = (WebSocketExchange if head.websocket else Exchange)(self._context, self, head, at)
        if head.has_body:
            self._receiving = exchange
            self._body = parser.ChunkedBody() if head.chunked else parser.SizedBody(head.length)
        if self._rejection is None:
            exchange.begin(at)
        else:
            limit = self._context.client_limit
            exchange.refuse(503, f"the limit of {limit} client connections is reached", "too_many_connections", at)
        if self._receiving is exchange and not self._buffer and head.expects_continue:
            self.send(error_responses.CONTINUE)
        return True

    def _expect_no_request(self) -> None:
        if self._first_request_pending:
            self._first_request_pending = False
            self._context.pool.expect_no_request()

    def _receive_body(self, exchange: Exchange, at: float) -> None:
        body, data = self._body, self._buffer
        part = few_lines(data) if isinstance(body, parser.ChunkedBody) else data
        pieces = body.feed(part)
        self._buffer = body.rest if part is data else body.rest + data[len(part) :]
        if pieces:
            # Each piece is one write to the engine.
            exchange.body(pieces[0] if len(pieces) == 1 else b"".join(pieces), at)
        # The response may end before the request.
        if self._receiving is not exchange:
            return
        if body.broken:
            self._refuse(400, "the request body has invalid chunked encoding", "bad_chunk", at)
        elif body.done:
            self._receiving = None
            exchange.body_complete(at)

    def _refuse(self, status: int, message: str, code: str, at: float) -> None:
        """Reject the request and read no further request from this client."""
        if self._exchange is not None:
            self._exchange.refuse(status, message, code, at)
        else:
            self._context.refused(status, code)
            self.send(error_responses.error(status, message, code, close=True))
            self._close(mid_request=True)

    def _close(self, *, mid_request: bool) -> None:
        self._closed = True
        self._buffer = b""
        if mid_request and self._transport.can_write_eof():
            self._flush()
            self._transport.write_eof()
            self.update_reading()
            self._context.loop.call_later(LINGER_SECONDS, self._transport.abort)
        else:
            self._close_transport()

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent and not self._transport.is_closing():
            self._transport.write(unsent[0] if len(unsent) == 1 else b"".join(unsent))

    def _close_transport(self) -> None:
        self._flush()
        self._transport.close()
