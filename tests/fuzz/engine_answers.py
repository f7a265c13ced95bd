"""Mutated responses: the client receives valid HTTP without a fabricated end, and each request has one outcome."""

import random
import time
from dataclasses import dataclass

from exporters.vocabulary.signals import Outcome
from tests.fuzz.event_streams import BARE_CR, without_usage
from tests.fuzz.event_streams import STRINGS as EVENT_STRINGS
from tests.fuzz.mutate import CONTENT_LENGTHS, cut, mutated
from tests.fuzz.wire import Bench, Read, feed, read_response, settle
from tests.support.api_streams import MESSAGES, RESPONSES, block_delta, delta
from tests.support.scripted_relay import (
    CHAT,
    CHAT_WITH_USAGE,
    DONE,
    END,
    ROLE,
    STREAM_HEAD,
    UNARY,
    USAGE,
    chunk,
    content,
    post,
)

REQUESTS = (
    post(UNARY, close=False),
    post(UNARY),
    post(CHAT, close=False),
    post(CHAT_WITH_USAGE, close=False),
    post(CHAT.replace(b"{", b'{"n":2,', 1), close=False),
    post(CHAT, close=False).replace(b"HTTP/1.1", b"HTTP/1.0"),
    post(RESPONSES.request, path=RESPONSES.path, close=False),
    post(MESSAGES.request, path=MESSAGES.path),
    b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n",
    b"GET /v1/models HTTP/1.0\r\nconnection: keep-alive\r\n\r\n",
    b"HEAD /v1/models HTTP/1.1\r\nhost: x\r\n\r\n",
    b"POST /v1/chat/completions/batch HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhalf",
)
NAMED = [api.start + api.output * 4 + api.end for api in (RESPONSES, MESSAGES)]
ENDS = (b"[DONE]", b"response.completed", b"message_stop")
STREAM = ROLE + content("a") + content("b", "stop") + USAGE + DONE
SIZED = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
TEXTS = ("a", "bc", "\u00fc", "d", "\U0001f600", " ", "\\n", "e")
SIMILAR = b"".join(chunk(content(text)) for text in TEXTS)
CORPUS = (
    STREAM_HEAD + SIMILAR + chunk(content("z", "stop")) + chunk(USAGE) + chunk(DONE) + END,
    STREAM_HEAD + b"".join(chunk(STREAM[at : at + 50]) for at in range(0, len(STREAM), 50)) + END,
    STREAM_HEAD + chunk(ROLE) + chunk(content("a", "stop")) + chunk(USAGE) + chunk(DONE) + b"0\r\nx-late: 1\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + STREAM,
    *(STREAM_HEAD + b"".join(chunk(event + b"\n\n") for event in stream.split(b"\n\n")[:-1]) + END for stream in NAMED),
    b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + STREAM,
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n%s" % (len(STREAM), STREAM),
    SIZED % (2, b"ok"),
    SIZED % (0, b""),
    b"HTTP/1.1 100 Continue\r\n\r\n" + SIZED % (2, b"ok"),
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\ncontent-length: 7\r\n\r\n",
    b"HTTP/1.1 503 Busy\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno",
    b"HTTP/1.1 429 \r\ntransfer-encoding: chunked\r\nkeep-alive: timeout=5\r\n\r\n" + chunk(b"slow") + END,
)
STRINGS = (
    *CONTENT_LENGTHS,
    *(b"transfer-encoding: " + of for of in (b"chunked", b"identity", b"gzip", b"gzip, chunked", b"chunked, gzip")),
    *(b"connection: " + of for of in (b"close", b"keep-alive", b"upgrade", b"content-length, x-engine")),
    *b"content-length|transfer-encoding|content-type: text/event-stream|content-encoding: gzip|upgrade: h2c".split(
        b"|"
    ),
    *b"HTTP/1.1 |HTTP/1.0 |HTTP/2.0 |101|103|199|204|304|200|099|999|0200|0\r\n\r\n|ffffffff\r\n".split(b"|"),
    *b"\r\n\r\n|\r\n|\n|\r|\0| |\t|:|\x0b|\x80".split(b"|"),
)


@dataclass(frozen=True, slots=True)
class Case:
    """A request, the reads of the response, and the end of the connection: `closed`, `reset` or `open`."""

    request: bytes
    pieces: list[bytes]
    ending: str

    @property
    def strips_usage(self) -> bool:
        """Whether the relay adds `include_usage` to the request."""
        completions = b"/completions " in self.request
        return completions and b'"stream":true' in self.request and b"include_usage" not in self.request


