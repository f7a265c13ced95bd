"""Event streams split into reads, and meters for them."""

import itertools
from collections.abc import Iterable

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
