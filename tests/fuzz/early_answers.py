"""Engines that respond before they have read the whole request: no connection mixes two requests."""

import itertools
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from unittest.mock import patch

import h11

from exporters.relay.connections import exchange
from tests.fuzz.wire import Bench, Wire, feed, read_response, settle
from tests.support.scripted_relay import chunk

_NUMBER = re.compile(rb"x-number: (\d)\r\n")
STATUSES = (200, 401, 413, 429)
SIZES = (0, 1, 30, 400)
"""Bytes of a request body; those above `PARSED_LIMIT` are streamed."""
PARSED_LIMIT = 200


def request(number: int, rng: random.Random) -> bytes:
    """A request whose body consists of its number."""
    size, path = rng.choice(SIZES), rng.choice((b"/v1/chat/completions/batch", b"/v1/chat/completions"))
    body = b"%d" % number * size
    framing = b"content-length: %d" % size
    if rng.random() < 0.5:
        framing = b"transfer-encoding: chunked"
        body = b"".join(chunk(body[at : at + 13]) for at in range(0, size, 13)) + b"0\r\n\r\n"
    expected = b"expect: 100-continue\r\n" if rng.random() < 0.3 else b""
    return b"POST %s HTTP/1.1\r\nhost: x\r\nx-number: %d\r\n%s%s\r\n\r\n%s" % (path, number, expected, framing, body)


def response(number: int, status: int, *, chunked: bool, interim: bool) -> bytes:
    body = b"number %d" % number
    framing, framed = b"content-length: %d" % len(body), body
    if chunked:
        framing, framed = b"transfer-encoding: chunked", chunk(body) + b"0\r\n\r\n"
    before = b"HTTP/1.1 100 Continue\r\n\r\n" if interim else b""
    return before + b"HTTP/1.1 %d X\r\n%s\r\n\r\n%s" % (status, framing, framed)


def cut_up(data: bytes, rng: random.Random) -> list[bytes]:
    edges = [0, *sorted(rng.randrange(len(data)) for _ in range(rng.randrange(5))), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges) if start < end]


def messages_of(sent: bytes) -> Iterator[tuple[int, bytes, bool]]:
    """Number, body and completeness of each request that a server reads from a connection.

    Raises:
        h11.RemoteProtocolError: the bytes are not requests.
    """
    rest = sent
    while rest:
        parser = h11.Connection(h11.SERVER)
        parser.receive_data(rest)
        number, body, whole = -1, bytearray(), False
        while (event := parser.next_event()) is not h11.NEED_DATA:
            if isinstance(event, h11.Request):
                number = int(dict(event.headers.raw_items())[b"x-number"])
            elif isinstance(event, h11.Data):
                body += event.data
            else:
                whole = True
                break
        yield number, bytes(body), whole
        rest = parser.trailing_data[0] if whole else b""


@dataclass
class Engine:
    """Responds on a wire to each request, as soon as its head has arrived."""

    wire: Wire
    answered: int = 0
    unsent: list[bytes] = field(default_factory=list)

    @property
    def may_answer(self) -> bool:
        return not self.unsent and len(_NUMBER.findall(bytes(self.wire.sent))) > self.answered

    @property
    def may_respond(self) -> bool:
        return bool(self.unsent) and self.wire.is_reading()

    def respond(self) -> None:
        feed(self.wire, self.unsent.pop(0))

    def answer(self, rng: random.Random) -> None:
        number = int(_NUMBER.findall(bytes(self.wire.sent))[self.answered])
        self.answered += 1
        chunked, interim = rng.random() < 0.5, rng.random() < 0.5
        self.unsent = cut_up(response(number, rng.choice(STATUSES), chunked=chunked, interim=interim), rng)


@dataclass
class Client:
    """Sends its requests one after the other, the next one when it has the response to the last."""

    wire: Wire
    requests: list[tuple[int, list[bytes]]]
    begun: int = 0
    read: int = 0

    @property
    def may_send(self) -> bool:
        return self.wire.is_reading() and self.wire.ended is None and bool(self.pieces)

    def send(self) -> None:
        feed(self.wire, self.pieces.pop(0))

    @property
    def pieces(self) -> list[bytes]:
        """The pieces of the current request that are not sent."""
        while self.begun < len(self.requests) and not self.requests[self.begun][1]:
            if not self._answered():
                return []
            self.begun += 1
        return self.requests[self.begun][1] if self.begun < len(self.requests) else []

    def _answered(self) -> bool:
        return len(self.numbers()) > self.begun

    def numbers(self) -> list[int]:
        """The numbers in the complete responses."""
        data, found = bytes(self.wire.sent), []
        while data:
            read = read_response(data, "POST", ended=self.wire.ended == "in order")
            if not read.whole:
                break
            assert read.body.startswith(b"number "), read.body
            found.append(int(read.body[7:]))
            data = read.rest
        return found


def case(rng: random.Random) -> int:
    return rng.randrange(1 << 64)


async def check(seed: int) -> bool:
    """Let clients and engines send their pieces in any order, over connections that may block.

    Returns True, because all messages are valid.

    Raises:
        AssertionError: a byte of another request follows an incomplete one, or a client has another's response. Any
            other exception is a bug, too.
    """
    with patch.object(exchange, "PARSED_LIMIT", PARSED_LIMIT):
        clients, engines = await _exchanged(random.Random(seed))  # noqa: S311 - reproducible
    for engine in engines:
        messages = list(messages_of(bytes(engine.wire.sent)))
        for number, body, _ in messages:
            assert body == b"%d" % number * len(body), "bytes of another request"
        assert all(whole for *_, whole in messages[:-1]), "a request after an incomplete one"
    for client in clients:
        received = client.numbers()
        assert received == [number for number, _ in client.requests[: len(received)]], "the response to another request"
        assert len(received) == len(client.requests) or client.wire.ended, "no response"
    return True


async def _exchanged(rng: random.Random) -> tuple[list[Client], list[Engine]]:
    bench, engines, numbers = Bench(), list[Engine](), iter(range(10))
    clients = [
        Client(bench.connect(), [(number := next(numbers), cut_up(request(number, rng), rng)) for _ in range(count)])
        for count in [rng.randrange(1, 3) for _ in range(rng.randrange(1, 4))]
    ]

    async def step(*, last: bool) -> bool:
        """One side takes one step; returns whether one could. `last` unblocks the connections."""
        await settle()
        engines.extend(Engine(wire) for wire in bench.pool.wires[len(engines) :])
        steps: list[Callable[[], None]] = [each.send for each in clients if each.may_send]
        for engine in engines:
            if engine.may_answer:
                steps.append(partial(engine.answer, rng))
            if engine.may_respond:
                steps.append(engine.respond)
            if engine.wire.blocked:
                steps.append(engine.wire.unblock)
            elif not last:
                steps.append(engine.wire.block)
        if steps:
            (steps[-1] if last else rng.choice(steps))()
        return bool(steps)

    for _ in range(40):
        await step(last=False)
    while await step(last=True):
        pass
    return clients, engines
