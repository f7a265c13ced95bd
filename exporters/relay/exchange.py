"""One request on its way to the engine and back: what is forwarded, what is measured, how it ended."""

import asyncio
import time
from typing import TYPE_CHECKING, Protocol

import msgspec

from exporters.records import Finished, Judged
from exporters.relay import answers, question, trace_context
from exporters.relay.meter import Meter, seconds
from exporters.relay.paths import Route, forwarded, normal
from exporters.relay.upstream import Header, UpstreamConnection
from exporters.signals import (
    OTHER,
    REQUEST_CLASS_HEADER,
    REQUEST_START_HEADER,
    Outcome,
    Phase,
    Verdict,
)
from exporters.verdicts import Judge, goodput

if TYPE_CHECKING:
    from exporters.relay.relay import Relay

PARSED_LIMIT = 8 * 1024 * 1024
"""Bodies are parsed whole up to here; larger ones stream through, classed by size."""

START_AT_MOST_AGO = 600.0
"""A sender's x-request-start older than this many seconds is a wrong clock, not a wait."""

_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_OURS = frozenset({b"host", b"content-length", b"expect"})


class Client(Protocol):
    """The connection that the request came in on."""

    def send(self, data: bytes) -> None: ...
    def exchange_over(self, *, reusable: bool) -> None: ...
    def abort(self) -> None: ...
    def hold_body(self, *, hold: bool) -> None: ...


class Head(msgspec.Struct):
    """A request's line and headers; names in lower case."""

    method: str
    target: str
    headers: list[Header]
    old_client: bool  # HTTP/1.0
    keep_alive: bool

    def get(self, name: str) -> str | None:
        wanted = name.encode()
        return next((value.decode("latin-1") for key, value in self.headers if key == wanted), None)


