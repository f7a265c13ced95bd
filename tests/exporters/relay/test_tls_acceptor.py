"""Connections of TLS clients that have not finished their handshake."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from tests.exporters.configuration.certificates import Authority, authority, needs_openssl
from tests.exporters.relay.engines import accepting_tls
from tests.support.scripted_relay import Stage, ok, staged
from tests.support.waiting import HANG, until

pytestmark = needs_openssl

HEALTH = b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


async def ask(stage: Stage, trusted: Authority) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", stage.port, ssl=trusted.client())
    writer.write(HEALTH)
    async with asyncio.timeout(HANG):
        response = await reader.read()
    writer.transport.abort()
    return response


@pytest.fixture
def trusted(tmp_path: Path) -> Authority:
    return authority(tmp_path / "trusted")


async def test_a_client_is_served_after_its_handshake(tmp_path: Path, trusted: Authority) -> None:
    async with staged(tmp_path, ok) as stage, accepting_tls(stage, trusted) as acceptor:
        assert (await ask(stage, trusted)).endswith(b"ok")
        assert acceptor.handshaking == 0
        assert (await stage.record()).status == 200


async def test_above_the_limit_a_client_gets_a_503_after_its_handshake(tmp_path: Path, trusted: Authority) -> None:
    async with staged(tmp_path, ok) as stage, accepting_tls(stage, trusted):
        stage.relay.client_limit = 0
        assert (await ask(stage, trusted)).startswith(b"HTTP/1.1 503 ")
        assert stage.relay.rejected_connections == 1


async def test_connections_in_their_handshake_take_no_descriptors_of_the_engine(
    tmp_path: Path, trusted: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporters.relay.tls_acceptor.MAX_REJECTING", 1)
    async with staged(tmp_path, ok) as stage, accepting_tls(stage, trusted) as acceptor:
        stage.relay.client_limit = 2
        silent = [await stage.connect() for _ in range(3)]
        await until(lambda: acceptor.handshaking == 3)
        further = await stage.connect()
        with contextlib.suppress(ConnectionResetError):
            assert await further.rest() == b""
        assert (acceptor.handshaking, stage.relay.rejected_connections) == (3, 1)
        for client in silent:
            client.leave()
        await until(lambda: acceptor.handshaking == 0)
        assert (await ask(stage, trusted)).endswith(b"ok")


async def test_a_handshake_that_fails_or_times_out_takes_no_descriptor(tmp_path: Path, trusted: Authority) -> None:
    async with staged(tmp_path, ok) as stage, accepting_tls(stage, trusted, handshake_timeout=0.1) as acceptor:
        plain, silent = await stage.connect(), await stage.connect()
        await plain.send(HEALTH)
        for client in (plain, silent):
            with contextlib.suppress(ConnectionResetError):
                await client.rest()
        await until(lambda: acceptor.handshaking == 0)
        assert not stage.relay.connections
        acceptor._handshake_timeout = HANG
        assert (await ask(stage, trusted)).endswith(b"ok")


async def test_a_closed_acceptor_accepts_no_connection(tmp_path: Path, trusted: Authority) -> None:
    async with staged(tmp_path, ok) as stage, accepting_tls(stage, trusted) as acceptor:
        acceptor.close()
        with pytest.raises(ConnectionRefusedError):
            await stage.connect()
