"""Fuzzes the meter with mutated event streams: every byte but our usage event passes, and counts ignore the cuts."""

import random
import re
from dataclasses import dataclass

from exporters.relay.sse import decode
from tests.fuzz.mutate import cut, mutated
from tests.support.event_streams import stream_meter
from tests.support.scripted_relay import DONE, ROLE, USAGE, content

CORPUS = (
    ROLE + content("a") + content("b", "stop") + USAGE + DONE,
    (ROLE + content("a") + content("b", "stop") + USAGE + DONE).replace(b"\n", b"\r\n"),
    ROLE,
    content("x"),
    USAGE,
    DONE,
    b": ping\n\n",
    b"event: message\nid: 7\ndata: {\ndata: }\n\n",
    b'data: {"choices":[{"text":"\xc3\xbc"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\n',
    b'data: {"error":{"message":"x"}}\n\n',
)
WORDS = (
    *b"\n|\n\n|\r|\r\n|\r\r|\r\n\r\n|\n\r\n|\r\n\n| |:|\0|\xff|\xef\xbb\xbf".split(b"|"),
    *b'data: |data:|data|event: x\n|"usage":|"choices":[]|"usage":null|[DONE]|{|}'.split(b"|"),
    *b'1e400|-1|99999999999999999999|null|"\\ud800"'.split(b"|"),
    b"[" * 200,
)


@dataclass(frozen=True, slots=True)
class Case:
    """An event stream as it is read."""

    pieces: list[bytes]


def case(rng: random.Random) -> Case:
    return Case(cut(rng, mutated(rng, CORPUS, WORDS), b"\n\n"))


def _through(pieces: list[bytes], *, strips_usage: bool) -> tuple[bytes, tuple[object, ...]]:
    """What came out, and the counts."""
    meter = stream_meter(strips_usage=strips_usage)
    out = b"".join([*(meter.stream(piece, 1.0) for piece in pieces), meter.stream_end(1.0)])
    outcome = meter.outcome(200, streams=True, complete=True)
    meter.finish(outcome, 2.0)
    tokens = meter.prompt_tokens, meter.completion_tokens, meter.cached_tokens, meter.finish_reason
    return out, (meter.chunks, len(meter.gaps), *tokens, outcome)


def without_usage(data: bytes) -> bytes:
    """Line by line, as the standard reads a stream: all events but those that are usage alone."""
    out, event, values = bytearray(), bytearray(), []
    for line in re.findall(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z", data):
        event += line
        text = line.rstrip(b"\r\n")
        if text.startswith(b"data:"):
            values.append(text[5:].removeprefix(b" "))
        if not text and event != line:  # a blank line more belongs to the event after it
            out += b"" if _is_usage(values) else event
            event, values = bytearray(), []
    return bytes(out + (b"" if event and _is_usage(values) else event))


def _is_usage(values: list[bytes]) -> bool:
    try:
        event = decode(b"\n".join(values))
    except ValueError:
        return False
    return event.usage is not None and not event.choices


# Lines that end so are read, but beside other line ends only where a read does not look like one event by itself.
BARE_CR = re.compile(rb"\r(?!\n)").search


async def check(case: Case) -> bool:
    """Meter the stream in its pieces, whole and byte by byte; whether it carried a token.

    Raises:
        AssertionError: a property does not hold; any other exception is one, too.
    """
    data = b"".join(case.pieces)
    cuts = [data], case.pieces, [data[at : at + 1] for at in range(len(data))]
    assert all(_through(pieces, strips_usage=False)[0] == data for pieces in cuts), "bytes"
    if BARE_CR(data):
        return False
    stripped = without_usage(data)
    _, counts = _through([data], strips_usage=False)
    for pieces in cuts:
        assert _through(pieces, strips_usage=False)[1] == counts, "by the cut"
        assert _through(pieces, strips_usage=True) == (stripped, counts), "by the cut, without our usage event"
    return counts[0] != 0
