"""A relay in this process between a scripted upstream and a raw client."""

import asyncio
import contextlib
import functools
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from exporters.configuration.sidecar import SidecarConfig
from exporters.records.messages import Finished, Hello, Judged, Record, Refused
from exporters.relay.record_sender import Sender
from exporters.relay.relay import Relay
from exporters.vocabulary import slo_file as slos
from tests.support.exporter_listener import no_exporter
from tests.support.waiting import HANG, until

SLOS = """
version: 1
period: 12h
scrape_interval: 1s
first_token_timeout: 60s
trust_request_start: true
classes:
  - {name: short, max_tokens: "<=100"}
  - {name: long, max_tokens: ">100"}
slos:
  - {name: ttft, classes: [short, long], signal: ttft, threshold: 30s, objective: 95%}
  - {name: availability, classes: [short, long], signal: availability, objective: 99%}
"""

STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\nx-engine: it\r\n\r\n"
)
ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
USAGE = (
    b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,'
    b'"prompt_tokens_details":{"cached_tokens":4}},"metrics":{"queue_time_ms":12.5,'
    b'"time_to_first_token_ms":30.0,"generation_time_ms":60.0}}\n\n'
)
DONE = b"data: [DONE]\n\n"


def content(text: str, finish: str | None = None) -> bytes:
    reason = f'"{finish}"' if finish else "null"
    return f'data: {{"choices":[{{"index":0,"delta":{{"content":"{text}"}},"finish_reason":{reason}}}]}}\n\n'.encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


END = b"0\r\n\r\n"
EVENTS = [ROLE, content("a"), content("b"), content("c", "length")]
"""The events that `whole_stream` sends before USAGE and DONE."""


@dataclass
class Received:
    """A request as the upstream has received it, and its connection."""

    head: bytes
    body: bytes
    writer: asyncio.StreamWriter
    reader: asyncio.StreamReader

    async def send(self, *pieces: bytes) -> None:
        self.writer.write(b"".join(pieces))
        await self.writer.drain()

    async def gone(self) -> None:
        """Wait until the relay has closed the connection."""
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(HANG):
                while await self.reader.read(65536):
                    pass

    async def stalled(self) -> None:
        """Wait until the relay stops reading from this engine."""
        sizes = [0]
        async with asyncio.timeout(HANG):
            while sizes[-1] == 0 or sizes[-1] != sizes[-2]:
                await asyncio.sleep(0.02)  # the relay runs on the same loop and reads in these iterations
                sizes.append(self.writer.transport.get_write_buffer_size())


Script = Callable[[Received], Awaitable[None]]


@dataclass
class Stage:
    """The relay, its records, and its clients."""

    relay: Relay
    port: int
    sender: Sender
    requests: list[Received]
    clients: list["RawClient"] = field(default_factory=list)

    @property
    def records(self) -> list[Finished]:
        return [record for record in self._sent if isinstance(record, Finished)]

    @property
    def judged(self) -> list[Judged]:
        return [record for record in self._sent if isinstance(record, Judged)]

    @property
    def refused(self) -> list[Refused]:
        return [record for record in self._sent if isinstance(record, Refused)]

    @property
    def _sent(self) -> list[Record]:
        return list(self.sender.outbox._records)

    async def record(self, number: int = 1) -> Finished:
        """Wait for the record of the `number`th request."""
        await until(lambda: len(self.records) >= number)
        return self.records[number - 1]

    def move_clock(self, seconds: float) -> None:
        """Make the relay check its timeouts as if `seconds` had passed."""
        for connection in list(self.relay.connections):
            connection.check_timeouts(asyncio.get_running_loop().time() + seconds)

    async def stalled(self) -> None:
        """Wait until the buffers of a client that does not read are full."""
        before: list[int] | None = None
        async with asyncio.timeout(HANG):
            while not (unwritten := self._unwritten()) or unwritten != before:
                before = unwritten
                await asyncio.sleep(0.02)

    def _unwritten(self) -> list[int]:
        stalled = [connection for connection in self.relay.connections if not connection.writable]
        return [connection._transport.get_write_buffer_size() for connection in stalled]

    async def reached(self, number: int = 1) -> Received:
        """Wait for the `number`th request at the upstream."""
        await until(lambda: len(self.requests) >= number)
        return self.requests[number - 1]

    async def connect(self) -> "RawClient":
        client = RawClient(*await asyncio.open_connection("127.0.0.1", self.port))
        self.clients.append(client)
        return client

    async def client(self, request: bytes) -> "RawClient":
        """A client that has sent a request."""
        client = await self.connect()
        await client.send(request)
        return client

    async def ask(self, request: bytes) -> bytes:
        """Send a request and read until the relay closes the connection."""
        return await (await self.client(request)).rest()


