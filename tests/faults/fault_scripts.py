"""An engine that fails as each request asks it to, clients that leave, and the outcomes that may be logged for each."""

import asyncio
import contextlib
import random
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum

import aiohttp

from exporters.signals import Outcome
from tests.support.scripted_relay import DONE, END, ROLE, STREAM_HEAD, chunk, content

GOOD_BODY = b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3}}'


@dataclass
class Line:
    """The engine's end of the connection that a request came in on."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    may_end: asyncio.Event

    async def send(self, *pieces: bytes) -> None:
        self.writer.write(b"".join(pieces))
        await self.writer.drain()

    async def answer(self, status: int, body: bytes) -> None:
        await self.send(
            b"HTTP/1.1 %d x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (status, len(body)), body
        )

    async def begin(self) -> None:
        await self.send(STREAM_HEAD, chunk(ROLE), chunk(content("a")))

    async def stay(self) -> None:
        """Say nothing more until the relay hangs up."""
        while await self.reader.read(65536):
            pass
        self.writer.transport.abort()

    def reset(self) -> None:
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


async def _answers(line: Line) -> None:
    await line.answer(200, GOOD_BODY)


async def _streams(line: Line) -> None:
    await line.begin()
    for _ in range(3):
        await asyncio.sleep(0.01)
        await line.send(chunk(content("b")))
    await _ends_well(line)


async def _ends_well(line: Line) -> None:
    await line.send(chunk(content("c", "stop")), chunk(DONE), END)


async def _held_back(line: Line) -> None:
    await line.may_end.wait()
    await _streams(line)


async def _held_in_the_stream(line: Line) -> None:
    await line.begin()
    await line.may_end.wait()
    await _ends_well(line)


async def _stalls(line: Line) -> None:
    await line.begin()
    await line.stay()


async def _resets(line: Line) -> None:
    line.reset()


async def _resets_in_the_stream(line: Line) -> None:
    await line.begin()
    await asyncio.sleep(0.02)
    line.reset()


async def _closes_in_the_stream(line: Line) -> None:
    await line.begin()
    line.writer.close()


async def _ends_early(line: Line) -> None:
    await line.begin()
    await line.send(END)


async def _falls_short(line: Line) -> None:
    await line.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n", GOOD_BODY[:20])
    line.writer.close()


async def _sends_error_event(line: Line) -> None:
    await line.begin()
    await line.send(chunk(b'data: {"error":{"message":"out of memory"}}\n\n'), chunk(DONE), END)


async def _babbles(line: Line) -> None:
    await line.send(b"!?\r\n\r\n")
    await line.stay()


async def _babbles_in_the_stream(line: Line) -> None:
    await line.begin()
    await line.send(b"zz\r\n")
    await line.stay()


async def _streams_long(line: Line) -> None:
    await line.begin()
    for _ in range(random.randint(10, 80)):  # noqa: S311 - any length will do
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(line.may_end.wait(), 0.5)
            break
        await line.send(chunk(content("b")))
    await _ends_well(line)


def _responds(status: int) -> Callable[[Line], Awaitable[None]]:
    async def answer(line: Line) -> None:
        await line.answer(status, b'{"error":{"message":"no"}}')

    return answer


class Leaves(Enum):
    """When the client hangs up."""

    BEFORE_ANY_BYTE = "before any byte"
    IN_THE_STREAM = "in the stream"


@dataclass(frozen=True, slots=True)
class Fault:
    """The engine's and the client's part in a request, and the outcomes that may be logged of it."""

    engine: Callable[[Line], Awaitable[None]]
    outcomes: frozenset[str]
    stream: bool = True
    leaves: Leaves | None = None

    @property
    def good(self) -> bool:
        return self.outcomes == {Outcome.OK}


def _fault(
    engine: Callable[[Line], Awaitable[None]], *outcomes: Outcome, stream: bool = True, leaves: Leaves | None = None
) -> Fault:
    return Fault(engine, frozenset(outcomes), stream, leaves)


FAULTS = {
    "answers": _fault(_answers, Outcome.OK, stream=False),
    "streams": _fault(_streams, Outcome.OK),
    "left before any byte": _fault(Line.stay, Outcome.CLIENT_ABORT, leaves=Leaves.BEFORE_ANY_BYTE),
    "left while unary": _fault(Line.stay, Outcome.CLIENT_ABORT, stream=False, leaves=Leaves.BEFORE_ANY_BYTE),
    "left in the stream": _fault(_stalls, Outcome.CLIENT_ABORT, leaves=Leaves.IN_THE_STREAM),
    "resets": _fault(_resets, Outcome.UPSTREAM_ERROR),
    # A reset takes along what the relay has not read: the head, at worst.
    "resets in the stream": _fault(_resets_in_the_stream, Outcome.TRUNCATED, Outcome.UPSTREAM_ERROR),
    "closes in the stream": _fault(_closes_in_the_stream, Outcome.TRUNCATED),
    "ends early": _fault(_ends_early, Outcome.TRUNCATED),
    "falls short": _fault(_falls_short, Outcome.TRUNCATED, stream=False),
    "says error": _fault(_sends_error_event, Outcome.UPSTREAM_ERROR),
    "babbles": _fault(_babbles, Outcome.UPSTREAM_ERROR, stream=False),
    "babbles in the stream": _fault(_babbles_in_the_stream, Outcome.UPSTREAM_ERROR),
    "429": _fault(_responds(429), Outcome.REJECTED, stream=False),
    "503": _fault(_responds(503), Outcome.REJECTED),
    "500": _fault(_responds(500), Outcome.UPSTREAM_ERROR, stream=False),
    "400": _fault(_responds(400), Outcome.CLIENT_ERROR),
}
HELD = {
    "held back": _fault(_held_back, Outcome.OK),
    "held in the stream": _fault(_held_in_the_stream, Outcome.OK),
    "streams long": _fault(_streams_long, Outcome.OK),
}
"""Open until the engine may end them; the last one for at most 40 s."""

UNREACHABLE = frozenset({Outcome.UPSTREAM_UNREACHABLE, Outcome.UPSTREAM_ERROR})
"""With the engine gone; an error on an idle connection whose close the relay has not seen yet."""


@dataclass
class Engine:
    """Serves on one port, with interruptions; a header names the fault of each request."""

    port: int = 0
    arrived: dict[str, asyncio.Event] = field(default_factory=dict)
    """Set when the request of this id has arrived."""
    request_ids: list[str] = field(default_factory=list)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def come(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def go(self) -> None:
        """Stop listening and hang up on everybody."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        while self._writers:
            await asyncio.sleep(0.005)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while not writer.is_closing():
                    await self._request(Line(reader, writer, self.may_end))
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _request(self, line: Line) -> None:
        head = await line.reader.readuntil(b"\r\n\r\n")
        pairs = (row.partition(": ") for row in head.decode("latin-1").split("\r\n")[1:])
        headers = {name: value for name, _, value in pairs}
        await line.reader.readexactly(int(headers.get("content-length", "0")))
        name = headers.get("x-fault")
        if name is None:  # the exporter's scraper
            await line.answer(404, b"{}")
            return
        self.request_ids.append(headers["x-request-id"])
        if headers["x-request-id"] in self.arrived:
            self.arrived[headers["x-request-id"]].set()
        await (FAULTS | HELD)[name].engine(line)


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[Engine]:
    engine = Engine()
    await engine.come()
    try:
        yield engine
    finally:
        await engine.go()


