"""Listeners on a system that does not spread connections over them, and listeners that are bound again."""

import socket

import pytest

from exporters.sidecar.supervision import listeners
from exporters.text.errors import UsageError
from tests.support.ports import free_port


def test_without_balancing_all_relays_accept_from_one_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "_BALANCES_LISTENERS", False)
    address = f"127.0.0.1:{free_port()}"
    ours = listeners.listen(address, "--listen", 3)
    clients: list[socket.socket] = []
    try:
        assert len({each.fileno() for each in ours}) == 3
        with pytest.raises(UsageError, match="address already in use"):
            listeners.listen(address, "--listen", 3)
        for each in ours:
            clients.append(socket.create_connection(ours[0].getsockname()))
            each.accept()[0].close()
    finally:
        for each in (*ours, *clients):
            each.close()


def test_without_balancing_a_relay_that_starts_again_accepts_from_the_same_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listeners, "_BALANCES_LISTENERS", False)
    address = f"127.0.0.1:{free_port()}"
    first, second = listeners.listen(address, "--listen", 2)
    second.close()
    with first, listeners.bind_again(address, [first], shared=True) as again:
        client = socket.create_connection(first.getsockname())
        again.accept()[0].close()
        client.close()


@pytest.mark.parametrize("count", [1, 2])
def test_a_port_that_is_bound_again_gets_no_connections_before_its_relay_listens(count: int) -> None:
    address = f"127.0.0.1:{free_port()}"
    closed, *others = listeners.listen(address, "--listen", count)
    name = closed.getsockname()
    closed.close()
    again = listeners.bind_again(address, others, shared=count > 1)
    clients: list[socket.socket] = []
    try:
        if others:
            clients.extend(socket.create_connection(name) for _ in range(50))
            for _ in clients:
                others[0].accept()[0].close()
        else:
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(name)
        again.listen()
        while not _accepts(again):
            clients.append(socket.create_connection(name))
    finally:
        for each in (again, *others, *clients):
            each.close()


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
