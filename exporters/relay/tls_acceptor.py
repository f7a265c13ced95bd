"""Accepts the connections of TLS clients, and limits those that have not finished their handshake."""

import asyncio
import contextlib
import logging
import socket
import ssl

from exporters.relay.connections.client_limit import MAX_REJECTING
from exporters.relay.relay import Relay
from exporters.text.errors import system_reason

BACKLOG = 4096

ACCEPTED_AT_ONCE = 32
"""Connections accepted in one iteration of the event loop, so that open requests do not wait for them."""

PAUSE_SECONDS = 1.0
"""Pause after an error of the system, such as no free descriptor."""

_logger = logging.getLogger("vllm_slo.relay")


class TlsAcceptor:
    """Accepts connections of TLS clients.

    A server of the event loop does not report a failed handshake, so the relay could not count the descriptors of
    clients in their handshake.
    """

    def __init__(
        self,
        relay: Relay,
        listener: socket.socket,
        context: ssl.SSLContext,
        handshake_timeout: float,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._relay = relay
        self._listener = listener
        self._context = context
        self._handshake_timeout = handshake_timeout
        self._loop = loop
        self._handshakes: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None

    @property
    def handshaking(self) -> int:
        """The number of clients in their handshake."""
        return len(self._handshakes)

    def start(self) -> None:
        self._listener.setblocking(False)
        self._listener.listen(BACKLOG)
        self._resume()

    def close(self) -> None:
        """Accept no further connections; handshakes continue."""
        if self._pause is not None:
            self._pause.cancel()
        if self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener)
            self._listener.close()

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                _logger.warning("no connection is accepted for %g s: %s", PAUSE_SECONDS, system_reason(error))
                self._loop.remove_reader(self._listener)
                self._pause = self._loop.call_later(PAUSE_SECONDS, self._resume)
                return
            self._begin(connection)

    def _begin(self, connection: socket.socket) -> None:
        relay = self._relay
        if self.handshaking + len(relay.connections) + len(relay.rejecting) >= relay.client_limit + MAX_REJECTING:
            relay.rejected_connections += 1
            connection.close()
            return
        connection.setblocking(False)
        task = self._loop.create_task(self._handshake(connection))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _handshake(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the client is not one of TLS, has left, or is too slow
            await self._loop.connect_accepted_socket(
                self._relay.client,
                connection,
                ssl=self._context,
                ssl_handshake_timeout=self._handshake_timeout,
            )
