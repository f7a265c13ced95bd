"""Responses over TLS that end with the connection: only `close_notify` shows that they are complete (RFC 9112, 9.8)."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from exporters.vocabulary.signals import Outcome
from tests.exporters.configuration.certificates import needs_openssl
from tests.exporters.relay.engines import behind
from tests.support.scripted_relay import CHAT, DONE, END, EVENTS, chunk, post

pytestmark = needs_openssl

HEALTH = "GET /health HTTP/{version}\r\nhost: x\r\nconnection: close\r\n\r\n"
BODY = b"all that was sent"


class Engine:
    """Sends one response over TLS, and ends the connection when it `may_end`."""

    def __init__(self, response: bytes, *, notifies: bool) -> None:
        self._response = response
        self._notifies = notifies
        self.may_end = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(self._response)
            await self.may_end.wait()
        if self._notifies:
            writer.close()
        else:
            writer.transport.abort()  # FIN without close_notify


@pytest.mark.parametrize("notifies", [True, False], ids=["with close_notify", "without close_notify"])
async def test_without_close_notify_a_response_is_truncated_and_has_no_last_chunk(
    tmp_path: Path, *, notifies: bool
) -> None:
    engine = Engine(b"HTTP/1.1 200 OK\r\n\r\n" + BODY, notifies=notifies)
    async with behind(tmp_path, engine.serve, tls=True) as stage:
        client = await stage.client(HEALTH.format(version="1.1").encode())
        await client.until(chunk(BODY))
        engine.may_end.set()
        assert await client.rest() == (END if notifies else b"")
        assert (await stage.record()).outcome is (Outcome.OK if notifies else Outcome.TRUNCATED)


@pytest.mark.parametrize("notifies", [True, False], ids=["with close_notify", "without close_notify"])
async def test_without_close_notify_a_client_of_http_1_0_is_reset(tmp_path: Path, *, notifies: bool) -> None:
    engine = Engine(b"HTTP/1.1 200 OK\r\n\r\n" + BODY, notifies=notifies)
    async with behind(tmp_path, engine.serve, tls=True) as stage:
        client = await stage.client(HEALTH.format(version="1.0").encode())
        await client.until(BODY)
        engine.may_end.set()
        if notifies:
            assert await client.rest() == b""
        else:
            with pytest.raises(ConnectionResetError):
                await client.rest()
        assert (await stage.record()).outcome is (Outcome.OK if notifies else Outcome.TRUNCATED)


async def test_a_stream_that_has_sent_its_own_end_is_ok_without_close_notify(tmp_path: Path) -> None:
    events = b"".join([*EVENTS, DONE])
    engine = Engine(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + events, notifies=False)
    async with behind(tmp_path, engine.serve, tls=True) as stage:
        client = await stage.client(post(CHAT))
        await client.until(DONE)
        engine.may_end.set()
        assert (await stage.record()).outcome is Outcome.OK
