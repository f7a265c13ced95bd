"""Messages from a relay to the exporter: numbered records, kept until acknowledged, and snapshots of open requests.

On the wire each message is a 4-byte big-endian length and a msgpack array. Times are seconds; `None` means unknown.
A record has all that depends on the SLO file, because the exporter may use another one than the request arrived under.
"""

from collections.abc import Callable

import msgspec

from exporters.vocabulary.signals import OTHER, Endpoint, Outcome, OutputKind, OutputResult, Verdict
from exporters.vocabulary.slo_file import Measure

TOO_LARGE, NOT_UNDERSTOOD = "too_large", "not_understood"
UNPARSED = (TOO_LARGE, NOT_UNDERSTOOD)
"""Reasons why a request body was not parsed."""

ENCODED = "encoded"
"""The reason why a compressed stream is unmetered."""
UNMETERED = (ENCODED, "AttributeError", "IndexError", "KeyError", "RecursionError", "TypeError", "ValueError", OTHER)
"""Label values for the reason why a request is unmetered; for an exception the record has its full name."""

REFUSALS = (
    (400, "bad_request"),
    (400, "bad_host"),
    (400, "bad_content_length"),
    (400, "bad_transfer_encoding"),
    (400, "bad_framing"),
    (400, "bad_chunk"),
    (403, "path_not_allowed"),
    (408, "request_timeout"),
    (413, "body_too_large"),
    (414, "path_too_long"),
    (426, "upgrade_not_supported"),
    (431, "head_too_large"),
    (503, "too_many_connections"),
    (503, "upload_stalled"),
)
"""Status and reason of all refusals of the relay; the reason is the `code` of the error."""

PREFIX_BLOCK = 2048
"""Characters of a block of a prompt that has a hash of its own."""


class Hello(msgspec.Struct, array_like=True, tag="hello"):
    """The first message of a relay: the name and the run id of its process, and how often it was restarted before."""

    process: str
    run_id: str
    restarts: int = 0


class Finished(msgspec.Struct, array_like=True, tag="finished"):
    """One request that has ended, with all values that the request log and the series need."""

    time: float  # unix, at time zero
    request_id: str
    model: str
    request_class: str
    tenant: str
    route: str
    stream: bool
    status: int | None
    outcome: Outcome
    metered: bool
    e2e: float
    trace_id: str | None = None  # of the client, or of the sidecar's span if tracing is on
    span_id: str | None = None  # of the sidecar's span; None if tracing is off
    parent_span_id: str | None = None  # the client's span
    parent_sampled: bool | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    prompt_sha256: str | None = None
    upload: float | None = None
    ttft: float | None = None
    ttft_answer: float | None = None
    tpot: float | None = None
    itl_p50: float | None = None
    itl_p95: float | None = None
    queue: float | None = None
    prefill: float | None = None
    decode: float | None = None
    wait_at_least: float | None = None
    slo: dict[str, Verdict] = {}
    counted: list[str] = []  # SLOs whose verdict an earlier `Judged` has already reported
    goodput: bool | None = None
    goodput_counted: bool = False
    gap_counts: dict[float, int] = {}  # by upper bound of the bucket, not cumulative, without empty buckets
    gap_sum: float = 0.0
    unparsed: str | None = None
    unmetered: str | None = None
    paused: float = 0.0  # while the client did not read; part of e2e only
    system_fingerprint: str | None = None
    prompt_repeat: bool | None = None  # set by the exporter, which sees the prompts of all relays
    prompt_estimate: float | None = None  # tokens, estimated from the text; also for failed requests
    engine_slos: dict[str, tuple[Measure, float]] = {}  # SLOs on times in the engine's span, with their thresholds
    api: Endpoint = Endpoint.OTHER  # `route` is the path
    reasoning_tokens: int | None = None
    structured_kind: OutputKind | None = None
    structured_result: OutputResult | None = None
    first_tool_call: float | None = None  # until the first tool call was complete
    response_id: str | None = None
    response_model: str | None = None
    bad_at: dict[str, float] = {}  # when verdicts became bad before the end, since time zero; only with tracing
    prompt: str | None = None  # as the next two, only with --log-content full
    completion: str | None = None
    content_cut: bool | None = None
    before_relay: float = 0.0  # from time zero to the end of the upload, if a gateway in front has set time zero

    @property
    def frontend(self) -> float | None:
        """The part of TTFT, since the end of the upload, that is neither queue nor prefill time of the engine.

        Two processes have measured the durations, so the difference may be slightly negative; it is then 0.
        """
        if self.ttft is None or self.queue is None or self.prefill is None:
            return None
        return max(0.0, self.ttft - self.before_relay - self.queue - self.prefill)

    body_sha256: str | None = None
    body_repeat: bool | None = None  # set by the exporter, as prompt_repeat
    prefix_hashes: list[int] | None = None
    prefix_characters: int | None = None  # of the whole prompt, also of what is not hashed
    shareable_tokens: int | None = None  # set by the exporter
    refused: str | None = None  # one of REFUSALS, if the relay itself has refused the request
    dropped_values: list[str] = []  # names of the series that lack an implausible value of the engine