class Exchange:
    """Joins one client request with one upstream response."""

    def __init__(self, relay: "Relay", client: Client, head: Head, route: Route) -> None:
        self._relay = relay
        self._client = client
        self.head = head
        self._route = route
        self._began = time.monotonic()
        self._body: list[bytes] = []
        self._body_size = 0
        self._body_complete = False
        self._streams_body = route is not Route.METERED
        self._upstream: UpstreamConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._sent_head = False
        self._retried = False
        self._answer_begun = False
        self._status: int | None = None
        self._event_stream = False
        self._chunked = False
        self._reusable = False
        self._deadline: asyncio.TimerHandle | None = None
        self._asked: question.Question | None = None
        self._unparsed: str | None = None
        self._unmetered: str | None = None
        self._counted: list[str] = []
        self._untold: dict[str, Verdict] = {}
        self._goodput_counted = False
        self.meter: Meter | None = None
        self.model = ""
        self.request_class = OTHER
        self.zero = self._began
        self.last_byte_at = self._began
        self._arrived = self._began
        self.over = False
        given = head.get("x-request-id")
        if given is None:
            given = relay.new_request_id()
            head.headers.append((b"x-request-id", given.encode()))
        self.request_id = given
        self._caller = trace_context.caller(head.headers)
        self._span: trace_context.OwnSpan | None = None
        if relay.config.otlp is not None and route is Route.METERED:
            self._span = trace_context.own_span(self._caller)
            head.headers = trace_context.forwarded(head.headers, self._caller, self._span)
        self.offered = False
        """Whether the whole request has come in, so that it counts."""

    # From the client.

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
            self._begin_unparsed("too_large")

    def head_complete(self) -> None:
        """The request's head is in: what is not parsed can be forwarded at once."""
        if self._route is Route.REFUSED:
            self._start_measuring(None)
            self._fail(
                403,
                Outcome.CLIENT_ERROR,
                f"{normal(self.head.target)} is not an inference path; the operator can allow it with --allow-path",
                "path_not_allowed",
                time.monotonic(),
            )
        elif self._streams_body:
            self._start_measuring(None)
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
        self._asked = question.read(body, self._relay.salt)
        if self._asked is None:
            self._unparsed = "not_understood"
        elif self._takes_usage():
            try:
                body = question.with_usage(body)
            except (msgspec.DecodeError, UnicodeDecodeError):  # bytes that `read` had no need to look at
                self._asked, self._unparsed = None, "not_understood"
        self._body = [body]
        self._body_size = len(body)
        self._start_measuring(self._asked)
        self._acquire()

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
        self._status = status
        self._answer_begun = True
        connection_names = _named_by_connection(headers)
        lines = [b"HTTP/1.1 %d %s\r\n" % (status, reason)]
        length: bytes | None = None
        for name, value in headers:
            if name == b"content-length":
                length = value
            elif name == b"content-type":
                self._event_stream = value.startswith(b"text/event-stream")
                lines.append(b"content-type: %s\r\n" % value)
            elif name not in _HOP_BY_HOP and name not in connection_names:
                lines.append(b"%s: %s\r\n" % (name, value))
        bodiless = self.head.method == "HEAD" or status in {204, 304}
        delimited = length is not None or bodiless or not self.head.old_client
        self._reusable = self.head.keep_alive and delimited and not self._relay.draining
        if length is not None and status != 204:
            lines.append(b"content-length: %s\r\n" % length)
        elif not bodiless and not self.head.old_client:
            self._chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        if not self._reusable:
            lines.append(b"connection: close\r\n")
        elif self.head.old_client:
            lines.append(b"connection: keep-alive\r\n")
        lines.append(b"\r\n")
        self._client.send(b"".join(lines))

    def on_body(self, pieces: list[bytes], at: float) -> None:
        self.last_byte_at = at
        meter = self.meter
        if meter is not None and self._unmetered is None:
            if self._event_stream:
                try:
                    pieces = [meter.stream(piece, at) for piece in pieces]
                except Exception as error:  # noqa: BLE001 - a fault in measuring must never cost a user the answer
                    self._fail_open(error)
            else:
                for piece in pieces:
                    meter.unary(piece)
        self._forward(pieces)

    def _last_words(self, at: float, *, complete: bool) -> Outcome:
        """Forward what an unfinished last event held back, and say what became of the request."""
        meter, status = self.meter, self._status or 0
        if meter is None or self._unmetered is not None:
            return _outcome_of(status) if complete else Outcome.TRUNCATED
        try:
            if self._event_stream:
                self._forward([meter.stream_end(at)])
            elif complete:
                meter.unary_end()
            return meter.outcome(status, streams=self._event_stream, complete=complete)
        except Exception as error:  # noqa: BLE001 - as in on_body
            self._fail_open(error)
            return _outcome_of(status) if complete else Outcome.TRUNCATED

    def on_end(self, at: float) -> None:
        self._upstream = None
        outcome = self._last_words(at, complete=True)
        if self._chunked:
            self._client.send(b"0\r\n\r\n")
        self._end(outcome, at)

    def on_broken(self, at: float) -> None:
        self._upstream = None
        self._fail(502, Outcome.UPSTREAM_ERROR, "the engine's answer is no HTTP", "bad_upstream_response", at)

    def on_lost(self, at: float) -> None:
        connection, self._upstream = self._upstream, None
        untouched = (
            connection is not None and not connection.answered and connection.transport.get_write_buffer_size() > 0
        )
        if connection is not None and connection.reused and untouched and self._body_complete and not self._retried:
            # The engine closed an idle connection under us before the request was fully written: safe to send again.
            self._retried = True
            self._sent_head = False
            self._acquire()
        elif self._answer_begun:
            self._reusable = False
            self._end(self._last_words(at, complete=False), at)
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

    def early_verdicts(self) -> Judged | None:
        """Verdicts that have fallen since the last call, for a request that is still open."""
        if not self._untold:
            return None
        fallen, self._untold = self._untold, {}
        self._counted.extend(fallen)
        lost = Verdict.BAD in fallen.values() and not self._goodput_counted
        self._goodput_counted = self._goodput_counted or lost
        return Judged(self.model, self.request_class, self._tenant(), fallen, lost)

    @property
    def phase(self) -> Phase:
        return Phase.WAITING if self.meter is None or self.meter.first_at is None else Phase.STREAMING

    # Forwarding.

    def _takes_usage(self) -> bool:
        asked = self._asked
        return asked is not None and asked.stream and not asked.asks_usage and self._relay.config.inject_usage

    def _begin_unparsed(self, reason: str) -> None:
        self._unparsed = reason
        self._streams_body = True
        self._start_measuring(None)
        self._acquire()

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
        connection.begin(self, head_only=self.head.method == "HEAD")
        self._sent_head = True
        head = self._upstream_head()
        if self._body_complete and not self._chunks_body():
            connection.transport.write(head + b"".join(self._body))
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

    def _chunks_body(self) -> bool:
        """Whether the body goes on in chunks: it came in chunks and is not held whole."""
        return self._streams_body and self.head.get("transfer-encoding") is not None

    def _upstream_head(self) -> bytes:
        head, origin = self.head, self._relay.pool.origin
        lines = [
            f"{head.method} {origin.prefix}{forwarded(head.target)} HTTP/1.1\r\nhost: {origin.authority}\r\n".encode(
                "latin-1"
            )
        ]
        named = _named_by_connection(head.headers)
        metered = self._route is Route.METERED
        for name, value in head.headers:
            if name in _HOP_BY_HOP or name in _OURS or name in named or (metered and name == b"accept-encoding"):
                continue
            lines.append(b"%s: %s\r\n" % (name, value))
        if metered:
            lines.append(b"accept-encoding: identity\r\n")
        if self._chunks_body():
            lines.append(b"transfer-encoding: chunked\r\n")
        elif self._streams_body:
            if (length := head.get("content-length")) is not None:
                lines.append(b"content-length: %s\r\n" % length.encode("latin-1"))
        else:
            lines.append(b"content-length: %d\r\n" % self._body_size)
        lines.append(b"\r\n")
        return b"".join(lines)

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

    def _fail(self, status: int, outcome: Outcome, message: str, code: str, at: float) -> None:
        """End with an error of our own, where the client can still be told one."""
        if not self._answer_begun:
            self._status = status
            self._answer_begun = True
            # A client still sending its body must not have the rest of it read as a new request.
            self._reusable = self.head.keep_alive and self._body_complete and not self._relay.draining
            self._client.send(answers.error(status, message, code, close=not self._reusable))
        else:
            self._reusable = False
        self._end(outcome, at)

    # Measuring.

    def _tenant(self) -> str:
        tenants = self._relay.slos.tenants
        return tenants.bounded(self.head.get(tenants.header))

    def _start_measuring(self, asked: question.Question | None) -> None:
        now = time.monotonic()
        self.offered = True
        self._arrived = self.zero = now
        slos = self._relay.slos
        if slos.trust_request_start and (waited := _waited(self.head.get(REQUEST_START_HEADER))) is not None:
            self.zero = now - waited
        self._relay.opened(self)
        if self._route is not Route.METERED:
            return
        declared = self.head.get("content-length") or ""
        size = int(declared) if declared.isdigit() else self._body_size
        self.request_class = slos.classify(
            self.head.get(REQUEST_CLASS_HEADER),
            asked.prompt_tokens if asked else size / question.CHARACTERS_PER_TOKEN,
            asked.max_tokens if asked else None,
        )
        self.model = asked.model if asked else ""
        n = asked.n if asked else 1
        self.meter = Meter(
            Judge(
                slos.slos_of(self.request_class),
                zero=self.zero,
                first_token_timeout=slos.first_token_timeout,
                stream=bool(asked and asked.stream),
                n=n,
                max_tokens=asked.max_tokens if asked else None,
            ),
            zero=self.zero,
            one_choice=n == 1,
            gap_bounds=self._relay.gap_bounds,
            takes_usage=self._takes_usage(),
            on_verdicts=self._fallen,
        )
        self._arm()

    def _arm(self) -> None:
        """Wake when the next verdict would be certain."""
        deadline = self.meter.judge.deadline() if self.meter else None
        # A millisecond later: the deadline itself is still in time.
        self._deadline = None if deadline is None else self._relay.loop.call_at(deadline + 0.001, self._deadline_passed)

    def _deadline_passed(self) -> None:
        if self.over or self.meter is None:
            return
        self.meter.tell(self.meter.judge.clock(time.monotonic()))
        self._arm()

    def _fallen(self, fallen: list[tuple[str, Verdict]]) -> None:
        self._untold.update(fallen)
        if not self.over:
            self._relay.judged.add(self)

    def _fail_open(self, error: Exception) -> None:
        self._unmetered = type(error).__name__
        self._relay.metering_failed(error)

    def _end(self, outcome: Outcome, at: float) -> None:
        if self.over:
            return
        self.over = True
        if self._deadline is not None:
            self._deadline.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
        if self._upstream is not None:
            self._upstream.abandon()
            self._upstream = None
        if self.offered:
            try:
                if self.meter is not None:
                    self.meter.finish(outcome, at)
            except Exception as error:  # noqa: BLE001 - as in on_body
                self._fail_open(error)
            self._relay.ended(self, self._record(outcome, at))
        if outcome is Outcome.CLIENT_ABORT:
            self._client.abort()
        else:
            self._client.exchange_over(reusable=self._reusable and self._body_complete)

    def _record(self, outcome: Outcome, at: float) -> Finished:
        asked, meter = self._asked, self.meter
        record = Finished(
            time=time.time() - (time.monotonic() - self.zero),
            request_id=self.request_id,
            model=self.model,
            request_class=self.request_class,
            tenant=self._tenant(),
            endpoint=normal(self.head.target)[:256],
            stream=self._event_stream or bool(asked and asked.stream),
            status=self._status,
            outcome=outcome,
            metered=meter is not None,
            e2e=at - self.zero,
            upload=self._arrived - self._began,
            unparsed=self._unparsed,
            unmetered=self._unmetered,
        )
        if self._caller is not None:
            record.trace_id = self._caller.trace_id
            record.parent_span_id = self._caller.span_id
            record.parent_sampled = self._caller.sampled
        if self._span is not None:
            record.trace_id = self._span.trace_id
            record.span_id = self._span.span_id
        if asked is not None:
            record.max_tokens = asked.max_tokens
            record.temperature = asked.temperature
            record.prompt_sha256 = asked.prompt_sha256
        if meter is not None:
            record.finish_reason = meter.finish_reason
            record.prompt_tokens = meter.prompt_tokens
            record.completion_tokens = meter.completion_tokens
            record.cached_tokens = meter.cached_tokens
            record.queue = seconds(meter.engine.queue_time_ms)
            record.prefill = seconds(meter.engine.time_to_first_token_ms)
            record.decode = seconds(meter.engine.generation_time_ms)
            for name, value in meter.latencies().items():
                setattr(record, name, value)
            if record.stream and meter.first_at is None:
                record.wait_at_least = record.e2e
            record.slo = meter.judge.verdicts
            record.counted = self._counted
            record.goodput = goodput(meter.judge.verdicts.values())
            record.goodput_counted = self._goodput_counted
        return record


def _outcome_of(status: int) -> Outcome:
    if status in {429, 503}:
        return Outcome.REJECTED
    if status >= 500:
        return Outcome.UPSTREAM_ERROR
    return Outcome.CLIENT_ERROR if status >= 400 else Outcome.OK


def _named_by_connection(headers: list[Header]) -> set[bytes]:
    return {
        token.strip().lower() for name, value in headers if name == b"connection" for token in value.split(b",")
    } - _OURS


def _waited(header: str | None) -> float | None:
    """Seconds since the sender meant to send, when its header can be believed."""
    if header is None or not header.startswith("t="):
        return None
    try:
        waited = time.time() - float(header[2:])
    except ValueError:
        return None
    return waited if 0 <= waited <= START_AT_MOST_AGO else None