@dataclass
class RawClient:
    """A client that sends and reads bytes."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def until(self, mark: bytes) -> bytes:
        async with asyncio.timeout(HANG):
            return await self.reader.readuntil(mark)

    async def some(self) -> bytes:
        async with asyncio.timeout(HANG):
            return await self.reader.read(1 << 20)

    async def rest(self) -> bytes:
        async with asyncio.timeout(HANG):
            return await self.reader.read()

    def leave(self) -> None:
        self.writer.transport.abort()


OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


async def ok(received: Received) -> None:
    """The script of an engine with a short unary response."""
    await received.send(OK)


def sends(*pieces: bytes) -> Script:
    """The script of an engine that responds with these bytes."""
    return lambda received: received.send(*pieces)


def json_response(content: object, status: int = 200) -> bytes:
    body = json.dumps(content).encode()
    return b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
        status,
        len(body),
        body,
    )


def answers(content: object, status: int = 200) -> Script:
    """The script of an engine that responds with this JSON."""
    return sends(json_response(content, status))


def streams(*events: bytes) -> Script:
    """The script of an engine that streams these events, and ends the response in order."""
    return sends(STREAM_HEAD, *map(chunk, events), END)


def holds(*pieces: bytes) -> Script:
    """The script of an engine that sends these bytes, and waits until the relay closes the connection."""

    async def script(received: Received) -> None:
        await received.send(*pieces)
        await received.gone()

    return script


def closes(*pieces: bytes) -> Script:
    """The script of an engine that sends these bytes, and closes the connection."""

    async def script(received: Received) -> None:
        await received.send(*pieces)
        received.writer.close()

    return script


async def whole_stream(received: Received) -> None:
    """The script of an engine that streams EVENTS, USAGE and DONE."""
    await received.send(STREAM_HEAD)
    for event in EVENTS:
        await received.send(chunk(event))
        await asyncio.sleep(0.001)
    await received.send(chunk(USAGE), chunk(DONE), END)


def post(body: bytes, *, path: str = "/v1/chat/completions", headers: str = "", close: bool = True) -> bytes:
    ending = "connection: close\r\n" if close else ""
    head = f"POST {path} HTTP/1.1\r\nhost: test\r\ncontent-length: {len(body)}\r\n{headers}{ending}\r\n"
    return head.encode() + body


CHAT = b'{"model":"m","stream":true,"max_tokens":50,"messages":[{"role":"user","content":"twelve chars"}]}'
CHAT_WITH_USAGE = CHAT[:-1] + b',"stream_options":{"include_usage":true}}'
UNARY = b'{"model":"m","max_tokens":50,"messages":[{"role":"user","content":"twelve chars"}]}'


def body_of(response: bytes) -> bytes:
    """The decoded body of a complete chunked response."""
    _, _, data = response.partition(b"\r\n\r\n")
    out = b""
    while True:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        if length == 0:
            assert data == b"\r\n"
            return out
        out += data[:length]
        assert data[length : length + 2] == b"\r\n"
        data = data[length + 2 :]


def error_in(response: bytes) -> dict[str, object]:
    head, _, body = response.partition(b"\r\n\r\n")
    assert b"content-length: %d" % len(body) in head
    error: dict[str, object] = json.loads(body)["error"]
    return error


async def read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    return head, await read_body(head, reader)


async def read_body(head: bytes, reader: asyncio.StreamReader) -> bytes:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return await reader.readexactly(int(line.split(b":")[1]))
    body = b""
    if b"transfer-encoding: chunked" in head.lower():
        while (size := int((await reader.readuntil(b"\r\n")).strip(), 16)) > 0:
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
    return body


_slos = functools.cache(slos.loads)


@contextlib.asynccontextmanager
async def staged(
    tmp_path: Path,
    script: Script | None,
    *,
    slo_file: str = SLOS,
    head_limit: int = 2**16,
    warm_up: int = 0,
    **settings: object,
) -> AsyncIterator[Stage]:
    """A relay in front of an upstream that runs `script` for each request; without one, the upstream is down.

    The upstream reads heads of up to `head_limit` bytes. The relay hashes a prompt of `warm_up` bytes at its start.
    """
    loop = asyncio.get_running_loop()
    requests: list[Received] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head, body = await read_request(reader)
                received = Received(head, body, writer, reader)
                requests.append(received)
                assert script is not None
                await script(received)
                if writer.is_closing():
                    return
        writer.close()

    upstream = await asyncio.start_server(serve, "127.0.0.1", 0, limit=head_limit)
    upstream_port = upstream.sockets[0].getsockname()[1]
    if script is None:
        upstream.close()
    slos_path = tmp_path / "slos.yaml"
    slos_path.write_text(slo_file)
    settings = {"upstream": f"http://127.0.0.1:{upstream_port}", **settings}
    config = SidecarConfig(
        slos=str(slos_path),
        listen="",
        metrics="",
        **settings,  # type: ignore[arg-type]  # each test names fields of the config
    )
    sender = Sender(no_exporter, Hello("relay-0", "life"), loop)
    numbers = itertools.count(1)
    relay = Relay(config, _slos(slo_file), sender, loop, salt=b"salt", new_request_id=lambda: f"relay-{next(numbers)}")
    server = await loop.create_server(relay.client, "127.0.0.1", 0)
    hashing = relay.hashing
    with patch("exporters.relay.relay.WARM_UP_BYTES", warm_up):
        relay.start()
    stage = Stage(relay, server.sockets[0].getsockname()[1], sender, requests)
    try:
        yield stage
    finally:
        for client in stage.clients:
            client.leave()
        server.close()
        relay.close()  # ends the open requests, which the connections forget when they are aborted
        for connection in list(relay.connections):
            connection.abort()
        upstream.close()
        for received in requests:
            received.writer.transport.abort()
        hashing.shutdown()  # its thread calls back into the loop
        for _ in range(10):  # the transports close in the next iterations of the loop
            await asyncio.sleep(0)
