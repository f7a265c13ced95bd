"""Mutated requests: the engine receives exactly the counted requests, as h11 parses them."""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from unittest.mock import patch

import h11

from exporters.http import parser as http1_parser
from exporters.relay.connections import exchange
from tests.fuzz.mutate import CONTENT_LENGTHS, cut, mutated
from tests.fuzz.wire import Bench, Wire, feed, read_response, settle
from tests.support.api_streams import MESSAGES, RESPONSES
from tests.support.scripted_relay import CHAT, END, UNARY, chunk, post

CHUNKED = b"POST /v1/%s HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
CORPUS = (
    post(UNARY, close=False),
    post(CHAT, close=False),
    post(CHAT, path="/v1/completions?x=1", headers="x-request-class: long\r\n"),
    post(UNARY, path="/v1/chat/completions/batch", headers="expect: 100-continue\r\n", close=False),
    CHUNKED % b"completions" + chunk(UNARY[:20]) + chunk(UNARY[20:]) + END,
    CHUNKED % b"embeddings" + chunk(b"a" * 90) + chunk(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n") + END,
    CHUNKED % b"rerank" + chunk(b"{}") + b"0\r\nx-trailer: 1\r\n\r\n",
    CHUNKED % b"responses" + chunk(RESPONSES.request[:20]) + chunk(RESPONSES.request[20:]) + END,
    post(MESSAGES.request, path="/v1/messages", close=False),
    post(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}", path="/tokenize", close=False),
    b"\r\nGET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n",
    b"GET /health HTTP/1.0\r\nconnection: keep-alive\r\n\r\n",
    b"HEAD /v1/models HTTP/1.1\r\nhost: x\r\nx-request-id: one\r\n\r\n",
    b"HEAD /metrics HTTP/1.1\r\nhost: x\r\n\r\n",
    b"GET http://x/v1/models HTTP/1.1\r\nhost: x\r\n\r\n",
    b"DELETE /sleep HTTP/1.1\r\nhost: x\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n",
)
STRINGS = (
    *CONTENT_LENGTHS,
    *(b"transfer-encoding: " + of for of in (b"chunked", b"Chunked", b"identity", b"gzip, chunked", b"chunked,")),
    *(b"connection: " + of for of in (b"close", b"keep-alive", b"upgrade", b"content-length, host")),
    *b"content-length|transfer-encoding|host|host: y|upgrade: h2c|expect: 100-continue|chunked".split(b"|"),
    *b"GET|HEAD|POST|CONNECT|PRI|HTTP/1.1|HTTP/1.0|HTTP/2.0|/v1/models|/../metrics|0\r\n\r\n|%0d%0a".split(b"|"),
    *b"\r\n\r\n|\r\n|\n|\r|\0| |\t|:|;x=y|\x0b|\x80|\xff".split(b"|"),
)


@dataclass(frozen=True, slots=True)
class Case:
    """The reads of a client, the probability that the engine delays a response, and the limit for streaming bodies."""

    pieces: list[bytes]
    delay: float
    parsed_limit: int


def case(rng: random.Random) -> Case:
    pieces = cut(rng, mutated(rng, CORPUS, STRINGS), b"\r\n\r\n")
    return Case(pieces, rng.choice((0.0, 0.5, 0.9)), rng.choice((60, exchange.PARSED_LIMIT)))


@dataclass
class Request:
    """A request as h11 parses it."""

    method: str
    target: str
    body: bytearray = field(default_factory=bytearray)
    whole: bool = False


class Engine:
    """An h11 server on one of the relay's wires, which responds on demand."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
        self._fed = 0
        self._begun_at = 0
        self.requests: list[Request] = []

    def read(self) -> None:
        """Parse what the relay has written; bytes after the current request are a smuggled request."""
        if len(self._wire.sent) == self._fed:
            return
        self._http.receive_data(bytes(self._wire.sent[self._fed :]))
        self._fed = len(self._wire.sent)
        while True:
            event = self._http.next_event()
            if isinstance(event, h11.Request):
                head = bytes(self._wire.sent[self._begun_at :]).partition(b"\r\n\r\n")[0].lower()
                framing = head.count(b"\r\ncontent-length:") + head.count(b"\r\ntransfer-encoding:")
                assert framing <= 1, "framed twice"
                assert head.count(b"\r\nhost:") == 1, "hosts"
                self.requests.append(Request(event.method.decode(), event.target.decode()))
            elif isinstance(event, h11.Data):
                self.requests[-1].body += event.data
            elif isinstance(event, h11.EndOfMessage):
                self.requests[-1].whole = True
            else:
                break
        assert not self._http.trailing_data[0], "more than one request at once"

    async def respond(self) -> bool:
        """Respond to the current request if it is complete; return whether it was."""
        if self._http.states != {h11.CLIENT: h11.DONE, h11.SERVER: h11.SEND_RESPONSE}:
            return False
        body = b"" if self.requests[-1].method == "HEAD" else b"ok"
        data = self._http.send(h11.Response(status_code=200, headers=[("content-length", "2")])) or b""
        if body:
            data += self._http.send(h11.Data(data=body)) or b""
        data += self._http.send(h11.EndOfMessage()) or b""
        self._begun_at = self._fed
        if self._http.our_state is h11.DONE:
            self._http.start_next_cycle()
        feed(self._wire, data)
        await settle()
        return True


async def check(case: Case) -> bool:
    """Send the case to a relay; return whether the engine received a complete request.

    Raises:
        AssertionError: a property does not hold. Any other exception is a bug, too.
    """
    with patch.object(exchange, "PARSED_LIMIT", case.parsed_limit):
        forwarded = await _forwarded(case, case.pieces)
        whole = await _forwarded(case, [b"".join(case.pieces)])
        assert whole == forwarded, "depends on the reads"
        return bool(forwarded)


async def _forwarded(case: Case, pieces: list[bytes]) -> list[Request]:
    """The complete requests that the engine receives for these reads."""
    heads: list[http1_parser.RequestHead] = []

    def parsed(block: bytes, parse: Callable[[bytes], http1_parser.RequestHead]) -> http1_parser.RequestHead:
        heads.append(parse(block))
        return heads[-1]

    with patch.object(http1_parser, "parse_request", partial(parsed, parse=http1_parser.parse_request)):
        return await _exchanged(case, pieces, heads)


async def _exchanged(case: Case, pieces: list[bytes], heads: list[http1_parser.RequestHead]) -> list[Request]:
    """The same; `heads` has the valid heads so far."""
    bench = Bench()
    rng = random.Random(len(pieces))  # noqa: S311 - reproducible
    engines: list[Engine] = []

    async def work(*, eager: bool) -> None:
        """Let the engines read and, unless delayed, respond."""
        busy = True
        while busy:
            await settle()
            engines.extend(Engine(wire) for wire in bench.pool.wires[len(engines) :])
            for engine in engines:
                engine.read()
            busy = False
            if eager or rng.random() >= case.delay:
                for engine in engines:
                    busy = await engine.respond() or busy

    written_at_end: int | None = None
    unread = deque(pieces)
    while unread and not bench.client.is_closing():
        if bench.client.is_reading():
            feed(bench.client, unread.popleft())
            await work(eager=False)
            if bench.client.ended and written_at_end is None:
                written_at_end = bench.written
        else:
            await work(eager=True)
            assert bench.client.is_reading() or bench.client.is_closing(), "reading is paused forever"
    await work(eager=True)
    forwarded = [request for engine in engines for request in engine.requests]
    offered = bench.relay.offered
    _check_responses(bench)
    assert written_at_end in {None, bench.written}, "forwarded after a rejection"
    bench.client.lose()
    await settle()
    assert len(bench.records) == sum(head.method != "OPTIONS" for head in heads), "a request without one end"
    assert len(forwarded) == sum(one._state.request.sent for one in offered), "forwarded and counted"
    _check_same_requests(b"".join(case.pieces), bench, engines)
    return [request for request in forwarded if request.whole]


def _check_responses(bench: Bench) -> None:
    """The client receives one response for each request, and one more for a rejection."""
    methods = [one._head.method for one in bench.relay.offered]
    data = bytes(bench.client.sent)
    for method in [*methods, "POST"]:
        if not data:
            break
        read = read_response(data, method, ended=bench.client.ended == "in order")
        assert read.error is None, read.error
        if not read.whole:
            assert read.status is not None, "no response"
            assert bench.client.ended or read.status == 100, "a response without an end"
            break
        data = read.rest
    else:
        assert not data, "more responses than requests"


def _h11_requests(data: bytes) -> list[Request]:
    """The requests that h11 parses before its first error."""
    parser = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    parser.receive_data(data)
    requests: list[Request] = []
    try:
        while (event := parser.next_event()) is not h11.NEED_DATA:
            if isinstance(event, h11.Request):
                requests.append(Request(event.method.decode(), event.target.decode()))
            elif isinstance(event, h11.Data):
                requests[-1].body += event.data
            elif isinstance(event, h11.EndOfMessage):
                requests[-1].whole = True
                parser.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                parser.send(h11.EndOfMessage())
                parser.start_next_cycle()
            else:
                break
    except (h11.RemoteProtocolError, h11.LocalProtocolError):
        pass
    return requests


def _check_same_requests(data: bytes, bench: Bench, engines: list[Engine]) -> None:
    """The relay and h11 parse the same requests, as far as both accept them."""
    forwarded = iter(request for engine in engines for request in engine.requests)
    for ours, strict in zip(bench.relay.offered, _h11_requests(data), strict=False):
        assert (ours._head.method, ours._head.target) == (strict.method, strict.target), "another request"
        if not ours._state.request.sent:
            continue
        request = next(forwarded)
        assert request.method == strict.method, "another method"
        if request.whole and strict.whole and b'"include_usage":true' not in request.body:
            assert request.body == strict.body, "another body"
