"""Listeners that are bound, refused, shared, waited for and bound again, also without balancing of connections."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from exporters.configuration.otlp_endpoints import receiver
from exporters.sidecar.supervision import listeners
from exporters.sidecar.supervision.listeners import listen, listen_when_free
from exporters.sidecar.tracing.collector_flags import check_receivers
from exporters.text.errors import UsageError
from tests.support.ports import free_port


@pytest.fixture
def sockets() -> Iterator[ExitStack]:
    """Closes the sockets that are entered into it."""
    with ExitStack() as stack:
        yield stack


def test_without_balancing_all_relays_accept_from_one_queue(
    monkeypatch: pytest.MonkeyPatch, sockets: ExitStack
) -> None:
    monkeypatch.setattr(listeners, "_BALANCES_LISTENERS", False)
    address = f"127.0.0.1:{free_port()}"
    ours = [*map(sockets.enter_context, listen(address, "--listen", 3))]
    assert len({each.fileno() for each in ours}) == 3
    with pytest.raises(UsageError, match="address already in use"):
        listen(address, "--listen", 3)
    for each in ours:
        sockets.enter_context(socket.create_connection(ours[0].getsockname()))
        each.accept()[0].close()


def test_without_balancing_a_relay_that_starts_again_accepts_from_the_same_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listeners, "_BALANCES_LISTENERS", False)
    address = f"127.0.0.1:{free_port()}"
    first, second = listen(address, "--listen", 2)
    second.close()
    with first, listeners.bind_again(address, [first], shared=True) as again:
        client = socket.create_connection(first.getsockname())
        again.accept()[0].close()
        client.close()


@pytest.mark.parametrize("count", [1, 2])
def test_a_port_that_is_bound_again_gets_no_connections_before_its_relay_listens(
    count: int, sockets: ExitStack
) -> None:
    address = f"127.0.0.1:{free_port()}"
    closed, *others = map(sockets.enter_context, listen(address, "--listen", count))
    name = closed.getsockname()
    closed.close()
    again = sockets.enter_context(listeners.bind_again(address, others, shared=count > 1))
    if others:
        for _ in range(50):
            sockets.enter_context(socket.create_connection(name))
            others[0].accept()[0].close()
    else:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(name)
    again.listen()
    while not _accepts(again):
        sockets.enter_context(socket.create_connection(name))


def _accepts(listener: socket.socket) -> bool:
    listener.setblocking(False)
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def test_a_port_that_another_program_uses_is_not_bound_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(OSError, match="Address already in use"):
            listeners.bind_again(f"127.0.0.1:{port}", [], shared=True)


@pytest.mark.parametrize("first, second", [(2, 2), (2, 1), (1, 2)])
def test_a_second_sidecar_on_the_port_is_refused(first: int, second: int, sockets: ExitStack) -> None:
    text = f"127.0.0.1:{free_port()}"
    for each in listen(text, "--listen", first):
        sockets.enter_context(each)
    for address in (text, text.replace("127.0.0.1", "")):
        with pytest.raises(UsageError) as refused:
            listen(address, "--listen", second)
        assert str(refused.value) == f"--listen: cannot listen on {address}: address already in use"


def test_connections_come_to_every_listener_of_a_shared_port(sockets: ExitStack) -> None:
    ours = [*map(sockets.enter_context, listen(f"127.0.0.1:{free_port()}", "--listen", 3))]
    for _ in range(100):
        sockets.enter_context(socket.create_connection(ours[0].getsockname()))
    for each in ours:
        each.setblocking(False)
        each.accept()[0].close()


def test_a_port_is_taken_over_as_soon_as_it_is_free(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    address = f"127.0.0.1:{free_port()}"
    others = listen(address, "--metrics")
    pauses = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            others[0].close()

    monkeypatch.setattr(time, "sleep", pause)
    for each in listen_when_free(address, "--metrics", 2):
        each.close()
    assert len(pauses) == 3
    (message,) = caplog.messages
    assert message == (
        f"--metrics: cannot listen on {address}: address already in use; retrying for 3 s, because a sidecar may just "
        "have been killed"
    )


def test_the_port_of_engine_spans_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"127.0.0.1:{free_port()}"
    (other,) = listen(address, "--engine-spans")
    monkeypatch.setattr(time, "sleep", lambda _: other.close())
    check_receivers([receiver(f"http://{address}")])


@pytest.mark.parametrize(
    "address, reason, pauses",
    [
        ("127.0.0.1:{port}", "address already in use", True),
        ("192.0.2.1:{port}", "cannot assign requested address", False),
    ],
)
def test_an_address_that_remains_in_use_or_cannot_be_used_is_refused(
    monkeypatch: pytest.MonkeyPatch, address: str, reason: str, *, pauses: bool
) -> None:
    paused: list[float] = []
    monkeypatch.setattr(listeners, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(listeners, "TAKEOVER_SECONDS", 0.01)
    monkeypatch.setattr(time, "sleep", paused.append)
    with socket.create_server(("127.0.0.1", 0)) as other:
        text = address.format(port=other.getsockname()[1])
        with pytest.raises(UsageError) as refused:
            listen_when_free(text, "--listen")
    assert str(refused.value) == f"--listen: cannot listen on {text}: {reason}"
    assert bool(paused) == pauses
