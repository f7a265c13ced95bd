"""Event streams split into reads, and meters for them."""

import itertools
from collections.abc import Iterable
from unittest.mock import patch

from exporters.relay.dialects import chat
from exporters.relay.dialects.dialect import Dialect
from exporters.relay.metering.fast_path import Forwarding
from exporters.relay.metering.meter import Meter
from exporters.vocabulary.verdicts import Judge, applicable_slos
from tests.support.scripted_relay import chunk


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """Split the data at these places, each modulo its length."""
    marks = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in itertools.pairwise(marks)]


def stream_meter(*, strips_usage: bool = False, dialect: Dialect = chat) -> Meter:
    """A meter without SLOs, with time zero 0."""
    judge = Judge(applicable_slos([], stream=True, several=True), zero=0, first_token_timeout=60)
    return Meter(
        judge,
        dialect=dialect,
        zero=0,
        one_choice=True,
        gap_bounds=(1.0,),
        strips_usage=strips_usage,
        on_verdicts=lambda *_: None,
    )


def raise_error(error: Exception) -> None:
    raise error


def stream_as_relay(meter: Meter, reads: Iterable[bytes]) -> list[bytes]:
    """Pass reads to a meter that removes nothing; returns the chunks that took the fast path."""
    forwarded: list[bytes] = []
    for at, data in enumerate(reads):
        path = meter.fast_path(forwarded.append, raise_error)
        if path is None or not forwards(path, chunk(data)):
            assert meter.stream(data, float(at)) == data
    return forwarded


def forwards(path: Forwarding, data: bytes) -> bool:
    """Whether the fast path has forwarded this read, and not left it to the parsers."""
    left: list[bytes] = []
    path.leave = left.append
    path.data_received(data)
    return not left


def begun(*events: bytes, dialect: Dialect = chat) -> tuple[Meter, Forwarding, list[bytes]]:
    """A meter of a stream after these events, at 1 s, 2 s and so on, its fast path, and what that has forwarded."""
    meter, sent = stream_meter(dialect=dialect), list[bytes]()
    for at, event in enumerate(events, 1):
        meter.stream(event, float(at))
    path = meter.fast_path(sent.append, raise_error)
    assert path is not None
    return meter, path, sent


def relayed(meter: Meter, events: Iterable[bytes]) -> list[bytes]:
    """What the client receives of each of these events, one a second, on the fast path if the meter has one for it."""
    received: list[bytes] = []
    for at, event in enumerate(map(chunk, events)):
        sent: list[bytes] = []
        path = meter.fast_path(sent.append, raise_error)
        with patch("exporters.relay.metering.fast_path.time.monotonic", lambda now=float(at): now):
            forwarded = path is not None and forwards(path, event)
        assert sent == [event] * forwarded
        data = event.partition(b"\r\n")[2][:-2]
        received.append(data if forwarded else meter.stream(data, float(at)))
    return received


def measured(meter: Meter) -> tuple[object, ...]:
    """All that a meter has found when its stream is over."""
    outcome = meter.outcome(200, streams=True, complete=True)
    meter.finish(outcome, 1e9)
    return (
        meter.chunks, list(meter.gaps.recent), meter.first_at, meter.answer_at, meter.last_at, meter.prompt_tokens,
        meter.first_tool_call_at, meter.completion_tokens, meter.cached_tokens, meter.reasoning_tokens,
        meter.finish_reason, meter.fingerprint, meter.done, outcome,
    )  # fmt: skip