class Judged(msgspec.Struct, array_like=True, tag="judged"):
    """Verdicts that are certain before the request ends: a hung engine consumes error budget while it hangs."""

    model: str
    request_class: str
    tenant: str
    slo: dict[str, Verdict]
    goodput_lost: bool  # the first bad verdict of the request: it can no longer be good


class Refused(msgspec.Struct, array_like=True, tag="refused"):
    """A refused request without a record: its head is not valid, or it is outside the accounting, as OPTIONS is."""

    status: int
    reason: str


Record = Finished | Judged | Refused


class Batch(msgspec.Struct, array_like=True, tag="batch"):
    """Records numbered `first`, `first + 1`, ... within the relay's run."""

    first: int
    records: list[Record]
    counted: list[int] = []  # numbers of records that an earlier run of the exporter has counted


class OpenRequests(msgspec.Struct, array_like=True):
    """Open requests of a model and class; `oldest_zero` is the time zero (monotonic) of the longest waiting stream."""

    model: str
    request_class: str
    waiting: int
    streaming: int
    oldest_zero: float | None


class Waits(msgspec.Struct, array_like=True, frozen=True):
    """The requests that wait for the engine, and what it has done for others, for the state of the engine."""

    awaited: int = 0  # neither for a body nor for a client that does not read
    models: tuple[str, ...] = ()  # of the awaited requests
    longest_prompt: float = 0.0  # tokens, of those without a first token
    output_at: float | None = None  # the last output, in monotonic seconds
    output_models: tuple[str, ...] = ()  # models of which there was output
    failed: int = 0  # requests that the engine has failed


class Footprint(msgspec.Struct, array_like=True, frozen=True):
    """CPU seconds of a process since it started, and its resident memory in bytes."""

    cpu: float
    memory: int | None


class Snapshot(msgspec.Struct, array_like=True, tag="snapshot"):
    """The current state of the relay; it replaces the previous snapshot, so it needs no number."""

    open: list[OpenRequests]
    loop_lag: float
    connections: int
    draining: bool
    footprint: Footprint | None = None
    client_limit: int = 0
    rejected_connections: int = 0
    task_errors: int = 0
    cut_requests: int = 0
    buffered: int = 0  # bytes of request bodies
    buffered_limit: int = 0
    upstream: str = ""  # host and port of the engine
    connect_failures: dict[str, int] = {}  # by kind
    waits: Waits = Waits()


class Ack(msgspec.Struct, array_like=True, tag="ack"):
    """The exporter has stored all records up to and including this number."""

    last: int


class Counted(msgspec.Struct, array_like=True, tag="counted"):
    """The exporter has counted the records of these numbers, but not stored them yet."""

    numbers: list[int]


FromExporter = Ack | Counted
FromRelay = Hello | Batch | Snapshot

_encoder = msgspec.msgpack.Encoder()


def frame(message: Hello | Batch | Snapshot | Ack | Counted) -> bytes:
    """The bytes of one message on the socket."""
    payload = _encoder.encode(message)
    return len(payload).to_bytes(4, "big") + payload


class _RawBatch(msgspec.Struct, array_like=True, tag="batch"):
    """A `Batch` whose records are not decoded."""

    first: int
    records: list[msgspec.Raw]
    counted: list[int] = []


_NOTHING = Judged("", OTHER, OTHER, {}, goodput_lost=False)

_decode_raw = msgspec.msgpack.Decoder(_RawBatch).decode
_decode_record = msgspec.msgpack.Decoder(Record)


def batch_without_bad_records(payload: bytes, on_bad: Callable[[msgspec.DecodeError], None]) -> Batch:
    """A batch in which a `Judged` without verdicts replaces each record that cannot be decoded; the numbers remain.

    Raises:
        DecodeError: the payload is not a batch.
    """

    def decode(raw: msgspec.Raw) -> Record:
        try:
            record: Record = _decode_record.decode(raw)
        except msgspec.DecodeError as error:
            on_bad(error)
            return _NOTHING
        return record

    batch = _decode_raw(payload)
    return Batch(batch.first, [decode(raw) for raw in batch.records], batch.counted)


class Frames:
    """Splits a byte stream into payloads."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> list[bytes]:
        data = self._buffer + data
        payloads, start = [], 0
        while len(data) - start >= 4:
            end = start + 4 + int.from_bytes(data[start : start + 4], "big")
            if end > len(data):
                break
            payloads.append(data[start + 4 : end])
            start = end
        self._buffer = data[start:]
        return payloads
