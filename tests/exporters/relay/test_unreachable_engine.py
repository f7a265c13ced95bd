"""Engines to which no connection can be opened: each request ends with 502 and the reason, and the first is logged."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from exporters.text.connect_errors import connect_kind
from exporters.vocabulary.signals import Outcome, Verdict
from tests.exporters.configuration.certificates import authority, needs_openssl
from tests.exporters.relay.engines import server_context
from tests.support.scripted_relay import CHAT, UNARY, Stage, error_in, ok, post, staged
from tests.support.unreachable_engines import (
    Behaviour,
    behaving,
    close_after_the_client_hello,
    close_at_once,
    close_in_the_server_hello,
    end_sending,
    say_nothing,
    speak_first,
    stop_in_the_server_hello,
)
from tests.support.waiting import HANG, until

CLOSED = "the connection was closed"


async def refused(stage: Stage) -> str:
    """Send a request; returns the reason in the response, which is the only one, like the record."""
    response = await stage.ask(post(CHAT))
    assert response.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
    error = error_in(response)
    assert error["code"] == "upstream_unreachable"
    record = await stage.record(len(stage.records))
    assert (record.outcome, record.status) == (Outcome.UPSTREAM_UNREACHABLE, 502)
    assert (record.prompt_tokens, record.prompt_estimate, {*record.slo.values()}) == (None, 3.0, {Verdict.BAD})
    prefix = f"vllm-slo: the engine at {stage.relay.pool.origin.authority} cannot be reached: "
    message = str(error["message"])
    assert message.startswith(prefix)
    return message.removeprefix(prefix)


@pytest.mark.parametrize(
    "behaviour, reason",
    [
        pytest.param(close_at_once, f"{CLOSED} in the TLS handshake", id="closes at once"),
        pytest.param(end_sending, f"{CLOSED} in the TLS handshake", id="half-closes"),
        pytest.param(close_after_the_client_hello, f"{CLOSED} in the TLS handshake", id="closes after the ClientHello"),
        pytest.param(close_in_the_server_hello, f"{CLOSED} in the TLS handshake", id="closes in the ServerHello"),
        pytest.param(stop_in_the_server_hello, "connection timed out after 0.1 s", id="stops in the ServerHello"),
        pytest.param(say_nothing, "connection timed out after 0.1 s", id="says nothing"),
        pytest.param(speak_first, "wrong version number", id="sends no TLS"),
    ],
)
async def test_a_handshake_that_fails_is_answered_recorded_and_leaves_no_connection(
    tmp_path: Path, behaviour: Behaviour, reason: str
) -> None:
    timeout = 0.1 if "timed out" in reason else HANG
    async with (
        behaving(behaviour) as (port, connections),
        staged(tmp_path, None, upstream=f"https://127.0.0.1:{port}", connect_timeout=timeout) as stage,
    ):
        # A connection that was reset has either text.
        assert await refused(stage) in {reason, "connection reset by peer" if reason.startswith(CLOSED) else reason}
        await until(lambda: not connections)
        assert not stage.relay.pool._tasks


@pytest.mark.parametrize("behaviour", [close_at_once, end_sending, speak_first])
async def test_an_engine_without_tls_that_does_not_wait_for_a_request_is_an_error_for_each_of_them(
    tmp_path: Path, behaviour: Behaviour
) -> None:
    async with (
        behaving(behaviour) as (port, connections),
        staged(tmp_path, None, upstream=f"http://127.0.0.1:{port}") as stage,
    ):
        for number in range(20):  # the connection is lost before or after the request is sent
            assert (await stage.ask(post(UNARY))).startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
            assert len(stage.records) == number + 1
        await until(lambda: not connections)
        assert not stage.relay.pool._tasks


def opening(stage: Stage, open_connection: Callable[..., Awaitable[object]]) -> None:
    """Let the pool open its connections in this way."""
    loop = asyncio.get_running_loop()
    stage.relay.pool.loop = SimpleNamespace(  # type: ignore[assignment]  # what the pool uses of a loop
        create_connection=open_connection, create_task=loop.create_task
    )


async def test_a_connection_that_is_lost_before_its_request_is_sent_is_no_connection(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()

    async def connect_and_lose(*arguments: object, **options: object) -> object:
        transport, protocol = await loop.create_connection(*arguments, **options)  # type: ignore[call-overload]
        lost = asyncio.Event()
        protocol.connection_lost = lambda _: lost.set()
        transport.abort()
        await lost.wait()
        return transport, protocol

    async with staged(tmp_path, ok) as stage:
        opening(stage, connect_and_lose)
        assert await refused(stage) == f"{CLOSED} at once"


@pytest.mark.parametrize(
    "error, reason",
    [
        pytest.param(UnicodeError("label empty or too long"), "label empty or too long", id="a host name"),
        pytest.param(OSError(113, "Connect call failed"), "no route to host", id="an error of the system"),
        pytest.param(OSError(-2, "Name or service not known"), "name or service not known", id="of the resolver"),
        pytest.param(OSError("Multiple exceptions: [a], [b]"), "multiple exceptions: [a], [b]", id="without a number"),
        pytest.param(TimeoutError(110, "Connection timed out"), "connection timed out", id="a timeout of the system"),
        pytest.param(OSError(), "OSError", id="an error without a text"),
        pytest.param(ConnectionAbortedError(), f"{CLOSED} in the TLS handshake", id="a closed connection"),
        pytest.param(RuntimeError("event loop bug"), "event loop bug", id="any other"),
    ],
)
async def test_any_exception_while_a_connection_is_opened_ends_the_request(
    tmp_path: Path, error: Exception, reason: str
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise error

    async with staged(tmp_path, ok) as stage:
        opening(stage, fail)
        assert await refused(stage) == reason


async def test_failed_connections_are_counted_and_the_first_one_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with staged(tmp_path, None) as stage:
        pool = stage.relay.pool
        for _ in range(3):
            await refused(stage)
        assert caplog.messages == [f"the engine at {pool.origin.authority} cannot be reached: connection refused"]
        counted = pool.failures.pop("refused")
        assert counted >= 3  # also connections that were opened ahead of a request
        assert set(pool.failures.values()) == {0}


@pytest.mark.parametrize(
    "error, kind",
    [
        pytest.param(socket.gaierror(-2, "Name or service not known"), "lookup", id="an unknown name"),
        pytest.param(UnicodeError("label empty or too long"), "lookup", id="a host name that is not one"),
        pytest.param(ConnectionRefusedError(111, "Connect call failed"), "refused", id="a closed port"),
        pytest.param(TimeoutError(110, "Connection timed out"), "timeout", id="a timeout of the system"),
        pytest.param(ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"), "tls", id="no TLS"),
        pytest.param(ConnectionAbortedError(), "tls", id="a closed connection"),
        pytest.param(OSError(113, "No route to host"), "other", id="any other"),
    ],
)
def test_each_error_has_a_kind(error: Exception, kind: str) -> None:
    assert connect_kind(error) == kind


@needs_openssl
async def test_an_engine_whose_certificate_is_not_trusted_is_logged_with_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        behaving(say_nothing, server_context(authority(tmp_path / "authority"))) as (port, _),
        staged(tmp_path, None, upstream=f"https://127.0.0.1:{port}") as stage,
    ):
        reason = "its certificate is not trusted: unable to get local issuer certificate"
        assert await refused(stage) == reason
        assert caplog.messages == [f"the engine at 127.0.0.1:{port} cannot be reached: {reason}"]
