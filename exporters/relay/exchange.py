"""One request on its way to the engine and its answer on the way back."""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from exporters.records import NOT_UNDERSTOOD, TOO_LARGE
from exporters.relay import error_responses, message_heads, request_body
from exporters.relay.http1_parser import Head, Header, Reply
from exporters.relay.measurement import Measurement
from exporters.relay.paths import Route, normal, route
from exporters.relay.upstream import UpstreamConnection
from exporters.signals import Outcome

if TYPE_CHECKING:
    from exporters.relay.relay import Relay

PARSED_LIMIT = 8 * 1024 * 1024
"""Bodies are parsed whole up to here; larger ones stream through, classed by size."""


class Client(Protocol):
    """The connection that the request came in on."""

    @property
    def writable(self) -> bool:
        """Whether it takes bytes without our keeping them."""

    def send(self, data: bytes) -> None: ...
    def exchange_over(self, *, reusable: bool) -> None: ...
    def abort(self) -> None: ...
    def reset(self) -> None: ...
    def hold_body(self, *, hold: bool) -> None: ...


class Exchange:
    """Joins one client request with one upstream response."""

    __slots__ = (
        "_answer_begun",
        "_body",
        "_body_complete",
        "_body_size",
        "_broken_off",
        "_chunked",
        "_client",
        "_connecting",
        "_delimited",
        "_event_stream",
        "_head",
        "_heard_at",
        "_path",
        "_relay",
        "_retried",
        "_reusable",
        "_route",
        "_sent_head",
        "_status",
        "_streams_body",
        "_upstream",
        "account",
        "over",
    )

    def __init__(self, relay: "Relay", client: Client, head: Head) -> None:
        self._relay = relay
        self._client = client
        self._head = head
        self._path = normal(head.target)
        self._route = route(head.target, relay.config.allow_paths)
        self._body: list[bytes] = []
        self._body_size = 0
        self._body_complete = not head.chunked and head.length == 0
        self._streams_body = self._route is not Route.METERED
        self._upstream: UpstreamConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._sent_head = False
        self._retried = False
        self._status: int | None = None
        self._answer_begun = False
        self._event_stream = False
        self._chunked = False
        self._delimited = True
        self._broken_off = False
        self._reusable = False
        self.account = Measurement(relay, head, self._path, metered=self._route is Route.METERED)
        self._heard_at = self.account.zero
        self.over = False

    # From the client.

    def begin(self) -> None:
        """The request's head is in: what is not parsed can be forwarded at once."""
        if self._route is Route.REFUSED:
            self._offer(None)
            self._fail(
                403,
                Outcome.CLIENT_ERROR,
                f"{self._path} is not an inference path; the operator can allow it with --allow-path",
                "path_not_allowed",
                time.monotonic(),
            )
        elif (limit := self._relay.config.max_body) is not None and self._head.length > limit:
            self._too_large(limit)
        elif self._streams_body:
            self._offer(None)
            self._acquire()
        elif self._body_complete:
            self.body_complete()

    def body(self, data: bytes) -> None:
        """A piece of the request's body."""
        if self.over:
            return
        self._body.append(data)
        self._body_size += len(data)
        limit = self._relay.config.max_body
        if limit is not None and self._body_size > limit:
            self._too_large(limit)
        elif self._streams_body:
            if self._sent_head:
                self._write_body()
            elif self._body_size > PARSED_LIMIT:  # no engine yet to take it
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
            self._client.hold_body(hold=False)
            if self._sent_head:
                self._write_body()
            return
        body = b"".join(self._body)
        asked = request_body.read(body, self._relay.salt)
        takes_usage = self._relay.config.inject_usage and asked is not None and asked.stream and not asked.asks_usage
        if takes_usage:
            try:
                body = request_body.with_usage(body)
            except request_body.NOT_JSON:  # bytes that `read` had no need to look at
                asked, takes_usage = None, False
        if asked is None:
            self.account.unparsed = NOT_UNDERSTOOD
        self._body = [body]
        self._body_size = len(body)
        self._offer(asked, takes_usage=takes_usage)
        self._acquire()

    def refuse(self, status: int, message: str, code: str) -> None:
        """The rest of the request makes no sense, or does not come."""
        if not self.account.offered:
            self.account.unparsed = TOO_LARGE if status == 413 else NOT_UNDERSTOOD
            self._offer(None)
        self._fail(status, Outcome.CLIENT_ERROR, message, code, time.monotonic())

    def client_gone(self) -> None:
        """The client has closed, or reads no more: the engine must stop working for it."""
        self._end(Outcome.CLIENT_ABORT, time.monotonic())

    def client_writable(self, *, writable: bool) -> None:
        """A slow reader pauses the engine's stream rather than filling our memory."""
        if self._upstream is not None:
            self._upstream.pause(pause=not writable)
            self.account.client_reads(reads=writable)

    # From the engine.

    def on_read(self, reply: Reply | None, pieces: list[bytes], at: float, *, ended: bool) -> None:
        """What one read of the engine's connection has brought goes on in one write."""
        self._heard_at = at
        out = []
        if reply is not None:
            answer = message_heads.answer(
                self._head, reply, shortens_streams=self.account.takes_usage, last=self._relay.draining
            )
            self._status = reply.status
            self._answer_begun = True
            self._event_stream, self._chunked, self._reusable = answer.event_stream, answer.chunked, answer.reusable
            self._delimited = answer.delimited
            out.append(answer.data)
        if pieces:
            self._frame(self.account.observe(pieces, at, event_stream=self._event_stream), out)
        if ended:
            self._upstream = None
            outcome = self._response_over(at, out, complete=True)
            if self._chunked:
                out.append(b"0\r\n\r\n")
            self._client.send(b"".join(out))
            self._end(outcome, at)
        elif out:
            self._client.send(b"".join(out))

    def even(self) -> Callable[[bytes], bool] | None:
        """What forwards the chunks of a stream that has shown its pattern."""
        even = self.account.even(self._client.send) if self._chunked and not self.over else None
        return None if even is None else even.forward

    def on_broken(self, at: float) -> None:
        self._upstream = None
        self._fail(502, Outcome.UPSTREAM_ERROR, "the engine's answer is no HTTP", "bad_upstream_response", at)

    def on_fault(self, error: Exception, at: float) -> None:
        self._upstream = None
        self._relay.exchange_failed(error)
        self._fail(502, Outcome.UPSTREAM_ERROR, "the sidecar could not relay the engine's answer", "internal_error", at)

    def on_lost(self, at: float) -> None:
        connection, self._upstream = self._upstream, None
        if connection is not None and self._may_send_again(connection):
            self._retried = True
            self._sent_head = False
            self._acquire()
        elif self._answer_begun:
            self._break_off()
            out: list[bytes] = []
            outcome = self._response_over(at, out, complete=False)
            if out:
                self._client.send(b"".join(out))
            self._end(outcome, at)
        else:
            self._fail(
                502, Outcome.UPSTREAM_ERROR, "the engine closed the connection without an answer", "upstream_closed", at
            )

    def on_writable(self, *, writable: bool) -> None:
        self._client.hold_body(hold=not writable and not self._body_complete)

    # From the relay.

    @property
    def silent_since(self) -> float:
        """When the engine was last heard of."""
        return max(self._heard_at, self.account.last_output_at)

    def cut(self, outcome: Outcome, message: str) -> None:
        """End the request because it has waited too long."""
        self._fail(504, outcome, message, str(outcome), time.monotonic())

    # Inside.

    def _too_large(self, limit: int) -> None:
        self.refuse(413, f"the request's body is larger than {limit} bytes", "body_too_large")

    def _offer(self, asked: request_body.RequestBody | None, *, takes_usage: bool = False) -> None:
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
        if not self._client.writable:  # the end of the answer before this one is still on its way
            self.client_writable(writable=False)
        self._sent_head = True
        origin = self._relay.pool.origin
        head = message_heads.request_head(
            self._head, origin.authority, origin.prefix, self._framing(), identity=self._route is Route.METERED
        )
        if self._body_complete and not self._chunks_body():
            connection.transport.write(head + b"".join(self._body))
            if self._streams_body:
                self._body.clear()
        else:
            connection.transport.write(head)
            self._write_body()
            self._client.hold_body(hold=connection.unwritten and not self._body_complete)

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
        held = self._body_complete and not self._streams_body
        return connection.reused and not connection.answered and connection.unwritten and held and not self._retried

    def _framing(self) -> Header | None:
        if self._chunks_body():
            return b"transfer-encoding", b"chunked"
        if not self._streams_body:
            return b"content-length", b"%d" % self._body_size
        declared = self._head.fields.get(b"content-length")
        return None if declared is None else (b"content-length", declared)

    def _chunks_body(self) -> bool:
        """Whether the body goes on in chunks: it came in chunks and is not held whole."""
        return self._streams_body and self._head.chunked

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

    def _frame(self, pieces: list[bytes], out: list[bytes]) -> None:
        out.extend(b"%x\r\n%s\r\n" % (len(piece), piece) if self._chunked else piece for piece in pieces if piece)

    def _response_over(self, at: float, out: list[bytes], *, complete: bool) -> Outcome:
        rest, outcome = self.account.response_over(
            self._status or 0, at, event_stream=self._event_stream, complete=complete
        )
        self._frame([rest], out)
        return outcome

    def _fail(self, status: int, outcome: Outcome, message: str, code: str, at: float) -> None:
        """End with an error of our own, where the client can still be told one."""
        if not self._answer_begun:
            self._status = status
            self._answer_begun = True
            # A client still sending its body must not have the rest of it read as a new request.
            self._reusable = self._head.keep_alive and self._body_complete and not self._relay.draining
            bodiless = self._head.method == "HEAD"
            self._client.send(error_responses.error(status, message, code, close=not self._reusable, bodiless=bodiless))
        else:
            self._break_off()
        self._end(outcome, at)

    def _break_off(self) -> None:
        """The answer has begun and will not come to its end."""
        self._broken_off = True
        self._reusable = False

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
        elif self._broken_off and not self._delimited:
            self._client.reset()
        else:
            self._client.exchange_over(reusable=self._reusable and self._body_complete)
