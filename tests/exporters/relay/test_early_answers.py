"""An engine may respond before it has read the whole request: no byte of another request follows an incomplete one."""

import asyncio
import itertools
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporters.relay import exchange
from tests.fuzz.wire import Bench, Wire, feed, read_response, settle
from tests.support.scripted_relay import RawClient, chunk, staged
from tests.support.waiting import HANG

_NUMBER = re.compile(rb"x-number: (\d)\r\n")
STATUSES = (200, 401, 413, 429)
SIZES = (0, 1, 30, 400)
"""Bytes of a request body; from 200 on it is streamed, as `small_limit` sets the limit."""


@pytest.fixture(autouse=True)
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "PARSED_LIMIT", 200)


def request_pieces(number: int, size: int, framing: str, path: str, *, expect: bool) -> list[bytes]:
    """A request whose body consists of its number."""
    body = b"%d" % number * size
    framed = body
    if framing == "chunked":
        length = b"transfer-encoding: chunked"
        framed = b"".join(chunk(body[at : at + 13]) for at in range(0, size, 13)) + b"0\r\n\r\n"
    else:
        length = b"content-length: %d" % size
    expected = b"expect: 100-continue\r\n" if expect else b""
    head = b"POST %s HTTP/1.1\r\nhost: x\r\nx-number: %d\r\n%s%s\r\n\r\n" % (path.encode(), number, expected, length)
    return [head, framed]


def response(number: int, status: int, *, chunked: bool, interim: bool) -> bytes:
    body = b"number %d" % number
    framing, framed = b"content-length: %d" % len(body), body
    if chunked:
        framing, framed = b"transfer-encoding: chunked", chunk(body) + b"0\r\n\r\n"
    before = b"HTTP/1.1 100 Continue\r\n\r\n" if interim else b""
    return before + b"HTTP/1.1 %d X\r\n%s\r\n\r\n%s" % (status, framing, framed)


def cut_up(data: bytes, places: set[int]) -> list[bytes]:
    edges = [0, *sorted(place % len(data) for place in places), len(data)]
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

    def answer(self, status: int, places: set[int], *, chunked: bool, interim: bool) -> None:
        number = int(_NUMBER.findall(bytes(self.wire.sent))[self.answered])
        self.answered += 1
        self.unsent = cut_up(response(number, status, chunked=chunked, interim=interim), places)


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


places = st.sets(st.integers(0, 500), max_size=4)
kinds = st.tuples(
    st.sampled_from(SIZES),
    st.sampled_from(["sized", "chunked"]),
    st.sampled_from(["/v1/chat/completions/batch", "/v1/chat/completions"]),
    st.booleans(),
    places,
)


@settings(max_examples=300)
@given(st.lists(st.lists(kinds, min_size=1, max_size=2), min_size=1, max_size=3), st.data())
def test_no_byte_of_another_request_follows_an_incomplete_one(
    clients: list[list[tuple[int, str, str, bool, set[int]]]], data: st.DataObject
) -> None:
    asyncio.run(exchanged(clients, data))


