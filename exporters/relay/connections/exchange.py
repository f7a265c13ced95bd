"""An exchange: forwards one request to the engine and its response to the client."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Protocol

from exporters.configuration.sidecar import SidecarConfig
from exporters.http.parser import Header, RequestHead, ResponseHead
from exporters.records.messages import NOT_UNDERSTOOD, TOO_LARGE, Finished
from exporters.relay.bodies import prefix_hashes, request_body
from exporters.relay.bodies.logged_content import LoggedContent
from exporters.relay.bodies.memory import BodyMemory
from exporters.relay.connections import error_responses, message_heads
from exporters.relay.connections.exchange_state import (
    ExchangeState,
    RequestEvent,
    RequestState,
    ResponseEvent,
    ResponseState,
)
from exporters.relay.connections.message_heads import ResponseFraming
from exporters.relay.connections.upstream import UpstreamConnection, UpstreamPool
from exporters.relay.dialects.dialect import Dialect
from exporters.relay.dialects.paths import ENGINE_METRICS, METERED, Route, normalise, refuses_upgrade, route_of_path
from exporters.relay.metering import structured_output
from exporters.relay.metering.fast_path import Forwarding
from exporters.relay.metering.measurement import Measurement, MeasurementContext
from exporters.text.names import cut
from exporters.vocabulary.signals import GENERATING, Endpoint, Outcome
from exporters.vocabulary.verdicts import outcome_of_status

PARSED_LIMIT = 6 * 1024 * 1024
"""Bodies up to this many bytes are parsed; larger ones are streamed to the engine and classified by size."""

SHORT_PIECE = 4096
"""Bytes of a piece of a body below which it is appended to the one before: a client may send single bytes."""

_OPTIONS = "OPTIONS"
"""The method of a CORS preflight, which is forwarded, but is not a request event: it has no record or verdict."""

_SCRAPES = ("GET", "HEAD")
"""The methods that --expose-engine-metrics relays, for the same reason without a record."""

# Enum member access takes 0.2 us in CPython 3.11, and each request uses all of these.
_BODY_END, _CONNECTED = RequestEvent.BODY_END, RequestEvent.CONNECTED
_HEAD, _END = ResponseEvent.HEAD, ResponseEvent.END
_BUFFERED, _FORWARDING, _RETRYING = RequestState.BUFFERED, RequestState.FORWARDING, RequestState.RETRYING
_COMPLETE, _METERED, _REFUSED = ResponseState.COMPLETE, Route.METERED, Route.REFUSED

_NO_RESPONSE = ResponseFraming(event_stream=False, chunked=False, delimited=True, reusable=False)


class Client(Protocol):
    """The client connection of the request."""

    writable: bool
    """Whether the write buffer is empty."""

    def send(self, data: bytes) -> None: ...
    def stream_writer(self) -> Callable[[bytes], None]: ...
    def send_response(self, data: bytes) -> None: ...
    def exchange_over(self, at: float, *, reusable: bool) -> None: ...
    def abort(self) -> None: ...
    def reset(self) -> None: ...
    def pause_upload(self, *, pause: bool) -> None: ...
    def switch_protocol(self, replace: Callable[[asyncio.Protocol], asyncio.Protocol]) -> bytes: ...
    def end_sending(self) -> None: ...

    @property
    def can_end_sending(self) -> bool: ...


class ExchangeContext(Protocol):
    """The part of the relay process that an exchange uses."""

    config: SidecarConfig
    loop: asyncio.AbstractEventLoop
    salt: bytes | None
    hashing: Executor
    """Hashes long prompts."""
    pool: UpstreamPool
    measuring: MeasurementContext
    bodies: BodyMemory
    draining: bool

    def refused(self, status: int, reason: str) -> None:
        """A request that has no record was refused."""

    def begun(self, endpoint: Endpoint) -> None:
        """A request head has arrived whose request will have a record."""

    def opened(self, exchange: "Exchange") -> None: ...
    def ended(self, exchange: "Exchange", record: Finished | None) -> None: ...
    def exchange_failed(self, error: Exception) -> None: ...


class Exchange:
    """Joins one client request with one upstream response; `at` is the time of an event, in monotonic seconds."""

    # Defaults are attributes of the class: each request would need 1 us to set them.

    switches_protocol = False
    """Whether the request asks for another protocol, so that the engine may respond with status 101."""
    _recorded = True
    _body_size = 0
    _held = 0
    """The part of the context's `bodies` that is the body of this request."""
    _progress = (0, 0)
    _moved_at: float | None = None
    _dialect: Dialect
    """The API of the request, if its path is measured."""
    _upstream: UpstreamConnection | None = None
    _connecting: asyncio.Task[None] | None = None
    _status: int | None = None
    _framing = _NO_RESPONSE

    def __init__(self, context: ExchangeContext, client: Client, head: RequestHead, at: float) -> None:
        self._context = context
        self._client = client
        self._head = head
        self._body: list[request_body.Piece] = []
        self._path = normalise(head.target)
        self._route = route_of_path(self._path, context.config.allow_paths)
        dialect = None
        if head.method == _OPTIONS:
            self._recorded = False
            if self._route is _METERED:
                self._route = Route.PASSED
        elif self._route is _METERED:
            dialect = self._dialect = METERED[self._path]
        elif self._path == ENGINE_METRICS and context.config.expose_engine_metrics and head.method in _SCRAPES:
            self._recorded, self._route = False, Route.PASSED
        self._state = ExchangeState(streams=dialect is None)
        self.measurement = Measurement(context.measuring, head, self._path, dialect, at)
        if self._recorded:
            context.begun(self.measurement.api)
        self._silent_since = at
        """When the engine last sent or accepted a byte, or stopped waiting for the client, in monotonic seconds."""

    # Called by the client connection.

    def begin(self, at: float) -> None:
        """The request head has arrived; a request that is not parsed is forwarded at once."""
        bodiless = not self._head.has_body
        if bodiless and self._route is not _METERED:
            self._state.on_request(_BODY_END)
        config = self._context.config
        if self._head.upgrade and (
            message := refuses_upgrade(self._path, config.allow_paths, websocket=self._head.websocket)
        ):
            self.refuse(426, message, "upgrade_not_supported", at)
        elif self._route is _REFUSED:
            message = f"{cut(self._path)} is not an inference path; the operator can allow it with --allow-path"
            self.refuse(403, message, "path_not_allowed", at)
        elif (limit := config.max_body) is not None and self._head.length > limit:
            self._refuse_body(limit, at)
        elif self._route is not _METERED:
            self._offer(None, at)
            self._connect(at)
        elif bodiless:
            self.body_complete(at)

    def body(self, data: bytes, at: float) -> None:
        """A piece of the request body."""
        if self._state.over:
            return
        if self._body and len(data) < SHORT_PIECE:
            self._append(data)
        else:
            self._body.append(data)
        self._body_size += len(data)
        self._held += len(data)
        self._context.bodies.hold(len(data))
        limit = self._context.config.max_body
        if limit is not None and self._body_size > limit:
            self._refuse_body(limit, at)
        elif self._state.request is _FORWARDING:
            self._write_body()
        elif self._body_size > PARSED_LIMIT:
            # Without a connection, the body would accumulate in memory.
            if self._state.request is RequestState.UPLOADING:
                self._client.pause_upload(pause=True)
            else:
                self._state.on_request(RequestEvent.STREAM)
                self.measurement.unparsed = TOO_LARGE
                self._offer(None, at)
                self._connect(at)

    def body_complete(self, at: float) -> None:
        """The request is complete. This is time zero, unless the body is streamed to the engine."""
        if self._state.over:
            return
        self._silent_since = at
        self._state.on_request(_BODY_END)
        if self._state.request is not _BUFFERED:
            self._client.pause_upload(pause=False)
            if self._state.request.sent:
                self._write_body()
            return
        data = b"".join(self._body)
        self._body = [data]
        config, salt = self._context.config, self._context.salt
        body = self._dialect.parse(data, salt, self._context.hashing)
        strips_usage = False
        if config.inject_usage and body is not None and body.stream and not (body.includes_usage or body.leaves_usage):
            try:
                self._body = request_body.with_usage(data, has_options=body.has_options)
                strips_usage = True
            # `parse` skips invalid JSON in fields that it does not decode.
            except request_body.NOT_JSON:
                body = None
        measurement = self.measurement
        if body is None:
            measurement.unparsed = NOT_UNDERSTOOD
        else:
            if config.check_structured_output and measurement.api in GENERATING:
                measurement.structured = structured_output.requested(data, body.choices)
            if config.log_prefix_hashes and salt is not None and measurement.api in GENERATING:
                measurement.prefixes = prefix_hashes.start(data, salt, self._context.hashing)
            if (limit := config.logged_content_limit) is not None:
                measurement.content = LoggedContent(data, limit, self._context.hashing)
        self._body_size = sum(map(len, self._body))
        self._offer(body, at, strips_usage=strips_usage)
        self._connect(at)

    def refuse(self, status: int, message: str, code: str, at: float) -> None:
        """Refuse the request with a response of the sidecar, unless a response has begun."""
        self._offer_incomplete(at)
        if self._state.response is ResponseState.AWAITED:
            self.measurement.refused = code
            if not self._recorded:
                self._context.refused(status, code)
        self._fail(status, outcome_of_status(status), message, code, at)

    def client_gone(self, at: float) -> None:
        """The client has disconnected or stalled: abort the request to the engine."""
        self._offer_incomplete(at)
        # A client with unsent bytes has not received the end of its response.
        sent = self._client.writable
        outcome = self.measurement.outcome_of_abort(self._status or 0) if sent else Outcome.CLIENT_ABORT
        self._end(ResponseEvent.ABANDON, outcome, at)

    def client_writable(self, at: float, *, writable: bool) -> None:
        """Apply back-pressure: pause the engine's response while the client does not read."""
        self._silent_since = at
        if self._upstream is not None:
            self._upstream.pause(pause=not writable)
            self.measurement.client_reads(at, reads=writable)

    # Called by the upstream connection.

    def on_read(self, head: ResponseHead | None, pieces: list[bytes], at: float, *, ended: bool) -> None:
        """Forward one read of the engine's connection in one write."""
        self._silent_since = at
        out = []
        if head is not None:
            data, framing = message_heads.response_head(
                self._head,
                head,
                self._path,
                self.measurement.request_id,
                shortens_streams=self.measurement.strips_usage,
                # After an early response the rest of the body is not read.
                last=self._context.draining or not self._state.request.body_complete,
            )
            self._state.on_response(_HEAD)
            self._status = head.status
            self._framing = framing
            if framing.event_stream and b"content-encoding" in head.fields:
                self.measurement.stream_encoded(head)
            out.append(data)
        if pieces:
            self._frame(self.measurement.observe(pieces, at, event_stream=self._framing.event_stream), out)
        if ended:
            self._upstream = None
            outcome = self._finish_response(at, out, complete=True)
            if self._framing.chunked:
                out.append(b"0\r\n\r\n")
            (self._client.send if head is None else self._client.send_response)(b"".join(out))
            self._end(_END, outcome, at)
        elif out:
            self._client.send(b"".join(out))

    def fast_path(self) -> Forwarding | None:
        """Forwards the chunks of a stream with a known pattern."""
        if not self._framing.chunked or self._state.over:
            return None
        return self.measurement.fast_path(self._client.stream_writer())

    def on_broken(self, at: float) -> None:
        self._upstream = None
        self._upstream_error("the engine's response is not valid HTTP", "bad_upstream_response", at)

    def on_fault(self, error: Exception, at: float) -> None:
        self._upstream = None
        self._context.exchange_failed(error)
        self._upstream_error("the request failed because of an internal error of the sidecar", "internal_error", at)

    def on_lost(self, at: float) -> None:
        connection, self._upstream = self._upstream, None
        if connection is not None and self._may_retry(connection):
            self._state.on_request(RequestEvent.RETRY)
            self._connect(at)
        elif self._state.response is ResponseState.STARTED:
            out: list[bytes] = []
            outcome = self._finish_response(at, out, complete=False)
            if out:
                self._client.send(b"".join(out))
            self._end(ResponseEvent.BREAK, outcome, at)
        else:
            self._upstream_error("the engine closed the connection without a response", "upstream_closed", at)

    def on_writable(self, at: float, *, writable: bool) -> None:
        self._silent_since = at
        if writable and self._state.request.sent:
            self._body_written()
        self._client.pause_upload(pause=not writable and not self._state.request.body_complete)

    # Called by the relay.

    def holds_body_since(self, now: float) -> float | None:
        """When a byte of the body was last received or written, if any is held; called every second."""
        if not self._held:
            self._moved_at = None
            return None
        upstream = self._upstream
        progress = self._body_size, 0 if upstream is None else upstream.transport.get_write_buffer_size()
        if progress != self._progress or self._moved_at is None:
            self._progress, self._moved_at = progress, now
        return self._moved_at

    @property
    def awaits_engine(self) -> bool:
        """Whether the engine has the whole request, and the client reads what there is of the response."""
        return self._upstream is not None and self._state.request.body_complete and self._client.writable

    def is_silent(self, now: float, idle: float) -> bool:
        """Whether the engine has sent nothing for more than `idle` seconds, and does not wait for the client."""
        # This is enough for most exchanges: all open ones are checked several times a second.
        if now - self._silent_since <= idle:
            return False
        upstream = self._upstream
        uploads = upstream is not None and not upstream.unwritten and not self._state.request.body_complete
        return not uploads and self._client.writable and now - self.measurement.last_output_at > idle

    def cut(self, outcome: Outcome, message: str, at: float) -> None:
        """End the request because of a timeout or a shutdown."""
        self._offer_incomplete(at)
        framing, measurement = self._framing, self.measurement
        if framing.event_stream and framing.chunked and measurement.between_events:
            out: list[bytes] = []
            event = error_responses.error_event(504, message, str(outcome), self._path, measurement.request_id)
            self._frame([event], out)
            self._client.send(b"".join(out))
        self._fail(504, outcome, message, str(outcome), at)

    # Internal.

    def _append(self, data: bytes) -> None:
        last = self._body[-1]
        if isinstance(last, bytearray):
            last += data
        else:
            self._body.append(bytearray(data))

    def _refuse_body(self, limit: int, at: float) -> None:
        self.refuse(413, f"the request body is larger than {limit} bytes", "body_too_large", at)

    def _offer_incomplete(self, at: float) -> None:
        """Offer the request if its body is still being received."""
        if not self.measurement.offered:
            self._offer(None, at)

    def _offer(self, body: request_body.RequestBody | None, at: float, *, strips_usage: bool = False) -> None:
        self.measurement.start(body, self._body_size, at, strips_usage=strips_usage)
        self._context.opened(self)

    def _connect(self, at: float) -> None:
        connection = None if self._state.request is _RETRYING else self._context.pool.acquire(at)
        if connection is not None:
            self._connected(connection, at)
        else:
            self._connecting = self._context.pool.connect(self._connected, self._unreachable)

    def _connected(self, connection: UpstreamConnection, at: float) -> None:
        self._connecting = None
        if self._state.over:
            connection.transport.abort()
            return
        try:
            self._send_request(connection, at)
        except Exception as error:  # noqa: BLE001 - an internal error must not leave the client waiting
            connection.abandon()
            self.on_fault(error, at)

    def _send_request(self, connection: UpstreamConnection, at: float) -> None:
        self._upstream = connection
        connection.begin(self, head_only=self._head.method == "HEAD")
        # The previous response may still be in the write buffer.
        if not self._client.writable:
            self.client_writable(at, writable=False)
        self._state.on_request(_CONNECTED)
        streams, body_complete = self._state.request.streams, self._state.request.body_complete
        origin = self._context.pool.origin
        framing = self._request_framing(streams=streams)
        head = message_heads.request_head(
            self._head, origin.host_header, origin.prefix, framing, identity=self._route is _METERED
        )
        if body_complete and not (streams and self._head.chunked):
            if self._body_size <= request_body.LONG_BODY:
                request = b"".join((head, *self._body))
                connection.send(request)
                self._body = [memoryview(request)[len(head) :]]  # for a second attempt, without a second copy
            else:
                connection.write((head, *self._body), complete=True)
            if streams or not self._may_retry(connection):
                self._body.clear()
            if not connection.unwritten:
                self._body_written()
        else:
            connection.write((head,), complete=False)
            self._write_body()
            self._client.pause_upload(pause=connection.unwritten and not body_complete)

    def _unreachable(self, reason: str, at: float) -> None:
        self._connecting = None
        self._fail(
            502,
            Outcome.UPSTREAM_UNREACHABLE,
            f"the engine at {self._context.pool.origin.authority} cannot be reached: {reason}",
            "upstream_unreachable",
            at,
        )

    def _may_retry(self, connection: UpstreamConnection) -> bool:
        """Whether a reused connection closed before a buffered request was fully written."""
        return (
            self._state.request is RequestState.SENT
            and connection.reused
            and not connection.response_begun
            and connection.unwritten
        )

    def _request_framing(self, *, streams: bool) -> Header | None:
        if not streams:
            return b"content-length", b"%d" % self._body_size
        if self._head.chunked:
            return b"transfer-encoding", b"chunked"
        declared = self._head.fields.get(b"content-length")
        return None if declared is None else (b"content-length", declared)

    def _write_body(self) -> None:
        """Forward the received part of a streamed body."""
        if self._upstream is None:
            return
        complete, pieces = self._state.request.body_complete, self._body
        if self._head.chunked:
            pieces = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces]
            if complete:
                pieces.append(b"0\r\n\r\n")
        self._upstream.write(pieces, complete=complete)
        self._body.clear()
        if not self._upstream.unwritten:
            self._body_written()

    def _body_written(self) -> None:
        """The engine's socket has accepted the part of the body that has arrived, or the request is over."""
        self._body.clear()
        if self._held:
            self._context.bodies.release(self._held)
            self._held = 0

    def _frame(self, pieces: list[bytes], out: list[bytes]) -> None:
        chunked = self._framing.chunked
        out += [b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece for piece in pieces if piece]

    def _finish_response(self, at: float, out: list[bytes], *, complete: bool) -> Outcome:
        rest, outcome = self.measurement.finish_response(
            self._status or 0, at, event_stream=self._framing.event_stream, complete=complete
        )
        if rest:
            self._frame([rest], out)
        return outcome

    def _upstream_error(self, message: str, code: str, at: float) -> None:
        self._fail(502, Outcome.UPSTREAM_ERROR, message, code, at)

    def _fail(self, status: int, outcome: Outcome, message: str, code: str, at: float) -> None:
        """End the exchange, with an error response if no response has started."""
        if self._state.response is not ResponseState.AWAITED:
            self._end(ResponseEvent.BREAK, outcome, at)
            return
        self._status = status
        # The relay must not parse the rest of an incomplete body as a new request.
        keep_alive = self._head.keep_alive and self._state.request.body_complete and not self._context.draining
        self._framing = ResponseFraming(event_stream=False, chunked=False, delimited=True, reusable=keep_alive)
        bodiless = self._head.method == "HEAD"
        self._client.send(
            error_responses.error(
                status,
                message,
                code,
                close=not keep_alive,
                path=self._path,
                request_id=self.measurement.request_id,
                bodiless=bodiless,
            )
        )
        self._end(ResponseEvent.ERROR, outcome, at)

    def _end(self, event: ResponseEvent, outcome: Outcome, at: float) -> None:
        if self._state.over:
            return
        self._state.on_response(event)
        self._body_written()
        if self._connecting is not None:
            self._connecting.cancel()
        if self._upstream is not None:
            self._upstream.abandon()
            self._upstream = None
        framing = self._framing
        if self.measurement.offered:
            record = self.measurement.close(outcome, self._status, at, event_stream=framing.event_stream)
            self._context.ended(self, record if self._recorded else None)
        response = self._state.response
        if response is _COMPLETE:
            self._client.exchange_over(at, reusable=framing.reusable and self._state.request.body_complete)
        elif response is ResponseState.ABANDONED:
            self._client.abort()
        elif not framing.delimited:
            self._client.reset()
        else:
            self._client.exchange_over(at, reusable=False)
