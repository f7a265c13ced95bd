"""An engine that fails as a request header selects, clients that disconnect, and the outcomes that may be logged."""

import asyncio
import contextlib
import io
import itertools
import json
import random
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import cast

import aiohttp

from exporters.vocabulary.signals import Outcome
from tests.support.scripted_relay import DONE, END, ROLE, STREAM_HEAD, Received, chunk, content, read_body
from tests.support.waiting import HANG

GOOD_BODY = b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3}}'


@dataclass
class Line(Received):
    """A request at the engine, with its connection."""

    engine: "Engine"

    async def respond(self, status: int, body: bytes) -> None:
        await self.send(
            b"HTTP/1.1 %d x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (status, len(body)), body
        )

    async def begin(self) -> None:
        await self.send(STREAM_HEAD, chunk(ROLE), chunk(content("a")))

    async def stay(self) -> None:
        """Send no more until the relay closes the connection."""
        await self.gone()
        self.writer.transport.abort()

    async def reset(self) -> None:
        reset(self.writer)


def reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection with a TCP reset."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _unary(line: Line) -> None:
    await line.respond(200, GOOD_BODY)


async def _streams(line: Line) -> None:
    await line.begin()
    for _ in range(3):
        await asyncio.sleep(0.01)
        await line.send(chunk(content("b")))
    await _ends_well(line)


async def _ends_well(line: Line) -> None:
    await line.send(chunk(content("c", "stop")), chunk(DONE), END)


async def _held_back(line: Line) -> None:
    await line.engine.may_end.wait()
    await _streams(line)


async def _held_in_the_stream(line: Line) -> None:
    await line.begin()
    await line.engine.may_end.wait()
    await _ends_well(line)


async def _stalls(line: Line) -> None:
    await line.begin()
    await line.stay()


async def _resets_in_the_stream(line: Line) -> None:
    await line.begin()
    await asyncio.sleep(0.02)
    await line.reset()


async def _closes_in_the_stream(line: Line) -> None:
    await line.begin()
    line.writer.close()


async def _ends_early(line: Line) -> None:
    await line.begin()
    await line.send(END)


async def _short_body(line: Line) -> None:
    await line.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n", GOOD_BODY[:20])
    line.writer.close()


async def _sends_error_event(line: Line) -> None:
    await line.begin()
    await line.send(chunk(b'data: {"error":{"message":"out of memory"}}\n\n'), chunk(DONE), END)


async def _invalid_head(line: Line) -> None:
    await line.send(b"!?\r\n\r\n")
    await line.stay()


async def _invalid_chunk(line: Line) -> None:
    await line.begin()
    await line.send(b"zz\r\n")
    await line.stay()


async def _streams_long(line: Line) -> None:
    await line.begin()
    for _ in range(random.randint(10, 80)):  # noqa: S311 - any length will do
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(line.engine.may_end.wait(), 0.5)
            break
        await line.send(chunk(content("b")))
    await line.engine.long_streams_may_end.wait()
    await _ends_well(line)


async def _floods(line: Line) -> None:
    """Send more than the buffers hold, for a client that does not read."""
    await line.begin()
    line.engine.floods.append(line)
    while not line.engine.may_end.is_set() and not line.engine.floods_may_end.is_set():
        await line.send(chunk(content("b" * 4096)))
    await _ends_well(line)


def _responds(status: int) -> Callable[[Line], Awaitable[None]]:
    async def respond(line: Line) -> None:
        await line.respond(status, b'{"error":{"message":"no"}}')

    return respond


class Disconnect(Enum):
    """When the client disconnects."""

    BEFORE_ANY_BYTE = "before any byte"
    IN_THE_STREAM = "in the stream"


@dataclass(frozen=True, slots=True)
class Fault:
    """The behaviour of the engine and the client for a request, and the outcomes that may be logged."""

    engine: Callable[[Line], Awaitable[None]]
    outcomes: set[str]
    stream: bool = True
    disconnect: Disconnect | None = None

    @property
    def good(self) -> bool:
        return self.outcomes == {Outcome.OK}


LONG, FLOOD = "streams-long", "floods"

EARLY_ANSWER = b"x-fault: early answer"
"""The header of a request that the engine answers before it reads its body."""

