"""Measures one request: its class, times and verdicts, and its record."""

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType

from exporters.http.parser import RequestHead, ResponseHead
from exporters.records.messages import ENCODED, Finished, Judged
from exporters.relay.bodies.hashing_thread import is_known, known
from exporters.relay.bodies.logged_content import LoggedContent
from exporters.relay.bodies.prefix_hashes import SHORT_BODY, PrefixHashes
from exporters.relay.bodies.request_body import CHARACTERS_PER_TOKEN, RequestBody
from exporters.relay.dialects.dialect import Dialect
from exporters.relay.dialects.paths import endpoint_of_path
from exporters.relay.metering import trace_context
from exporters.relay.metering.fast_path import Forwarding
from exporters.relay.metering.meter import Meter, Verdicts
from exporters.relay.metering.structured_output import StructuredOutput
from exporters.text.names import cut
from exporters.vocabulary.signals import (
    GENERATING,
    OTHER,
    REQUEST_CLASS_HEADER,
    REQUEST_START_HEADER,
    Endpoint,
    Outcome,
    Phase,
    Verdict,
)
from exporters.vocabulary.slo_file import Latency, Measure, SloFile
from exporters.vocabulary.verdicts import (
    ENGINE_TIMES,
    ApplicableSlos,
    Judge,
    applicable_slos,
    goodput,
    outcome_of_status,
    several_tokens,
)

_REQUEST_ID = b"x-request-id"
_is_request_id = re.compile(rb"[!-~]{1,128}").fullmatch
_REQUEST_CLASS, _REQUEST_START = REQUEST_CLASS_HEADER.encode(), REQUEST_START_HEADER.encode()

# Enum member access takes 0.1 us in CPython 3.11.
_BACKGROUND = Endpoint.RESPONSES_BACKGROUND
_WAITING, _STREAMING = Phase.WAITING, Phase.STREAMING

MAX_REQUEST_START_AGE = 600.0
"""Seconds; an older X-Request-Start is ignored as a wrong clock."""


