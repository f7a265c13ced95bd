"""A client's connection: requests in, one at a time, and their answers out."""

import asyncio
from collections import deque
from typing import TYPE_CHECKING, cast

import httptools

from exporters.relay import answers
from exporters.relay.exchange import Exchange
from exporters.relay.heads import Head, Header
from exporters.relay.paths import route

if TYPE_CHECKING:
    from exporters.relay.relay import Relay

MAX_HEAD = 64 * 1024
"""Bytes of a request line and its headers."""


class _RefusedError(Exception):
    """A request that must not be forwarded: status, message, code."""


class ClientConnection(asyncio.Protocol):
    """Parses requests; a pipelined one waits until the answer before it is out."""

    def __init__(self, relay: "Relay") -> None:
        self._relay = relay
        self._transport: asyncio.Transport
        self._parser = httptools.HttpRequestParser(self)
        self._current: Exchange | None = None
        self._waiting: deque[_Pipelined] = deque()
        self._reading_held = False
        self._refused = False
        self._start_message()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._relay.connections.add(self)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, _RefusedError):
                self._refuse(*error.__context__.args)
            else:
                self._refuse(400, f"the request is no valid HTTP: {str(error).lower()}", "bad_request")

    def connection_lost(self, exc: Exception | None) -> None:
        self._relay.connections.discard(self)
        self._waiting.clear()
        if self._current is not None:
            self._current.client_gone()

    def pause_writing(self) -> None:
        if self._current is not None:
            self._current.client_writable(writable=False)

    def resume_writing(self) -> None:
        if self._current is not None:
            self._current.client_writable(writable=True)

    # httptools

    def _start_message(self) -> None:
        self._target = b""
        self._headers: list[Header] = []
        self._head_size = 0
        self._in_trailers = False
        self._receiving: Exchange | _Pipelined | None = None

    def on_message_begin(self) -> None:
        self._start_message()

    def on_url(self, url: bytes) -> None:
        self._target += url
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_trailers:  # httptools hands trailers in here, after the body
            return
        self._count(len(name) + len(value))
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._in_trailers = True
        old_client = self._parser.get_http_version() == "1.0"
        hosts = sum(1 for name, _ in self._headers if name == b"host")
        if hosts > 1 or (hosts == 0 and not old_client):
            raise _RefusedError(400, "a request needs exactly one Host header", "bad_host")
        codings = [value.strip().lower() for name, value in self._headers if name == b"transfer-encoding"]
        if codings not in ([], [b"chunked"]):
            raise _RefusedError(400, "the only transfer-encoding of a request is chunked", "bad_transfer_encoding")
        if self._parser.should_upgrade():
            raise _RefusedError(426, "protocol upgrades are not relayed", "upgrade_not_supported")
        head = Head(
            method=self._parser.get_method().decode("latin-1"),
            target=self._target.decode("latin-1"),
            headers=self._headers,
            old_client=old_client,
            keep_alive=self._parser.should_keep_alive(),
        )
        if self._current is not None:
            self._receiving = _Pipelined(head)
            self._waiting.append(self._receiving)
            self._transport.pause_reading()
        else:
            self._receiving = self._begin(head)

    def on_body(self, body: bytes) -> None:
        if self._receiving is not None:
            self._receiving.body(body)

    def on_message_complete(self) -> None:
        receiving, self._receiving = self._receiving, None
        if receiving is not None:
            receiving.body_complete()

    def _count(self, size: int) -> None:
        self._head_size += size
        if self._head_size > MAX_HEAD:
            raise _RefusedError(431, f"the request's head is larger than {MAX_HEAD} bytes", "head_too_large")

    # For the exchange.

    def send(self, data: bytes) -> None:
        self._transport.write(data)

    def abort(self) -> None:
        self._current = None
        self._transport.abort()

    def hold_body(self, *, hold: bool) -> None:
        if hold == self._reading_held or self._transport.is_closing():
            return
        self._reading_held = hold
        if hold:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def exchange_over(self, *, reusable: bool) -> None:
        self._current = None
        if not reusable or self._refused:
            self._transport.close()
        elif self._waiting:
            self._relay.loop.call_soon(self._next)
        elif self._relay.draining:
            self._transport.close()

    def drain(self) -> None:
        """No further request on this connection."""
        if self._current is None:
            self._transport.close()

    def _begin(self, head: Head) -> Exchange:
        exchange = self._current = Exchange(self._relay, self, head, route(head.target, self._relay.config.allow_paths))
        if any(name == b"expect" for name, _ in head.headers):
            self._transport.write(answers.CONTINUE)
        exchange.head_complete()
        return exchange

    def _next(self) -> None:
        if not self._waiting or self._transport.is_closing():
            return
        waited = self._waiting.popleft()
        exchange = self._begin(waited.head)
        if self._receiving is waited:
            self._receiving = exchange
        for piece in waited.pieces:
            exchange.body(piece)
        if waited.complete:
            exchange.body_complete()
        if not self._waiting:
            self._transport.resume_reading()

    def _refuse(self, status: int, message: str, code: str) -> None:
        """Nothing more can be read from this client; what it has asked before is still answered."""
        self._refused = True
        self._waiting.clear()
        if self._current is not None and self._receiving is self._current:
            self._current.refuse(status, message, code)
        elif self._current is None:
            self._transport.write(answers.error(status, message, code, close=True))
            self._transport.close()


class _Pipelined:
    """A request that came before the answer to the one ahead of it; reading is held meanwhile."""

    def __init__(self, head: Head) -> None:
        self.head = head
        self.pieces: list[bytes] = []
        self.complete = False

    def body(self, data: bytes) -> None:
        self.pieces.append(data)

    def body_complete(self) -> None:
        self.complete = True