FAULTS = {
    "unary": Fault(_unary, {Outcome.OK}, stream=False),
    "streams": Fault(_streams, {Outcome.OK}),
    "disconnects before any byte": Fault(Line.stay, {Outcome.CLIENT_ABORT}, disconnect=Disconnect.BEFORE_ANY_BYTE),
    "disconnects from a unary request": Fault(
        Line.stay, {Outcome.CLIENT_ABORT}, stream=False, disconnect=Disconnect.BEFORE_ANY_BYTE
    ),
    "disconnects in the stream": Fault(_stalls, {Outcome.CLIENT_ABORT}, disconnect=Disconnect.IN_THE_STREAM),
    "resets": Fault(Line.reset, {Outcome.UPSTREAM_ERROR}),
    # A reset discards the bytes that the relay has not read, possibly the head, too.
    "resets in the stream": Fault(_resets_in_the_stream, {Outcome.TRUNCATED, Outcome.UPSTREAM_ERROR}),
    "closes in the stream": Fault(_closes_in_the_stream, {Outcome.TRUNCATED}),
    "ends early": Fault(_ends_early, {Outcome.TRUNCATED}),
    "short body": Fault(_short_body, {Outcome.TRUNCATED}, stream=False),
    "error event": Fault(_sends_error_event, {Outcome.UPSTREAM_ERROR}),
    "invalid head": Fault(_invalid_head, {Outcome.UPSTREAM_ERROR}, stream=False),
    "invalid chunk": Fault(_invalid_chunk, {Outcome.UPSTREAM_ERROR}),
    "429": Fault(_responds(429), {Outcome.REJECTED}, stream=False),
    "503": Fault(_responds(503), {Outcome.REJECTED}),
    "500": Fault(_responds(500), {Outcome.UPSTREAM_ERROR}, stream=False),
    "400": Fault(_responds(400), {Outcome.CLIENT_ERROR}),
}
HELD = {
    "held back": Fault(_held_back, {Outcome.OK}),
    "held in the stream": Fault(_held_in_the_stream, {Outcome.OK}),
    LONG: Fault(_streams_long, {Outcome.OK}),
    FLOOD: Fault(_floods, {Outcome.OK}),
}
"""Requests that are open until `may_end` is set; `LONG` for at most 40 s, unless `long_streams_may_end` is unset."""

UNREACHABLE: set[str] = {Outcome.UPSTREAM_UNREACHABLE, Outcome.UPSTREAM_ERROR}
"""Outcomes while the engine is down; the second one is for an idle connection whose close is not received yet."""


@dataclass
class Engine:
    """Serves on one port, with interruptions; the header X-Fault selects the fault of a request."""

    port: int = 0
    arrived: dict[str, asyncio.Event] = field(default_factory=dict)
    """Set when the request of this id has arrived."""
    request_ids: list[str] = field(default_factory=list)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    long_streams_may_end: asyncio.Event = field(default_factory=asyncio.Event)
    floods_may_end: asyncio.Event = field(default_factory=asyncio.Event)
    floods: list[Line] = field(default_factory=list)
    smuggled: int = 0
    """Requests to a path that the relay refuses: they were bytes of a body."""
    _reads: bool = True
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.long_streams_may_end.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and close all connections."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        while self._writers:
            await asyncio.sleep(0.005)

    def reset_connections(self) -> None:
        """Reset all connections; the engine still listens."""
        for writer in list(self._writers):
            reset(writer)

    def stop_reading(self) -> None:
        """Read no byte of any connection until `resume_reading`."""
        self._reads = False
        for writer in self._writers:
            cast("asyncio.ReadTransport", writer.transport).pause_reading()

    def resume_reading(self) -> None:
        self._reads = True
        for writer in self._writers:
            cast("asyncio.ReadTransport", writer.transport).resume_reading()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        if not self._reads:
            cast("asyncio.ReadTransport", writer.transport).pause_reading()
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while not writer.is_closing():
                    head = await reader.readuntil(b"\r\n\r\n")
                    if EARLY_ANSWER in head:
                        await Line(head, b"", writer, reader, self).respond(413, b'{"error":{"message":"too large"}}')
                        await read_body(head, reader)
                    else:
                        await self._handle(Line(head, await read_body(head, reader), writer, reader, self))
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _handle(self, line: Line) -> None:
        pairs = (row.partition(": ") for row in line.head.decode("latin-1").split("\r\n")[1:])
        headers = {name: value for name, _, value in pairs}
        name = headers.get("x-fault")
        # A scrape by the exporter.
        if name is None:
            self.smuggled += line.head.startswith(b"GET /sleep")
            await line.respond(404, b"{}")
            return
        self.request_ids.append(headers["x-request-id"])
        if headers["x-request-id"] in self.arrived:
            self.arrived[headers["x-request-id"]].set()
        await (FAULTS | HELD)[name].engine(line)


