"""Connections of the relays to the exporter, over a pair of sockets that all of them inherit.

A relay creates both ends of a connection and sends one of them to the exporter. Other programs cannot use this way, as
they could an address, and cannot delete it, as they could the file of a socket. Both sockets of the pair stay open in
the supervisor: connections wait there while no exporter runs.
"""

import asyncio
import socket
from collections.abc import Callable

ACCEPT_PAUSE_SECONDS = 1.0
"""Pause after a connection that could not be received because no descriptor was free; its relay connects again."""


def connect(exporter: socket.socket) -> socket.socket:
    """A connection to the exporter, which may still have to accept it.

    Raises:
        OSError: too many connections wait for the exporter, or no descriptor is free.
    """
    exporter.setblocking(False)
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            socket.send_fds(exporter, [b"\0"], [theirs.fileno()])
        except OSError:
            ours.close()
            raise
    return ours


class RelayListener:
    """Accepts the connections of relays."""

    def __init__(
        self, relays: socket.socket, connection: Callable[[], asyncio.Protocol], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._relays = relays
        self._connection = connection
        self._loop = loop
        self._accepting: set[asyncio.Task[object]] = set()
        relays.setblocking(False)
        self._listen()

    def close(self) -> None:
        """Accept no further connections; those that are open continue."""
        self._loop.remove_reader(self._relays)

    def _listen(self) -> None:
        self._loop.add_reader(self._relays, self._accept)

    def _accept(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._relays, 1, 1)
        except BlockingIOError:
            return
        if descriptors:
            accepted = self._loop.connect_accepted_socket(self._connection, socket.socket(fileno=descriptors[0]))
            task = self._loop.create_task(accepted)
            self._accepting.add(task)
            task.add_done_callback(self._accepting.discard)
            return
        self.close()
        if data:  # else the supervisor and all relays have ended
            self._loop.call_later(ACCEPT_PAUSE_SECONDS, self._listen)
