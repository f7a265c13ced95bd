"""One request on its way to the engine and its answer on the way back."""

import asyncio
import time
from typing import TYPE_CHECKING, Protocol

import msgspec

from exporters.records import NOT_UNDERSTOOD, TOO_LARGE
from exporters.relay import answers, heads, question
from exporters.relay.account import Account
from exporters.relay.heads import Head, Header
from exporters.relay.paths import Route, normal
from exporters.relay.upstream import UpstreamConnection
from exporters.signals import Outcome

if TYPE_CHECKING:
    from exporters.relay.relay import Relay

PARSED_LIMIT = 8 * 1024 * 1024
"""Bodies are parsed whole up to here; larger ones stream through, classed by size."""


class Client(Protocol):
    """The connection that the request came in on."""

    def send(self, data: bytes) -> None: ...
    def exchange_over(self, *, reusable: bool) -> None: ...
    def abort(self) -> None: ...
    def hold_body(self, *, hold: bool) -> None: ...


class Exchange:
    """Joins one client request with one upstream response."""

    def __init__(self, relay: "Relay", client: Client, head: Head, route: Route) -> None:
        self._relay = relay
        self._client = client
        self._head = head
        self._route = route
        self._body: list[bytes] = []
        self._body_size = 0
        self._body_complete = False
        self._streams_body = route is not Route.METERED
        self._upstream: UpstreamConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._sent_head = False
        self._retried = False
        self._status: int | None = None
        self._answer_begun = False
        self._event_stream = False
        self._chunked = False
        self._reusable = False
        self.account = Account(relay, head, metered=route is Route.METERED)
        self.last_byte_at = self.account.zero
        self.over = False

    # From the client.

    def head_complete(self) -> None:
        """The request's head is in: what is not parsed can be forwarded at once."""
        if self._route is Route.REFUSED:
            self._offer(None)
            self._fail(
                403,
                Outcome.CLIENT_ERROR,
                f"{normal(self._head.target)} is not an inference path; the operator can allow it with --allow-path",
                "path_not_allowed",
                time.monotonic(),
            )
        elif self._streams_body:
            self._offer(None)
            self._acquire()

    def body(self, data: bytes) -> None:
        """A piece of the request's body."""
        if self.over:
            return
        self._body.append(data)
        self._body_size += len(data)
        if self._streams_body:
            if self._sent_head:
                self._write_body()
            elif self._body_size > PARSED_LIMIT:
                self._client.hold_body(hold=True)
        elif self._body_size > PARSED_LIMIT:
            self._streams_body = True
            self.account.unparsed = TOO_LARGE
            self._offer(None)
            self._acquire()

    def body_complete(self) -> None:
        """The request is in: its time zero, unless it has been streaming through since its head."""
        self._body_complete = True
        if self.over:
            return
        if self._streams_body:
            if self._sent_head:
                self._write_body()
            return
        body = b"".join(self._body)
        asked = question.read(body, self._relay.salt)
        takes_usage = self._relay.config.inject_usage and asked is not None and asked.stream and not asked.asks_usage
        if takes_usage:
            try:
                body = question.with_usage(body)
            except (msgspec.DecodeError, UnicodeDecodeError):  # bytes that `read` had no need to look at
                asked, takes_usage = None, False
        if asked is None:
            self.account.unparsed = NOT_UNDERSTOOD
        self._body = [body]
        self._body_size = len(body)
        self._offer(asked, takes_usage=takes_usage)
        self._acquire()

    def refuse(self, status: int, message: str, code: str) -> None:
        """The rest of the request makes no sense."""
        self._fail(status, Outcome.CLIENT_ERROR, message, code, time.monotonic())

    def client_gone(self) -> None:
        """The client has closed: the engine must stop working for it."""
        self._end(Outcome.CLIENT_ABORT, time.monotonic())

    def client_writable(self, *, writable: bool) -> None:
        """A slow reader pauses the engine's stream rather than filling our memory."""
        if self._upstream is not None:
            if writable:
                self._upstream.transport.resume_reading()
            else:
                self._upstream.transport.pause_reading()

    # From the engine.

    def on_head(self, status: int, reason: bytes, headers: list[Header]) -> None:
        answer = heads.answer(self._head, status, reason, headers, last=self._relay.draining)
        self._status = status
        self._answer_begun = True
        self._event_stream, self._chunked, self._reusable = answer.event_stream, answer.chunked, answer.reusable
        self._client.send(answer.data)

    def on_body(self, pieces: list[bytes], at: float) -> None:
        self.last_byte_at = at
        self._forward(self.account.observe(pieces, at, event_stream=self._event_stream))

    def on_end(self, at: float) -> None:
        self._upstream = None
        outcome = self._response_over(at, complete=True)
        if self._chunked:
            self._client.send(b"0\r\n\r\n")
        self._end(outcome, at)

    def on_broken(self, at: float) -> None:
        self._upstream = None
        self._fail(502, Outcome.UPSTREAM_ERROR, "the engine's answer is no HTTP", "bad_upstream_response", at)

    def on_lost(self, at: float) -> None:
        connection, self._upstream = self._upstream, None
        if connection is not None and self._may_send_again(connection):
            self._retried = True
            self._sent_head = False
            self._acquire()
        elif self._answer_begun:
            self._reusable = False
            self._end(self._response_over(at, complete=False), at)
        else:
            self._fail(
                502, Outcome.UPSTREAM_ERROR, "the engine closed the connection without an answer", "upstream_closed", at
            )

    def on_writable(self, *, writable: bool) -> None:
        self._client.hold_body(hold=not writable)

    # From the relay.

    def cut(self, outcome: Outcome, message: str) -> None:
        """End the request because it has waited too long."""
        self._fail(504, outcome, message, str(outcome), time.monotonic())

    # Inside.

    def _offer(self, asked: question.Question | None, *, takes_usage: bool = False) -> None:
        self.account.start(asked, self._body_size, takes_usage=takes_usage)
        self._relay.opened(self)

    def _acquire(self) -> None:
        connection = None if self._retried else self._relay.pool.take()
        if connection is not None:
            self._connected(connection)
        else:
            self._connecting = self._relay.pool.connect(self._connected, self._unreachable)

    def _connected(self, connection: UpstreamConnection) -> None:
        self._connecting = None
        if self.over:
            connection.transport.abort()
            return
        self._upstream = connection
        connection.begin(self, head_only=self._head.method == "HEAD")
        self._sent_head = True
        origin = self._relay.pool.origin
        head = heads.request_head(
            self._head, origin.authority, origin.prefix, self._framing(), identity=self._route is Route.METERED
        )
        if self._body_complete and not self._chunks_body():
            connection.transport.write(head + b"".join(self._body))
            if self._streams_body:
                self._body.clear()
        else:
            connection.transport.write(head)
            self._write_body()
            self._client.hold_body(hold=False)

    def _unreachable(self, reason: str) -> None:
        self._connecting = None
        if not self.over:
            self._fail(
                502,
                Outcome.UPSTREAM_UNREACHABLE,
                f"the engine at {self._relay.pool.origin.authority} cannot be reached: {reason}",
                "upstream_unreachable",
                time.monotonic(),
            )

    def _may_send_again(self, connection: UpstreamConnection) -> bool:
        """The engine closed an idle connection under us before the request was fully written, and we still hold it."""
        unwritten = connection.transport.get_write_buffer_size() > 0
        held = self._body_complete and not self._streams_body
        return connection.reused and not connection.answered and unwritten and held and not self._retried

    def _framing(self) -> Header | None:
        if self._chunks_body():
            return b"transfer-encoding", b"chunked"
        if not self._streams_body:
            return b"content-length", b"%d" % self._body_size
        length = self._head.get("content-length")
        return None if length is None else (b"content-length", length.encode("latin-1"))

    def _chunks_body(self) -> bool:
        """Whether the body goes on in chunks: it came in chunks and is not held whole."""
        return self._streams_body and self._head.get("transfer-encoding") is not None

    def _write_body(self) -> None:
        if self._upstream is None:
            return
        write = self._upstream.transport.write
        chunks = self._chunks_body()
        for piece in self._body:
            write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunks else piece)
        self._body.clear()
        if self._body_complete and chunks:
            write(b"0\r\n\r\n")

    def _forward(self, pieces: list[bytes]) -> None:
        if self._chunked:
            data = b"".join([b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces if piece])
        else:
            data = b"".join(pieces)
        if data:
            self._client.send(data)

    def _response_over(self, at: float, *, complete: bool) -> Outcome:
        rest, outcome = self.account.response_over(
            self._status or 0, at, event_stream=self._event_stream, complete=complete
        )
        self._forward([rest])
        return outcome

    def _fail(self, status: int, outcome: Outcome, message: str, code: str, at: float) -> None:
        """End with an error of our own, where the client can still be told one."""
        if not self._answer_begun:
            self._status = status
            self._answer_begun = True
            # A client still sending its body must not have the rest of it read as a new request.
            self._reusable = self._head.keep_alive and self._body_complete and not self._relay.draining
            self._client.send(answers.error(status, message, code, close=not self._reusable))
        else:
            self._reusable = False
        self._end(outcome, at)

    def _end(self, outcome: Outcome, at: float) -> None:
        if self.over:
            return
        self.over = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._upstream is not None:
            self._upstream.abandon()
            self._upstream = None
        if self.account.offered:
            record = self.account.close(outcome, self._status, at, event_stream=self._event_stream)
            self._relay.ended(self, record)
        if outcome is Outcome.CLIENT_ABORT:
            self._client.abort()
        else:
            self._client.exchange_over(reusable=self._reusable and self._body_complete)