@dataclass(slots=True)
class MeasurementContext:
    """State that the measurements of one relay process share."""

    slos: SloFile
    gap_bounds: Sequence[float]
    wants_spans: bool
    joins_engine_spans: bool
    """Whether the exporter adds the times in the engine's span and judges them."""
    good_share: float
    """The share of good requests whose traces are kept."""
    new_request_id: Callable[[], str]
    wall_time: Callable[[float], float]
    """The Unix time at a time in monotonic seconds."""
    on_verdicts: Callable[["Measurement"], None]
    """Called when an open request has unreported verdicts."""
    on_deadline: Callable[[float], None]
    """Called with the time at which a request's `check_deadline` is due."""
    on_failure: Callable[[Exception], None]
    """Called when metering has failed; the request goes on unmetered."""
    tenant_header: bytes = field(init=False)
    cut_after: dict[str, float] = field(init=False)
    """The seconds of each class after which the relay ends a request."""
    _charges: dict[tuple[str, bool, bool, bool, bool], ApplicableSlos] = field(default_factory=dict)
    _engine_slos: dict[str, dict[str, tuple[Measure, float]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tenant_header = self.slos.tenants.header.encode()
        self.cut_after = {each.name: each.cut_after for each in self.slos.classes if each.cut_after is not None}

    def charges(
        self, request_class: str, *, stream: bool, several: bool, engine_times: bool, structured: bool
    ) -> ApplicableSlos:
        """The SLO conditions for a request; computed once for each kind of request."""
        kind = request_class, stream, several, engine_times, structured
        if kind not in self._charges:
            slos = (slo for slo in self.slos.slos_of(request_class) if engine_times or slo.measure not in ENGINE_TIMES)
            self._charges[kind] = applicable_slos(slos, stream=stream, several=several, structured=structured)
        return self._charges[kind]

    def engine_slos(self, request_class: str) -> dict[str, tuple[Measure, float]]:
        """The SLOs of a class on times that the engine reports, with their thresholds."""
        if request_class not in self._engine_slos:
            self._engine_slos[request_class] = {
                slo.name: (slo.measure, slo.sli.threshold)
                for slo in self.slos.slos_of(request_class)
                if isinstance(slo.sli, Latency) and slo.measure in ENGINE_TIMES
            }
        return self._engine_slos[request_class]


class Measurement:
    """Measures one request.

    An error in this class never fails the response: the request continues unmetered, which is counted and logged once.
    The verdicts that are certain by then remain; the other SLOs are abandoned.
    """

    # Defaults are attributes of the class, as in Meter.

    deadline = inf
    """When `check_deadline` is due, in monotonic seconds."""
    cut_at = inf
    """When the relay ends the request, in monotonic seconds, by `cut_after` of its class."""
    unparsed: str | None = None
    refused: str | None = None
    """Why the relay itself has refused the request."""
    strips_usage = False
    """Whether the relay removes the usage event, which the client did not request."""
    structured: StructuredOutput | None = None
    """Checks the output, if it may have to be JSON."""
    content: LoggedContent | None = None
    """The content for the request log, if it is logged."""
    prefixes: PrefixHashes | Future[PrefixHashes] | None = None
    model = ""
    request_class = OTHER
    offered = False
    """Whether the request is counted: `start` was called."""
    is_long = False
    """Whether the body is so long that a thread may hash the prompt, which `add_hashes` adds to the record."""
    _body: RequestBody | None = None
    _prompt_estimate: float | None = None
    _meter: Meter | None = None
    _unmetered: str | None = None
    _reported: tuple[str, ...] = ()
    _unreported: dict[str, Verdict] | None = None
    _goodput_reported = False
    _closed = False
    _unmeasured_began = False
    """Whether the response has begun, if it is not measured."""
    _span: trace_context.OwnSpan | None = None
    _bad_at: Mapping[str, float] = MappingProxyType({})
    """When verdicts became bad while the request was open, in seconds since time zero."""

    def __init__(
        self, context: MeasurementContext, head: RequestHead, path: str, dialect: Dialect | None, at: float
    ) -> None:
        """`dialect` is None on a path that is not measured; `at` is when the head arrived, in monotonic seconds."""
        self._context = context
        self._head = head
        self._path = path
        self.api = endpoint_of_path(path)
        self._dialect = dialect
        self._head_at = self._offered_at = self.zero = at
        sent_id = head.fields.get(_REQUEST_ID)
        if sent_id is not None and _is_request_id(sent_id) and _is_forwarded_once(head, _REQUEST_ID):
            self.request_id = sent_id.decode()
        else:
            if sent_id is not None:
                head.headers = [header for header in head.headers if header[0] != _REQUEST_ID]
            self.request_id = context.new_request_id()
            head.headers.append((_REQUEST_ID, self.request_id.encode()))
        self._caller = trace_context.parse_traceparent(head.headers) if b"traceparent" in head.fields else None
        if context.wants_spans and dialect is not None:
            self._span = trace_context.new_span(self._caller)
            # Engine spans that the sidecar receives wait there for the verdicts, and add the engine's times.
            sampled = context.joins_engine_spans or trace_context.sampled_if_good(
                self._caller, self._span, context.good_share
            )
            head.headers = trace_context.with_traceparent(head.headers, self._caller, self._span, sampled=sampled)

    @property
    def metered(self) -> bool:
        return self._meter is not None

    @property
    def phase(self) -> Phase:
        meter = self._meter
        if meter is not None and meter.first_at is not None:
            return _STREAMING
        # A request that is not measured streams, so that no timeout waits for its first token.
        return _STREAMING if self._unmetered is not None or self._unmeasured_began else _WAITING

    @property
    def between_events(self) -> bool:
        """Whether an event may follow what the client has received of a stream that is measured and has not ended."""
        meter = self._meter
        return meter is not None and self._unmetered is None and meter.between_events

    @property
    def awaits_first_token(self) -> bool:
        """Whether the request streams and has no first token yet."""
        return self._body is not None and self._body.stream and self.phase is _WAITING

    def start(self, body: RequestBody | None, body_size: int, at: float, *, strips_usage: bool = False) -> None:
        """Set time zero to `at`. `body` is None if it is not parsed; then `body_size` in bytes selects the class."""
        self.offered = True
        self.is_long = body_size > SHORT_BODY
        self.strips_usage = strips_usage
        self._offered_at = self.zero = at
        if self._context.slos.trust_request_start and (header := self._head.get(_REQUEST_START)) is not None:
            self.zero = at - _wait_before_relay(header, self._context.wall_time(at))
        if body is not None and body.background:
            self.api = _BACKGROUND
        elif self._dialect is not None:
            self._body = body
            try:
                self._meter = self._create_meter(self._dialect, body, body_size)
                self._update_deadline()
            except Exception as error:  # noqa: BLE001 - as in observe
                self._fail_open(error)

    def _create_meter(self, dialect: Dialect, body: RequestBody | None, body_size: int) -> Meter:
        slos = self._context.slos
        max_tokens = body.max_tokens if body else None
        choices = body.choices if body else 1
        estimate = body.prompt_tokens if body else (self._head.length or body_size) / CHARACTERS_PER_TOKEN
        if body is None or body.sized:
            self._prompt_estimate = estimate
        self.request_class = slos.classify(self._head.get(_REQUEST_CLASS), estimate, max_tokens, self.api)
        self.cut_at = self.zero + self._context.cut_after.get(self.request_class, inf)
        self.model = body.model if body else ""
        charges = self._context.charges(
            self.request_class,
            stream=bool(body and body.stream),
            several=several_tokens(choices, max_tokens),
            engine_times=self.api in GENERATING,
            structured=self.structured is not None,
        )
        meter = Meter(
            Judge(charges, zero=self.zero, first_token_timeout=slos.first_token_timeout, max_tokens=max_tokens),
            dialect=dialect,
            zero=self.zero,
            one_choice=choices == 1,
            gap_bounds=self._context.gap_bounds,
            strips_usage=self.strips_usage,
            on_verdicts=self._on_verdicts,
        )
        if self.structured is not None:
            meter.check(self.structured)
        if self.content is not None:
            meter.collect(self.content)
        return meter

    def fast_path(self, send: Callable[[bytes], None]) -> Forwarding | None:
        """The fast path of a stream with a known pattern; None in the middle of an event."""
        if self._meter is None or self._unmetered is not None:
            return None
        return self._meter.fast_path(send, self._fail_open)

    def fold_gaps(self) -> bool:
        """Bound the memory of a long stream's gaps; return whether there was work to do."""
        if self._meter is None or self._unmetered is not None:
            return False
        try:
            return self._meter.gaps.fold()
        except Exception as error:  # noqa: BLE001 - as in observe
            self._fail_open(error)
            return True

    def client_reads(self, at: float, *, reads: bool) -> None:
        """Stop the clock while the client does not read: that time is not attributed to the engine."""
        if self._meter is not None:
            (self._meter.resume if reads else self._meter.pause)(at)

    @property
    def has_output(self) -> bool:
        meter = self._meter
        return meter is not None and meter.first_at is not None

    @property
    def prompt_estimate(self) -> float:
        """Tokens of the prompt, estimated from its text; 0 if they are not known."""
        return self._prompt_estimate or 0.0

    @property
    def last_output_at(self) -> float:
        """When the last output arrived, in monotonic seconds; time zero if there was none."""
        meter = self._meter
        return self.zero if meter is None or meter.last_at is None else meter.last_at + meter.paused

    def stream_encoded(self, head: ResponseHead) -> None:
        """Stop metering if the engine compresses its stream, although the relay requested `identity`."""
        if self._meter is None or self._unmetered is not None or head.status >= 400:
            return
        if head.fields[b"content-encoding"].lower() != b"identity":
            self._stop_metering(ENCODED)

    def observe(self, pieces: list[bytes], at: float, *, event_stream: bool) -> list[bytes]:
        """Measure pieces of the response body and return the pieces for the client."""
        meter = self._meter
        if meter is None:
            self._unmeasured_began = True
            return pieces
        if self._unmetered is not None:
            return [meter.release(), *pieces]
        out: list[bytes] = []
        try:
            if not event_stream:
                for piece in pieces:
                    meter.unary(piece)
                return pieces
            for piece in pieces:
                out.append(meter.stream(piece, at))  # noqa: PERF401 - after an error the rest follows
        except Exception as error:  # noqa: BLE001 - after any error the response continues unmetered
            self._fail_open(error)
            return [*out, meter.release(), *pieces[len(out) :]]
        return out

    def finish_response(self, status: int, at: float, *, event_stream: bool, complete: bool) -> tuple[bytes, Outcome]:
        """The bytes of an unterminated event, and the outcome of the request."""
        meter, rest = self._meter, b""
        if meter is not None and self._unmetered is None:
            try:
                if event_stream:
                    rest = meter.stream_end(at)
                elif complete:
                    meter.unary_end()
                return rest, meter.outcome(status, streams=event_stream, complete=complete)
            except Exception as error:  # noqa: BLE001 - as in observe
                self._fail_open(error)
        if meter is not None:
            rest += meter.release()
        return rest, outcome_of_status(status) if complete else Outcome.TRUNCATED

    def outcome_of_abort(self, status: int) -> Outcome:
        """The outcome if the client disconnects: that of the stream if it has sent `[DONE]`."""
        meter = self._meter
        if meter is None or self._unmetered is not None or not meter.done:
            return Outcome.CLIENT_ABORT
        return meter.outcome(status, streams=True, complete=False)

    def early_verdicts(self) -> Judged | None:
        """The verdicts on the open request since the last call."""
        if not self._unreported:
            return None
        verdicts, self._unreported = self._unreported, None
        self._reported += tuple(verdicts)
        goodput_lost = Verdict.BAD in verdicts.values() and not self._goodput_reported
        self._goodput_reported = self._goodput_reported or goodput_lost
        return Judged(self.model, self.request_class, self._tenant(), verdicts, goodput_lost)

    def close(self, outcome: Outcome, status: int | None, at: float, *, event_stream: bool) -> Finished:
        """Give the final verdicts and return the record."""
        self._closed = True
        body = self._body
        # msgspec searches each name among all fields.
        record = Finished(
            self._context.wall_time(self.zero),
            self.request_id,
            self.model,
            self.request_class,
            self._tenant(),
            cut(self._path),
            event_stream or bool(body and body.stream),
            status,
            outcome,
            self.metered,
            at - self.zero,
            upload=self._offered_at - self._head_at,
            prompt_estimate=self._prompt_estimate,
            unparsed=self.unparsed,
            unmetered=self._unmetered,
            api=self.api,
            refused=self.refused,
        )
        if self.zero != self._offered_at:
            record.before_relay = self._offered_at - self.zero
        self._add_trace(record)
        if body is not None:
            record.max_tokens = body.max_tokens
            record.temperature = body.temperature
        if not self.is_long:
            self.add_hashes(record)
        if self._meter is not None:
            if self._unmetered is None:
                try:
                    self._meter.finish(outcome, at)
                    self._add_measured(record, self._meter)
                except Exception as error:  # noqa: BLE001 - as in observe
                    self._fail_open(error)
                    record.unmetered = self._unmetered
            verdicts = record.slo = self._meter.judge.verdicts
            record.counted = list(self._reported)
            record.goodput = goodput(verdicts.values())
            record.goodput_counted = self._goodput_reported
            if self._context.joins_engine_spans and self.api in GENERATING:
                record.engine_slos = self._context.engine_slos(self.request_class)
            record.paused = self._meter.paused
            # Breaks a reference cycle, which the garbage collector would have to free for each request.
            self._meter = None
        return record

    @property
    def is_hashed(self) -> bool:
        """Whether all that `add_hashes` adds is known: the thread that hashes long prompts may be busy."""
        body, content = self._body, self.content
        return (
            (body is None or body.is_hashed)
            and is_known(self.prefixes)
            and (content is None or is_known(content.cut_prompt))
        )

    def add_hashes(self, record: Finished) -> None:
        """Add the hashes and the content to the record; waits for them if they are not known yet."""
        if self._body is not None:
            digests = self._body.digests
            record.prompt_sha256, record.body_sha256 = digests.prompt, digests.body
        if self.content is not None:
            record.prompt, record.completion = self.content.prompt, self.content.completion
            record.content_cut = self.content.is_cut
        if self.prefixes is not None:
            record.prefix_hashes, record.prefix_characters = known(self.prefixes)

    def _add_trace(self, record: Finished) -> None:
        if self._caller is not None:
            record.trace_id = self._caller.trace_id
            record.parent_span_id = self._caller.span_id
            record.parent_sampled = self._caller.sampled
        if self._span is not None:
            record.trace_id = self._span.trace_id
            record.span_id = self._span.span_id
            record.bad_at = dict(self._bad_at)

    def _add_measured(self, record: Finished, meter: Meter) -> None:
        record.finish_reason = meter.finish_reason and cut(meter.finish_reason)
        record.system_fingerprint = meter.fingerprint and cut(meter.fingerprint)
        record.response_id = _name(meter.response_id)
        record.response_model = _name(meter.response_model)
        record.prompt_tokens = meter.prompt_tokens
        record.completion_tokens = meter.completion_tokens
        record.cached_tokens = meter.cached_tokens
        record.reasoning_tokens = meter.reasoning_tokens
        record.queue = meter.queue
        record.prefill = meter.prefill
        record.decode = meter.decode
        if meter.dropped_values:
            record.dropped_values = sorted(meter.dropped_values)
        for name, value in meter.latencies().items():
            setattr(record, name, value)
        if meter.checked is not None:
            record.structured_kind, record.structured_result = meter.checked
        if record.stream and meter.first_at is None:
            record.wait_at_least = record.e2e

    def _tenant(self) -> str:
        context = self._context
        return context.slos.tenants.bounded(self._head.get(context.tenant_header))

    def check_deadline(self, now: float) -> None:
        """Give the verdicts that are certain at `now`, in monotonic seconds."""
        if self._meter is not None:
            try:
                self._meter.report(self._meter.judge.check_deadlines(now, self._meter.paused_until(now)), now)
            except Exception as error:  # noqa: BLE001 - as in observe
                self._fail_open(error)
            self._update_deadline()

    def _update_deadline(self) -> None:
        deadline = self._meter.judge.deadline() if self._meter else None
        self.deadline = inf if deadline is None else deadline
        self._context.on_deadline(self.deadline)

    def _on_verdicts(self, verdicts: Verdicts, at: float) -> None:
        if self._closed:
            return
        if self._span is not None:
            late = {slo: at - self.zero for slo, verdict in verdicts if verdict is Verdict.BAD}
            self._bad_at = {**self._bad_at, **late}
        self._report(verdicts)

    def _report(self, verdicts: Verdicts) -> None:
        if verdicts and not self._closed:
            if self._unreported is None:
                self._unreported = {}
            self._unreported.update(verdicts)
            self._context.on_verdicts(self)

    def _fail_open(self, error: Exception) -> None:
        self._stop_metering(type(error).__name__)
        self._context.on_failure(error)

    def _stop_metering(self, reason: str) -> None:
        """Abandon the undecided verdicts; the request continues unmetered."""
        self._unmetered = reason
        if self._meter is not None:
            self._report(self._meter.judge.abandon())


def _name(text: str | None) -> str | None:
    return cut(text) if text else None


def _is_forwarded_once(head: RequestHead, name: bytes) -> bool:
    return [header[0] for header in head.headers].count(name) == 1


def _wait_before_relay(header: str, now: float) -> float:
    """Seconds until `now`, in Unix time, from the sender's X-Request-Start; 0 if it is implausible."""
    if not header.startswith("t="):
        return 0.0
    try:
        wait = now - float(header[2:])
    except ValueError:
        return 0.0
    return wait if 0 <= wait <= MAX_REQUEST_START_AGE else 0.0
