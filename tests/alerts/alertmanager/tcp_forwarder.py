"""A TCP forwarder between two services: it can cut the network between them, or delay requests."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from compose.lab.ports import HOST


class Forwarder:
    """Forwards connections to a port; `delay` is in seconds and applies to POST requests, so scrapes stay fast."""

    def __init__(self, port: int) -> None:
        self.delay = 0.0
        self.listens_on = 0
        self._port = port
        self._cut = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._connections: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        """Abort all connections, also new ones, until `restore`."""
        self._cut = True
        for writer in self._writers:
            writer.transport.abort()

    def restore(self) -> None:
        self._cut = False

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator["Forwarder"]:
        server = await asyncio.start_server(self._accept, HOST, 0)
        self.listens_on = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.cut()
            for task in self._connections:
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._forward(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self._close, writer)
            self._writers.add(writer)
            if self._cut:
                return
            try:
                answers, upstream = await asyncio.open_connection(HOST, self._port)
                stack.push_async_callback(self._close, upstream)
                self._writers.add(upstream)
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._copy(reader, upstream, delays=True))
                    both.create_task(self._copy(answers, writer, delays=False))
            except* OSError:  # the service is down, one side has closed the connection, or it was cut
                pass

    async def _close(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, delays: bool) -> None:
        """Copy until the end of the data, which ends both directions: HTTP needs no half-open connections."""
        while data := await reader.read(65536):
            if delays and self.delay and data.startswith(b"POST "):
                await asyncio.sleep(self.delay)
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError
