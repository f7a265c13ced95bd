"""Listeners on a system that does not spread connections over the listeners of one port."""

import socket

import pytest

from exporters.errors import UsageError
from exporters.sidecar.supervision import listeners
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
