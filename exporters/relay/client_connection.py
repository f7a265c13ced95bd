"""A client's connection: requests in, one at a time, and their answers out."""

import asyncio
import socket
import struct
import time
from typing import TYPE_CHECKING, cast

from exporters.relay import error_responses, http1_parser
from exporters.relay.exchange import Exchange

if TYPE_CHECKING:
    from exporters.relay.relay import Relay

PIPELINED = 64 * 1024
"""Bytes of further requests that are kept while one is being answered; reading on shows when the client has gone."""

LINGER_SECONDS = 2.0
"""A client in the middle of sending loses our last answer to a reset unless we go on reading for a moment."""


class ClientConnection(asyncio.Protocol):
    """Takes requests off what arrives; a pipelined one waits until the answer before it is out."""

    __slots__ = (
        "_body",
        "_body_held",
        "_current",
        "_deaf",
        "_heard_at",
        "_held",
        "_reading",
        "_receiving",
        "_relay",
        "_searched",
        "_transport",
        "_unwritten",
        "_unwritten_since",
        "writable",
    )

    def __init__(self, relay: "Relay") -> None:
        self._relay = relay
        self._transport: asyncio.Transport
        self._held = b""  # what has arrived and is not part of a request yet
        self._searched = 0  # bytes of it that hold no end of a head
        self._current: Exchange | None = None
        self._receiving: Exchange | None = None  # the current one, while its body is coming in
        self._body: http1_parser.Body
        self._body_held = False
        self._reading = True
        self._deaf = False  # whatever else arrives is no request of ours to answer
        self._heard_at = time.monotonic()
        self._unwritten = 0
        self._unwritten_since = 0.0
        self.writable = True

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # A write goes out at once, and what the kernel does not take holds the engine back. Not 0: for uvloop's TLS
        # an empty buffer would then be full.
        self._transport.set_write_buffer_limits(high=1, low=0)
        self._relay.connections.add(self)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        self._heard_at = time.monotonic()
        self._held = self._held + data if self._held else data
        try:
            self._work()
        except Exception as error:  # noqa: BLE001 - a fault of ours must not leave the client waiting
            self._relay.exchange_failed(error)
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._relay.connections.discard(self)
        self._deaf = True
        self._held = b""
        if self._current is not None:
            self._current.client_gone()

    def pause_writing(self) -> None:
        self.writable = False
        self._unwritten, self._unwritten_since = self._transport.get_write_buffer_size(), time.monotonic()
        if self._current is not None:
            self._current.client_writable(writable=False)

    def resume_writing(self) -> None:
        self.writable = True
        if self._current is not None:
            self._current.client_writable(writable=True)

    # For the exchange.

    def send(self, data: bytes) -> None:
        self._transport.write(data)

    def abort(self) -> None:
        self._current = self._receiving = None
        self._deaf = True
        self._transport.abort()

    def reset(self) -> None:
        """End so that a client for whom the close is the end of the answer does not take this one for it."""
        taken = self._transport.get_extra_info("socket")
        if taken is not None:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.abort()

    def hold_body(self, *, hold: bool) -> None:
        """The engine is slower than the upload."""
        self._body_held = hold
        self._read_or_hold()

    def exchange_over(self, *, reusable: bool) -> None:
        midway, self._current, self._receiving, self._body_held = self._receiving is not None, None, None, False
        if not reusable:
            self._close(midway=midway)
        elif self._held:
            self._relay.loop.call_soon(self._work)
        elif self._relay.draining:
            self._transport.close()
        else:
            self._read_or_hold()

    # For the relay.

    def drain(self) -> None:
        """No further request on this connection."""
        if self._current is None:
            self._transport.close()

    def look_at_the_clock(self, now: float) -> None:
        """End what has waited too long for this client."""
        config = self._relay.config
        awaited = (self._current is None or self._receiving is not None) and self._reading
        if awaited and config.client_idle is not None and now - self._heard_at > config.client_idle:
            if self._held or self._receiving:
                self._refuse(408, f"no byte of the request for {config.client_idle:g} s", "request_timeout")
            else:
                self._transport.close()
        elif not self.writable and config.cut_stalled_client is not None:
            unwritten = self._transport.get_write_buffer_size()
            if unwritten < self._unwritten:
                self._unwritten, self._unwritten_since = unwritten, now
            elif now - self._unwritten_since > config.cut_stalled_client:
                self._transport.abort()

    # Inside.

    def _work(self) -> None:
        """Take from what is held as much as can be taken now."""
        while self._held and not self._deaf:
            if self._receiving is not None:
                self._receive(self._receiving)
            elif self._current is not None or not self._begin():
                break
        self._read_or_hold()

    def _begin(self) -> bool:
        """Start on the next request, if its head is in."""
        while self._held.startswith(b"\r\n"):  # empty lines before a request are none: RFC 9112, section 2.2
            self._held, self._searched = self._held[2:], 0
        held, limit = self._held, self._relay.config.max_head
        try:
            end = http1_parser.head_end(held, "request", self._searched)
            if (end or len(held)) > limit:
                self._refuse(431, f"the request's head is larger than {limit} bytes", "head_too_large")
                return False
            if not end:
                self._searched = len(held)
                return False
            head = http1_parser.request(held[:end])
        except http1_parser.BadHttpError as error:
            self._refuse(error.status, error.message, error.code)
            return False
        self._held, self._searched = held[end:], 0
        exchange = self._current = Exchange(self._relay, self, head)
        if head.chunked or head.length:
            self._receiving = exchange
            self._body = http1_parser.Chunks() if head.chunked else http1_parser.Sized(head.length)
        exchange.begin()
        if self._receiving is exchange and not self._held and b"expect" in head.fields:
            self._transport.write(error_responses.CONTINUE)
        return True

    def _receive(self, exchange: Exchange) -> None:
        body = self._body
        pieces = body.feed(self._held)
        self._held = body.rest
        for piece in pieces:
            exchange.body(piece)
        if self._receiving is not exchange:  # it was answered before its end
            return
        if body.broken:
            self._refuse(400, "the request's body is not framed as chunks are", "bad_chunk")
        elif body.done:
            self._receiving = None
            exchange.body_complete()

    def _refuse(self, status: int, message: str, code: str) -> None:
        """Nothing more can be read from this client."""
        if self._current is not None:
            self._current.refuse(status, message, code)
        else:
            self._transport.write(error_responses.error(status, message, code, close=True))
            self._close(midway=True)

    def _close(self, *, midway: bool) -> None:
        self._deaf = True
        self._held = b""
        if midway and self._transport.can_write_eof():
            self._transport.write_eof()
            self._read_or_hold()
            self._relay.loop.call_later(LINGER_SECONDS, self._transport.abort)
        else:
            self._transport.close()

    def _read_or_hold(self) -> None:
        read = not self._body_held and len(self._held) <= PIPELINED
        if read != self._reading and not self._transport.is_closing():
            self._reading = read
            if read:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()