async def exchanged(plans: list[list[tuple[int, str, str, bool, set[int]]]], data: st.DataObject) -> None:
    """Let clients and engines send their pieces in any order, over connections that may block."""
    bench, engines, numbers = Bench(), list[Engine](), iter(range(10))
    clients = []
    for plan in plans:
        requests = []
        for size, framing, path, expect, cuts in plan:
            number = next(numbers)
            whole = b"".join(request_pieces(number, size, framing, path, expect=expect))
            requests.append((number, cut_up(whole, cuts)))
        clients.append(Client(bench.connect(), requests))

    async def step(choose: bool) -> bool:
        """One side takes one step; returns whether one could."""
        await settle()
        engines.extend(Engine(wire) for wire in bench.pool.wires[len(engines) :])
        steps: list[tuple[str, Client | Engine]] = [("send", each) for each in clients if each.may_send]
        steps += [("answer", each) for each in engines if each.may_answer]
        steps += [("respond", each) for each in engines if each.unsent and not each.wire.is_closing()]
        if choose:
            steps += [("block", each) for each in engines if not each.wire._blocked]
        steps += [("unblock", each) for each in engines if each.wire._blocked]
        if not steps:
            return False
        kind, side = data.draw(st.sampled_from(steps)) if choose else steps[-1]
        if isinstance(side, Client):
            feed(side.wire, side.pieces.pop(0))
        elif kind == "answer":
            status, chunked, interim = data.draw(st.tuples(st.sampled_from(STATUSES), st.booleans(), st.booleans()))
            side.answer(status, data.draw(places), chunked=chunked, interim=interim)
        elif kind == "respond":
            if side.wire.is_reading():
                feed(side.wire, side.unsent.pop(0))
        else:
            (side.wire.block if kind == "block" else side.wire.unblock)()
        return True

    for _ in range(40):
        if not await step(choose=True):
            break
    while await step(choose=False):
        pass

    for engine in engines:
        messages = list(messages_of(bytes(engine.wire.sent)))
        for number, body, _ in messages:
            assert body == b"%d" % number * len(body), "bytes of another request"
        assert all(whole for *_, whole in messages[:-1])
    for client in clients:
        received = client.numbers()
        assert received == [number for number, _ in client.requests[: len(received)]]
        assert len(received) == len(client.requests) or client.wire.ended, "no response"


async def test_each_of_10_000_responses_has_the_number_of_its_request(tmp_path: Path) -> None:
    """Eight clients send mixed requests; the engine responds to a third of them before it has read their bodies."""
    rng = random.Random(1)  # noqa: S311 - reproducible
    smuggled = b"POST /sleep HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
    paths: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A server that reads what is left of a body after its response."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                paths.append(head.split(b" ", 2)[1])
                number = re.search(rb"x-number: (\d+)\r\n", head)
                answer = b"HTTP/1.1 413 X\r\ncontent-length: %d\r\n\r\n%s"
                body = b"number %s" % (number[1] if number else b"none")
                early = rng.random() < 1 / 3
                if early:
                    writer.write(answer % (len(body), body))
                if declared := re.search(rb"content-length: (\d+)", head):
                    await reader.readexactly(int(declared[1]))
                elif b"chunked" in head:
                    while (size := int(await reader.readuntil(b"\r\n"), 16)) > 0:
                        await reader.readexactly(size + 2)
                    await reader.readexactly(2)
                if not early:
                    writer.write(answer % (len(body), body))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def ask(client: RawClient, number: int) -> bool:
        """Send one request and check its response; returns whether the connection can be used again."""
        size = rng.choice((0, 1, 100, 300, 3000))
        body = (smuggled * (size // len(smuggled) + 1))[:size]
        framing = b"content-length: %d" % size
        if rng.random() < 0.5:
            framing, body = b"transfer-encoding: chunked", (chunk(body) if body else b"") + b"0\r\n\r\n"
        path = rng.choice((b"/v1/chat/completions/batch", b"/v1/chat/completions"))
        head = b"POST %s HTTP/1.1\r\nhost: x\r\nx-number: %d\r\n%s\r\n\r\n" % (path, number, framing)
        cut = rng.randrange(len(body) + 1)
        client.writer.write(head + body[:cut])
        reading = asyncio.ensure_future(client.until(b"\r\n\r\n"))
        # An early response arrives here; the client sends the rest all the same.
        await asyncio.wait([reading], timeout=rng.choice((0, 0.003)))
        client.writer.write(body[cut:])
        answer = await reading
        length = re.search(rb"content-length: (\d+)", answer)
        assert length is not None
        async with asyncio.timeout(HANG):
            assert await client.reader.readexactly(int(length[1])) == b"number %d" % number
        return b"connection: close" not in answer

    engine = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{engine.sockets[0].getsockname()[1]}"
    async with engine, staged(tmp_path, None, upstream=url) as stage:

        async def client_of(numbers: range) -> None:
            client = await stage.connect()
            for number in numbers:
                if not await ask(client, number):
                    client.leave()
                    client = await stage.connect()

        await asyncio.gather(*(client_of(range(start, 10_000, 8)) for start in range(8)))
        assert set(paths) == {b"/v1/chat/completions/batch", b"/v1/chat/completions"}