def case(rng: random.Random) -> Case:
    request = rng.choice(REQUESTS)
    return Case(request, cut(rng, mutated(rng, CORPUS, STRINGS), b"\n\n\r\n"), rng.choice(("closed", "reset", "open")))


def fast_path_case(rng: random.Random) -> Case:
    """Similar chunks, one per read, as engines send them."""
    events = [content(rng.choice(TEXTS)) for _ in range(rng.randint(3, 9))]
    events = [mutated(rng, [event], EVENT_STRINGS) if rng.random() < 0.2 else event for event in events]
    pieces = [STREAM_HEAD, *(chunk(event) for event in events if event), chunk(USAGE) + chunk(DONE) + END]
    return Case(rng.choice(REQUESTS[2:5]), pieces, rng.choice(("closed", "reset", "open")))


def named_fast_path_case(rng: random.Random) -> Case:
    """As `fast_path_case`, with named events whose numbers rise."""
    api = rng.choice((RESPONSES, MESSAGES))
    texts = [rng.choice(TEXTS) for _ in range(rng.randint(3, 9))]
    events = [
        delta("output_text", text, number) if api is RESPONSES else block_delta("text_delta", "text", text)
        for number, text in enumerate(texts)
    ]
    events = [mutated(rng, [event], EVENT_STRINGS) if rng.random() < 0.2 else event for event in events]
    pieces = [STREAM_HEAD + chunk(api.start), *(chunk(event) for event in events if event), chunk(api.end) + END]
    request = post(api.request, path=api.path, close=False)
    return Case(request, pieces, rng.choice(("closed", "reset", "open")))


async def check(case: Case) -> bool:
    """Respond to a request with the case; return whether the client received a complete response.

    Raises:
        AssertionError: a property does not hold. Any other exception is a bug, too.
    """
    data = b"".join(case.pieces)
    method = case.request.partition(b" ")[0].decode()
    sent = read_response(data, method, ended=case.ending == "closed")
    relayed = await _relayed(case, case.pieces, sent)
    # The reads may determine when an error is detected, so only valid responses must not depend on them.
    valid = sent.error is None and not sent.rest and not BARE_CR(sent.body)
    byte_by_byte = [data[at : at + 1] for at in range(len(data))]
    if valid and sent.status is not None and sent.status >= 200:
        assert await _relayed(case, [data], sent) == relayed, "depends on the reads: in one read"
        assert await _relayed(case, byte_by_byte, sent) == relayed, "depends on the reads: byte by byte"
    return relayed[0].whole


async def _relayed(case: Case, pieces: list[bytes], sent: Read) -> tuple[Read, tuple[object, ...]]:
    """The client's response and the record if the engine sends the response in these pieces."""
    bench = Bench()
    feed(bench.client, case.request)
    await settle()
    (engine,) = bench.pool.wires
    for piece in pieces:
        if not engine.is_closing():
            feed(engine, piece)
            # For single bytes, this would take most of the time.
            if len(piece) > 1:
                await settle()
    if not engine.is_closing() and case.ending != "open":
        engine.lose(None if case.ending == "closed" else ConnectionResetError())
    await settle()
    if sent.rest and sent.error is None:
        assert bench.pool.acquire(time.monotonic()) is not engine.protocol, "a connection with unread bytes was reused"
    method = case.request.partition(b" ")[0].decode()
    read = read_response(bytes(bench.client.sent), method, ended=bench.client.ended == "in order")
    _check_nothing_fabricated(case, sent, read)
    assert read.whole or bench.client.ended or case.ending == "open", "neither an end nor a close"
    if case.ending != "open":
        assert len(bench.records) == 1, "no outcome"
    bench.client.lose()
    await settle()
    (record,) = bench.records
    ended = sent.whole or sent.error or any(end in sent.body for end in ENDS)
    assert ended or record.outcome != Outcome.OK, "ok without an end"
    tokens = record.prompt_tokens, record.completion_tokens, record.finish_reason, sum(record.gap_counts.values())
    # The error response for invalid HTTP may depend on the reads.
    if read.status != sent.status:
        read = Read(read.whole, read.status)
    return read, (record.status, record.outcome, *tokens)


def _check_nothing_fabricated(case: Case, sent: Read, read: Read) -> None:
    """The client receives valid HTTP, and a complete response only if the engine sent one, with the same body."""
    assert read.error is None, f"invalid HTTP for the client: {read.error}"
    assert not read.rest, "more than one response"
    if read.status != sent.status and sent.error is None:
        assert read.status in {None, 502}, "another status"
    elif read.whole and sent.error is None:
        assert sent.whole, "a fabricated end"
        expected = {sent.body, without_usage(sent.body)} if case.strips_usage else {sent.body}
        assert read.body in expected, "another body"
