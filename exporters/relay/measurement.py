"""What is known of one request: its class, its clock, its verdicts, and at the end its record."""

import time
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

from exporters.records import Finished, Judged
from exporters.relay import trace_context
from exporters.relay.fast_path import FastPath
from exporters.relay.http1_parser import Head
from exporters.relay.meter import Meter, seconds
from exporters.relay.request_body import CHARACTERS_PER_TOKEN, RequestBody
from exporters.signals import OTHER, REQUEST_CLASS_HEADER, REQUEST_START_HEADER, Outcome, Phase, Verdict
from exporters.verdicts import Judge, goodput, outcome_of_status, several_tokens

if TYPE_CHECKING:
    from exporters.relay.relay import Relay

_REQUEST_CLASS, _REQUEST_START = REQUEST_CLASS_HEADER.encode(), REQUEST_START_HEADER.encode()

START_AT_MOST_AGO = 600.0
"""A sender's x-request-start older than this many seconds is a wrong clock, not a wait."""


class Measurement:
    """One request's account. A fault in measuring must never cost a user the answer: it is told once and counted."""

    __slots__ = (
        "_arrived",
        "_asked",
        "_began",
        "_caller",
        "_counted",
        "_goodput_counted",
        "_head",
        "_meter",
        "_metered",
        "_over",
        "_path",
        "_prompt_estimate",
        "_relay",
        "_span",
        "_unmetered",
        "_untold",
        "deadline",
        "model",
        "offered",
        "request_class",
        "request_id",
        "takes_usage",
        "unparsed",
        "zero",
    )

    def __init__(self, relay: "Relay", head: Head, path: str, *, metered: bool) -> None:
        self._relay = relay
        self._head = head
        self._path = path
        self._metered = metered
        self._began = self._arrived = self.zero = time.monotonic()
        self.deadline = inf
        """When `deadline_passed` should be called: after it, a verdict is certain."""
        self._asked: RequestBody | None = None
        self._prompt_estimate: float | None = None
        self._meter: Meter | None = None
        self._unmetered: str | None = None
        self._counted: list[str] = []
        self._untold: dict[str, Verdict] = {}
        self._goodput_counted = False
        self._over = False
        self.unparsed: str | None = None
        self.takes_usage = False
        """Whether the usage event was asked for by us alone and stays here."""
        self.model = ""
        self.request_class = OTHER
        self.offered = False
        """Whether the request has come in as far as it must to count."""
        given = head.get(b"x-request-id")
        if given is None:
            given = relay.new_request_id()
            head.headers.append((b"x-request-id", given.encode()))
        self.request_id = given
        self._caller = trace_context.caller(head.headers)
        self._span: trace_context.OwnSpan | None = None
        if relay.config.wants_spans and metered:
            self._span = trace_context.own_span(self._caller)
            head.headers = trace_context.forwarded(head.headers, self._caller, self._span)

    @property
    def metered(self) -> bool:
        return self._meter is not None

    @property
    def phase(self) -> Phase:
        return Phase.WAITING if self._meter is None or self._meter.first_at is None else Phase.STREAMING

    @property
    def awaits_first_token(self) -> bool:
        """Whether a first token is still to come; a unary answer has none to see, however well it is getting on."""
        return self._asked is not None and self._asked.stream and self.phase is Phase.WAITING

    def start(self, asked: RequestBody | None, body_size: int, *, takes_usage: bool = False) -> None:
        """Time zero. `asked` is None where the body is not parsed; then its size in bytes gives the class."""
        now = time.monotonic()
        self.offered = True
        self.takes_usage = takes_usage
        self._asked = asked
        self._arrived = self.zero = now
        slos = self._relay.slos
        if slos.trust_request_start and (waited := _waited(self._head.get(_REQUEST_START))) is not None:
            self.zero = now - waited
        if self._metered:
            try:
                self._meter = self._metering(asked, body_size)
                self._arm()
            except Exception as error:  # noqa: BLE001 - as in observe
                self._fail_open(error)

    def _metering(self, asked: RequestBody | None, body_size: int) -> Meter:
        slos = self._relay.slos
        max_tokens = asked.max_tokens if asked else None
        n = asked.n if asked else 1
        estimate = asked.prompt_tokens if asked else self._declared_size(body_size) / CHARACTERS_PER_TOKEN
        self._prompt_estimate = estimate
        self.request_class = slos.classify(self._head.get(_REQUEST_CLASS), estimate, max_tokens)
        self.model = asked.model if asked else ""
        charges = self._relay.charges(
            self.request_class, stream=bool(asked and asked.stream), several=several_tokens(n, max_tokens)
        )
        return Meter(
            Judge(charges, zero=self.zero, first_token_timeout=slos.first_token_timeout, max_tokens=max_tokens),
            zero=self.zero,
            one_choice=n == 1,
            gap_bounds=self._relay.gap_bounds,
            takes_usage=self.takes_usage,
            on_verdicts=self._fallen,
        )

    def even(self, send: Callable[[bytes], None]) -> FastPath | None:
        """What forwards and counts the chunks of a stream that has shown its pattern, if the next read begins one."""
        meter = self._meter
        if meter is None or self._unmetered is not None or meter.pattern is None or not meter.between_events:
            return None
        return FastPath(meter.pattern, meter, send, self._fail_open)

    def fold(self) -> bool:
        """Keep a long stream's gaps in bounded memory; whether there was something to do."""
        return self._meter is not None and self._meter.gaps.fold()

    def client_reads(self, *, reads: bool) -> None:
        """A client that does not read holds the engine up: that time is not the engine's."""
        if self._meter is not None:
            (self._meter.resume if reads else self._meter.pause)(time.monotonic())

    @property
    def last_output_at(self) -> float:
        """When the last output arrived, or time zero."""
        meter = self._meter
        return self.zero if meter is None or meter.last_at is None else meter.last_at + meter.paused

    def observe(self, pieces: list[bytes], at: float, *, event_stream: bool) -> list[bytes]:
        """Pieces of the response's body; returns what goes to the client."""
        meter = self._meter
        if meter is None or self._unmetered is not None:
            return pieces
        if not event_stream:
            for piece in pieces:
                meter.unary(piece)
            return pieces
        try:
            return [meter.stream(piece, at) for piece in pieces]
        except Exception as error:  # noqa: BLE001 - any fault at all: the answer goes on unmeasured
            self._fail_open(error)
            return pieces

    def response_over(self, status: int, at: float, *, event_stream: bool, complete: bool) -> tuple[bytes, Outcome]:
        """What an unfinished last event held back, and what became of the request."""
        meter = self._meter
        if meter is not None and self._unmetered is None:
            try:
                rest = meter.stream_end(at) if event_stream else b""
                if not event_stream and complete:
                    meter.unary_end()
                return rest, meter.outcome(status, streams=event_stream, complete=complete)
            except Exception as error:  # noqa: BLE001 - as in observe
                self._fail_open(error)
        return b"", outcome_of_status(status) if complete else Outcome.TRUNCATED

    def early_verdicts(self) -> Judged | None:
        """Verdicts that have fallen since the last call, for a request that is still open."""
        if not self._untold:
            return None
        fallen, self._untold = self._untold, {}
        self._counted.extend(fallen)
        lost = Verdict.BAD in fallen.values() and not self._goodput_counted
        self._goodput_counted = self._goodput_counted or lost
        return Judged(self.model, self.request_class, self._tenant(), fallen, lost)

    def close(self, outcome: Outcome, status: int | None, at: float, *, event_stream: bool) -> Finished:
        """The request is over: the last verdicts fall."""
        self._over = True
        asked = self._asked
        record = Finished(
            time=time.time() - (time.monotonic() - self.zero),
            request_id=self.request_id,
            model=self.model,
            request_class=self.request_class,
            tenant=self._tenant(),
            endpoint=self._path[:256],
            stream=event_stream or bool(asked and asked.stream),
            status=status,
            outcome=outcome,
            metered=self.metered,
            e2e=at - self.zero,
            upload=self._arrived - self._began,
            prompt_estimate=self._prompt_estimate,
            unparsed=self.unparsed,
            unmetered=self._unmetered,
        )
        self._add_trace(record)
        if asked is not None:
            record.max_tokens = asked.max_tokens
            record.temperature = asked.temperature
            record.prompt_sha256 = asked.prompt_sha256
        if self._meter is not None:
            try:
                self._meter.finish(outcome, at)
                self._add_measured(record, self._meter)
            except Exception as error:  # noqa: BLE001 - as in observe
                self._fail_open(error)
                record.unmetered = self._unmetered
            self._meter = None  # it calls back to us: a cycle, which would be the collector's work for every request
        return record

    def _add_trace(self, record: Finished) -> None:
        if self._caller is not None:
            record.trace_id = self._caller.trace_id
            record.parent_span_id = self._caller.span_id
            record.parent_sampled = self._caller.sampled
        if self._span is not None:
            record.trace_id = self._span.trace_id
            record.span_id = self._span.span_id

    def _add_measured(self, record: Finished, meter: Meter) -> None:
        record.finish_reason = meter.finish_reason
        record.system_fingerprint = meter.fingerprint
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
        record.paused = meter.paused

    def _declared_size(self, body_size: int) -> int:
        return self._head.length or body_size

    def _tenant(self) -> str:
        tenants = self._relay.slos.tenants
        return tenants.bounded(self._head.get(tenants.header.encode()))

    def _arm(self) -> None:
        deadline = self._meter.judge.deadline() if self._meter else None
        self.deadline = inf if deadline is None else deadline
        self._relay.next_deadline = min(self._relay.next_deadline, self.deadline)

    def deadline_passed(self, now: float) -> None:
        """Time alone makes a verdict certain."""
        if self._meter is not None:
            self._meter.tell(self._meter.judge.clock(now))
            self._arm()

    def _fallen(self, fallen: list[tuple[str, Verdict]]) -> None:
        self._untold.update(fallen)
        if not self._over:
            self._relay.judged.add(self)

    def _fail_open(self, error: Exception) -> None:
        self._unmetered = type(error).__name__
        self._relay.metering_failed(error)


def _waited(header: str | None) -> float | None:
    """Seconds since the sender meant to send, when its header can be believed."""
    if header is None or not header.startswith("t="):
        return None
    try:
        waited = time.time() - float(header[2:])
    except ValueError:
        return None
    return waited if 0 <= waited <= START_AT_MOST_AGO else None