@contextlib.asynccontextmanager
async def serving(port: int = 0) -> AsyncIterator[Engine]:
    engine = Engine(port)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


@dataclass
class Clients:
    """Clients of one sidecar, and the allowed outcomes of their requests."""

    engine: Engine
    session: aiohttp.ClientSession
    url: str
    offered: dict[str, set[str]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    """Requests that failed although only the outcome `ok` is allowed."""
    aborted: list[str] = field(default_factory=list)
    """Requests that failed, also those that may."""
    open: set[str] = field(default_factory=set)
    """Requests that have not ended for their client."""
    excused: set[str] = field(default_factory=set)
    """Outcomes that are allowed for all requests, because the engine is failing."""
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def excuse(self, outcomes: set[str]) -> None:
        """Allow these outcomes for the open requests, and for all further ones until `excused` is empty."""
        self.excused = outcomes
        for request_id in self.open:
            self.offered[request_id] = self.offered[request_id] | outcomes

    def begun(self, name: str, outcomes: set[str]) -> str:
        """The id of a further request."""
        request_id = f"{next(self._numbers)}-{name.replace(' ', '-')}"
        self.offered[request_id] = outcomes | self.excused
        self.open.add(request_id)
        return request_id

    def ended(self, request_id: str, *, good: bool) -> None:
        self.open.discard(request_id)
        if good:
            return
        self.aborted.append(request_id)
        if self.offered[request_id] == {Outcome.OK}:
            self.failed.append(request_id)

    async def offer(self, name: str, outcomes: set[str] | None = None, *, prompt: str = "") -> None:
        """Send one request and wait for its end."""
        fault = (FAULTS | HELD)[name]
        request_id = self.begun(name, outcomes or fault.outcomes)
        arrived = self.engine.arrived[request_id] = asyncio.Event()
        response = asyncio.create_task(self._ask(name, fault, request_id, prompt))
        if fault.disconnect is Disconnect.BEFORE_ANY_BYTE:
            # The relay logs the request only if it has received it. An engine that is down never does.
            arriving = asyncio.create_task(arrived.wait())
            await asyncio.wait({arriving, response}, timeout=HANG, return_when=asyncio.FIRST_COMPLETED)
            arriving.cancel()
            response.cancel()
        good = False
        with contextlib.suppress(asyncio.CancelledError):
            good = await response
        self.ended(request_id, good=good)
        del self.engine.arrived[request_id]

    async def _ask(self, name: str, fault: Fault, request_id: str, prompt: str) -> bool:
        try:
            async with self.session.post(
                f"{self.url}/v1/chat/completions",
                data=io.BytesIO(request_body(stream=fault.stream, prompt=prompt)),
                headers={"x-request-id": request_id, "x-fault": name, "content-type": "application/json"},
            ) as response:
                if fault.disconnect is Disconnect.IN_THE_STREAM:
                    await response.content.readuntil(b"\n\n")
                    response.close()
                    return False
                body = await response.read()
                return response.status == 200 and body.endswith(DONE if fault.stream else GOOD_BODY)
        except aiohttp.ClientError:
            return False

    async def offer_many(self, rng: random.Random, count: int, *, at_once: int = 12) -> None:
        """Send `count` requests with random faults, `at_once` at a time."""
        names = [rng.choice(list(FAULTS)) for _ in range(count)]

        async def work() -> None:
            while names:
                await self.offer(names.pop())

        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(work())


def request_body(*, stream: bool, prompt: str = "") -> bytes:
    messages = [{"role": "user", "content": prompt}] if prompt else []
    return json.dumps({"model": "tiny", "messages": messages, "max_tokens": 9, "stream": stream}).encode()


def log_errors(offered: dict[str, set[str]], logged: list[tuple[str, str]]) -> list[str]:
    """The differences between the offered requests and the request log, given as pairs of request id and outcome."""
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
