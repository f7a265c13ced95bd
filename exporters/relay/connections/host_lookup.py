"""Looks up the addresses of the engine in a thread that is started at once: libuv aborts if it cannot start its own."""

import asyncio
import socket
from typing import Any

from exporters.processes.worker_threads import WorkerThreads
from exporters.text.addresses import is_ip


class HostLookup:
    """The addresses of a host; connections that are opened at the same time share one lookup."""

    def __init__(self, host: str, loop: asyncio.AbstractEventLoop) -> None:
        self._host = host
        self._loop = loop
        self._thread = None if is_ip(host) else WorkerThreads(1, "lookups of names")
        self._lookup: asyncio.Future[list[Any]] | None = None

    async def addresses(self) -> list[str]:
        """The addresses in the order in which they should be tried.

        Raises:
            OSError: the lookup failed.
        """
        if self._thread is None:
            return [self._host]
        if self._lookup is None or self._lookup.done():
            self._lookup = self._loop.run_in_executor(self._thread, self._look_up)
            self._lookup.add_done_callback(asyncio.Future.exception)  # all that wait for it may have timed out
        found = await asyncio.shield(self._lookup)
        return list(dict.fromkeys(address[0] for *_, address in found))

    def _look_up(self) -> list[Any]:
        return socket.getaddrinfo(self._host, None, type=socket.SOCK_STREAM)