@dataclass
class Crowd:
    """Clients of one relay, and the outcomes that each of their requests may have."""

    engine: Engine
    session: aiohttp.ClientSession
    url: str
    offered: dict[str, frozenset[str]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    """Requests that failed although nothing was to go wrong with them."""

    async def offer(self, name: str, outcomes: frozenset[str] | None = None) -> None:
        """One request, from its first byte to its end."""
        fault = (FAULTS | HELD)[name]
        request_id = f"{len(self.offered)} {name}"
        self.offered[request_id] = outcomes or fault.outcomes
        arrived = self.engine.arrived[request_id] = asyncio.Event()
        response = asyncio.create_task(self._ask(name, fault, request_id))
        if fault.leaves is Leaves.BEFORE_ANY_BYTE:
            async with asyncio.timeout(120):
                await arrived.wait()  # until then it might not have reached the relay, which then could not log it
            response.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            good = await response
            if fault.good and not good and outcomes is None:
                self.failed.append(request_id)
        del self.engine.arrived[request_id]

    async def _ask(self, name: str, fault: Fault, request_id: str) -> bool:
        try:
            async with self.session.post(
                f"{self.url}/v1/chat/completions",
                json={"model": "tiny", "messages": [], "max_tokens": 9, "stream": fault.stream},
                headers={"x-request-id": request_id, "x-fault": name},
            ) as response:
                if fault.leaves is Leaves.IN_THE_STREAM:
                    await response.content.readuntil(b"\n\n")
                    response.close()
                    return False
                body = await response.read()
                return response.status == 200 and body.endswith(DONE if fault.stream else GOOD_BODY)
        except aiohttp.ClientError:
            return False

    async def press(self, rng: random.Random, count: int, *, at_once: int = 12) -> None:
        """Offer `count` requests with any fault at all, `at_once` at a time."""
        names = [rng.choice(list(FAULTS)) for _ in range(count)]

        async def work() -> None:
            while names:
                await self.offer(names.pop())

        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(work())


def log_errors(offered: dict[str, frozenset[str]], logged: list[tuple[str, str]]) -> list[str]:
    """The differences between the request log, as pairs of request id and outcome, and what was offered."""
    times = Counter(request_id for request_id, _ in logged)
    return [
        *(f"{request_id}: {times[request_id]} lines" for request_id in offered if times[request_id] != 1),
        *(f"{request_id}: never offered" for request_id in times if request_id not in offered),
        *(
            f"{request_id}: {outcome}, not {'/'.join(sorted(offered[request_id]))}"
            for request_id, outcome in logged
            if request_id in offered and outcome not in offered[request_id]
        ),
    ]
