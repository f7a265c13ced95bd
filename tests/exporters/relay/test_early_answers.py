"""An engine may respond before it has read the whole request: no byte of another request follows an incomplete one."""

import asyncio
import contextlib
import random
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.exporters.relay.engines import behind
from tests.support.scripted_relay import END, RawClient, chunk, read_body
from tests.support.waiting import HANG

SMUGGLED = b"POST /sleep HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"


@dataclass
class Server:
    """Responds to a third of the requests before it has read their bodies."""

    rng: random.Random
    paths: list[bytes] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.paths.append(head.split(b" ", 2)[1])
                number = re.search(rb"x-number: (\d+)\r\n", head)
                body = b"number %s" % (number[1] if number else b"none")
                answer = b"HTTP/1.1 413 X\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
                early = self.rng.random() < 1 / 3
                if early:
                    writer.write(answer)
                await read_body(head, reader)
                if not early:
                    writer.write(answer)
        writer.close()


async def ask(client: RawClient, number: int, rng: random.Random) -> bool:
    """Send one request and check its response; returns whether the connection can be used again."""
    size = rng.choice((0, 1, 100, 300, 3000))
    body = (SMUGGLED * (size // len(SMUGGLED) + 1))[:size]
    framing = b"content-length: %d" % size
    if rng.random() < 0.5:
        framing, body = b"transfer-encoding: chunked", (chunk(body) if body else b"") + END
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


@pytest.mark.parametrize("requests", [200, pytest.param(10_000, marks=pytest.mark.long)])
async def test_each_response_of_mixed_requests_has_the_number_of_its_request(tmp_path: Path, requests: int) -> None:
    rng = random.Random(1)  # noqa: S311 - reproducible
    server = Server(rng)
    async with behind(tmp_path, server.serve) as stage:

        async def client_of(numbers: range) -> None:
            client = await stage.connect()
            for number in numbers:
                if not await ask(client, number, rng):
                    client.leave()
                    client = await stage.connect()

        await asyncio.gather(*(client_of(range(start, requests, 8)) for start in range(8)))
        assert set(server.paths) == {b"/v1/chat/completions/batch", b"/v1/chat/completions"}
