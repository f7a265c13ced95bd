"""Serves an aiohttp application with bounds on its connections: their number, and the time without progress."""

import asyncio
import resource
from operator import attrgetter
from typing import Any, cast

from aiohttp import web
from aiohttp.typedefs import Handler

IDLE_SECONDS = 12.0
"""Time until a request head is complete, from the start of the connection or the end of the previous response.

It is shorter than most scrape intervals: Prometheus then opens a connection for each scrape, and sends none on a
connection that is being closed. (It would send it again on another one, if no byte of the response had arrived.)
"""

RESPONSE_SECONDS = 30.0
"""Time in which a client must read its response."""

LINGER_SECONDS = 2.0
"""Time in which the rest of a body is read after an early response, which a reset would discard."""

MOST_CONNECTIONS, LEAST_CONNECTIONS = 32, 16
DESCRIPTORS_PER_CONNECTION = 16
"""Open files of the process for each connection: other ports, scrapes, logs and relays need them, too."""

_ACCEPTED_AT_ONCE = 8
"""Connections that one iteration of the event loop accepts, which may be above the limit until the next iterations."""

_BACKLOG = 4096


def connection_limit(descriptors: int) -> int:
    """The maximum number of connections of one port with `descriptors` open files."""
    if descriptors == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(LEAST_CONNECTIONS, min(MOST_CONNECTIONS, descriptors // DESCRIPTORS_PER_CONNECTION))


def process_connection_limit() -> int:
    """The maximum number of connections of one port of this process."""
    return connection_limit(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


class BoundedServer:
    """Serves an application on a limited number of connections.

    Above the limit, the oldest connection without a request is closed, else the oldest whose client does not read. So
    idle connections and slow readers, however many, keep no client away.
    """

    def __init__(
        self,
        app: web.Application,
        *,
        limit: int | None = None,
        idle: float = IDLE_SECONDS,
        response: float = RESPONSE_SECONDS,
        **options: Any,
    ) -> None:
        app.middlewares.insert(0, self._handle)
        self._runner = web.AppRunner(
            app, access_log=None, keepalive_timeout=idle, lingering_time=min(idle, LINGER_SECONDS), **options
        )
        self._limit = process_connection_limit() if limit is None else limit
        self._response_seconds = response
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Protocol, _Connection] = {}  # oldest first, by the protocol of aiohttp
        self.closed_connections = 0
        """Connections that were closed because of the limit."""

    async def start(self, **where: Any) -> None:
        """Serve on the address `host` and `port`, or on the socket `sock`; raises OSError if the address is in use."""
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, backlog=_ACCEPTED_AT_ONCE, **where)
        for listener in self._server.sockets:
            with listener.dup() as queue:  # `backlog` is also the length of the kernel's queue, which should be longer
                queue.listen(_BACKLOG)

    async def close(self) -> None:
        """Accept no further connections, and close those without an open request."""
        if self._server is not None:
            self._server.close()
        await self._runner.cleanup()

    def _accept(self) -> "_Connection":
        return _Connection(self, cast("web.Server", self._runner.server)(), self._response_seconds)

    def add(self, connection: "_Connection") -> None:
        if len(self._connections) >= self._limit:
            waiting = (each for each in self._connections.values() if not each.handling)
            excess = min(waiting, key=attrgetter("stalled"), default=connection)
            self.closed_connections += 1
            self.discard(excess)
            excess.abort()
            if excess is connection:
                return
        self._connections[connection.http] = connection

    def discard(self, connection: "_Connection") -> None:
        self._connections.pop(connection.http, None)

    @web.middleware
    async def _handle(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        connection = self._connections.get(request.protocol)
        if connection is None:  # closed before its request was handled
            return await handler(request)
        connection.handling = True
        try:
            return await handler(request)
        finally:
            connection.handling = False


class _Connection(asyncio.Protocol):
    """Passes the events of a connection on to aiohttp, and aborts it if its client does not read."""

    def __init__(self, server: BoundedServer, http: asyncio.Protocol, response_seconds: float) -> None:
        self._server = server
        self.http = http
        self._response_seconds = response_seconds
        self._transport: asyncio.Transport
        self._stalled: asyncio.TimerHandle | None = None
        self.handling = False
        """Whether its request is complete, but not the response."""

    @property
    def stalled(self) -> bool:
        """Whether the client has not read all that was sent."""
        return self._stalled is not None

    def abort(self) -> None:
        self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=0)  # any unsent byte is reported
        self.http.connection_made(transport)
        self._server.add(self)

    def data_received(self, data: bytes) -> None:
        self.http.data_received(data)

    def eof_received(self) -> bool | None:
        return self.http.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.discard(self)
        self._end_stall()
        self.http.connection_lost(exc)

    def pause_writing(self) -> None:
        self._stalled = asyncio.get_running_loop().call_later(self._response_seconds, self.abort)
        self.http.pause_writing()

    def resume_writing(self) -> None:
        self._end_stall()
        self.http.resume_writing()

    def _end_stall(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
