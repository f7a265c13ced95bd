"""The limit of client connections."""

import contextlib
import resource
import sys
import time
from pathlib import Path

import pytest

from exporters.relay.connections import client as client_connection
from exporters.relay.connections.client_limit import client_limit
from exporters.vocabulary.signals import Outcome
from tests.support.scripted_relay import CHAT, UNARY, Stage, error_in, ok, post, staged
from tests.support.waiting import until

HEALTH = b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


@pytest.mark.parametrize(
    "descriptors, clients",
    [
        pytest.param(10, 1, id="too few for the relay itself"),
        pytest.param(256, 80, id="macOS"),
        pytest.param(1024, 464, id="most Linux distributions"),
        pytest.param(1_048_576, 524_240, id="what the supervisor sets"),
        pytest.param(resource.RLIM_INFINITY, sys.maxsize, id="no limit"),
    ],
)
def test_each_client_may_need_a_connection_to_the_engine(descriptors: int, clients: int) -> None:
    assert client_limit(descriptors) == clients


async def fill(stage: Stage) -> None:
    """Connect the only client that the relay may have."""
    stage.relay.client_limit = 1
    await stage.connect()
    await until(lambda: len(stage.relay.connections) == 1)


@pytest.mark.parametrize(
    "request_bytes, logged",
    [
        pytest.param(post(CHAT, close=False), "/v1/chat/completions", id="a stream"),
        pytest.param(post(UNARY), "/v1/chat/completions", id="a unary request"),
        pytest.param(
            post(UNARY, path="/v1/chat/completions/batch"),
            "/v1/chat/completions/batch",
            id="on a path that is not parsed",
        ),
        pytest.param(HEALTH, "/health", id="without a body"),
        pytest.param(HEALTH.replace(b"/health", b"/sleep"), "/sleep", id="on a path that is not allowed"),
    ],
)
async def test_above_the_limit_a_request_is_rejected_recorded_and_not_forwarded(
    tmp_path: Path, request_bytes: bytes, logged: str
) -> None:
    async with staged(tmp_path, ok) as stage:
        await fill(stage)
        response = await stage.ask(request_bytes)
        assert response.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert b"connection: close\r\n" in response
        assert error_in(response) == {
            "message": "vllm-slo: the limit of 1 client connections is reached",
            "type": "overloaded_error",
            "param": None,
            "code": "too_many_connections",
        }
        record = await stage.record()
        assert (record.outcome, record.status, record.route) == (Outcome.REJECTED, 503, logged)
        assert record.unparsed is None
        assert stage.requests == []
        assert stage.relay.rejected_connections == 1


async def test_a_client_is_served_again_as_soon_as_another_has_left(tmp_path: Path) -> None:
    async with staged(tmp_path, ok) as stage:
        await fill(stage)
        stage.clients[0].leave()
        await until(lambda: not stage.relay.connections)
        assert (await stage.ask(HEALTH)).endswith(b"ok")


async def test_a_client_above_the_limit_that_sends_nothing_is_disconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_connection, "LINGER_SECONDS", 0.01)
    async with staged(tmp_path, ok) as stage:
        await fill(stage)
        silent = await stage.connect()
        assert await silent.rest() == b""
        await until(lambda: not stage.relay.rejecting)
        assert stage.relay.rejected_connections == 1
        assert stage.records == []


async def test_rejected_clients_have_a_limit_too_and_all_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_connection, "MAX_REJECTING", 1)
    async with staged(tmp_path, ok) as stage:
        await fill(stage)
        rejected = await stage.connect()
        await until(lambda: len(stage.relay.rejecting) == 1)
        further = await stage.connect()
        with contextlib.suppress(ConnectionResetError):
            assert await further.rest() == b""
        await rejected.send(HEALTH)
        assert (await rejected.rest()).startswith(b"HTTP/1.1 503 ")
        assert stage.relay.rejected_connections == 2


async def test_no_connection_to_the_engine_is_opened_ahead_for_a_rejected_client(tmp_path: Path) -> None:
    async with staged(tmp_path, ok) as stage:
        stage.relay.client_limit = 0
        for _ in range(3):
            assert (await stage.ask(HEALTH)).startswith(b"HTTP/1.1 503 ")
        assert (stage.relay.pool.opening, stage.relay.pool.acquire(time.monotonic())) == (0, None)
