"""Clients on plain sockets: bursts of pipelined requests, idle connections, and clients that do not read."""

import asyncio
import contextlib
import re
import socket
from dataclasses import dataclass, field

from exporters.vocabulary.signals import Outcome
from tests.faults.fault_scripts import EARLY_ANSWER, FLOOD, GOOD_BODY, Clients, request_body
from tests.support.scripted_relay import END
from tests.support.waiting import until

BURST_CONNECTIONS = 8
UPLOAD = b"GET /sleep HTTP/1.1\r\nhost: x\r\n\r\n" * 1000
"""Half of a body. Bytes of it must not become a request."""

SMALL_BUFFER = 4096
"""Bytes that the kernel stores for a client that does not read."""

_HOST = "127.0.0.1"
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


def request(request_id: str, name: str, *, stream: bool = False) -> bytes:
    body = request_body(stream=stream)
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: {_HOST}\r\nx-request-id: {request_id}\r\nx-fault: {name}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def burst(clients: Clients, port: int, count: int) -> None:
    """Send this many unary requests as fast as they are answered."""

    async def connection(request_ids: list[str]) -> None:
        try:
            reader, writer = await asyncio.open_connection(_HOST, port)
        except ConnectionError:  # between two runs of a sidecar
            for request_id in request_ids:
                clients.ended(request_id, good=False)
            return

        async def send() -> None:
            for request_id in request_ids:
                writer.write(request(request_id, "unary"))
                await writer.drain()

        sending, unanswered = asyncio.create_task(send()), list(request_ids)
        try:
            while unanswered:
                status, body = await _response(reader)
                clients.ended(unanswered.pop(0), good=status == 200 and body == GOOD_BODY)
            await sending
        except (ConnectionError, asyncio.IncompleteReadError):  # the relay was killed
            sending.cancel()
            for request_id in unanswered:
                clients.ended(request_id, good=False)
        writer.close()

    request_ids = [clients.begun("unary", {Outcome.OK}) for _ in range(count)]
    async with asyncio.TaskGroup() as group:
        for first in range(BURST_CONNECTIONS):
            group.create_task(connection(request_ids[first::BURST_CONNECTIONS]))


async def upload_in_vain(clients: Clients, port: int, count: int) -> None:
    """Send requests whose bodies are streamed to the engine, which answers before it reads them."""

    async def upload(request_id: str) -> None:
        reader, writer = await asyncio.open_connection(_HOST, port)
        head = (
            b"POST /v1/chat/completions/batch HTTP/1.1\r\nhost: x\r\nx-request-id: %s\r\n%s\r\n"
            b"content-length: %d\r\n\r\n"
        )
        writer.write(head % (request_id.encode(), EARLY_ANSWER, 2 * len(UPLOAD)) + UPLOAD)
        status, _ = await _response(reader)
        with contextlib.suppress(ConnectionError):  # the relay reads on for a short time
            writer.write(UPLOAD)
            await writer.drain()
        writer.close()
        clients.ended(request_id, good=status == 413)

    request_ids = [clients.begun("early answer", {Outcome.CLIENT_ERROR}) for _ in range(count)]
    async with asyncio.TaskGroup() as group:
        for request_id in request_ids:
            group.create_task(upload(request_id))


async def _response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The status and body of a response.

    Raises:
        IncompleteReadError: the connection was closed.
        ConnectionError: it was reset.
    """
    head = await reader.readuntil(b"\r\n\r\n")
    length = _LENGTH.search(head)
    assert length is not None, head
    return int(head.split()[1]), await reader.readexactly(int(length[1]))


@dataclass
class Crowd:
    """Connections that send no request, and the number of all connections that the sidecar has closed or rejected."""

    port: int
    turned_away: int = 0
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)
    _waits: list[asyncio.Task[None]] = field(default_factory=list)

    async def idle(self, count: int) -> None:
        for _ in range(count):
            reader, writer = await asyncio.open_connection(_HOST, self.port)
            self._writers.append(writer)
            self._waits.append(asyncio.create_task(self._closed(reader)))

    async def _closed(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read()
        self.turned_away += 1

    async def ask(self, clients: Clients, name: str) -> None:
        """Send a request on a further connection. Without a response the sidecar has not recorded it."""
        request_id = clients.begun(name, {Outcome.REJECTED})
        try:
            reader, writer = await asyncio.open_connection(_HOST, self.port)
            writer.write(request(request_id, name))
            status, _ = await _response(reader)
            writer.close()
        except (asyncio.IncompleteReadError, ConnectionError):
            del clients.offered[request_id]
            clients.open.discard(request_id)
        else:
            clients.ended(request_id, good=False)
            if status != 503:
                clients.failed.append(request_id)
        self.turned_away += 1

    async def leave(self) -> None:
        for wait in self._waits:
            wait.cancel()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._waits, return_exceptions=True)


async def stall(clients: Clients, port: int, count: int) -> None:
    """Open streams and read nothing; when the engine can send no more, half of the clients leave and half go on."""
    engine = clients.engine
    engine.floods_may_end.clear()
    engine.floods.clear()
    connections = []
    for number in range(count):
        leaves = number % 2 == 0
        request_id = clients.begun(FLOOD, {Outcome.CLIENT_ABORT} if leaves else {Outcome.OK})
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, (_HOST, port))
        reader, writer = await asyncio.open_connection(sock=sock, limit=SMALL_BUFFER)
        writer.write(request(request_id, FLOOD, stream=True))
        connections.append((request_id, leaves, reader, writer))
    await until(lambda: len(engine.floods) == count)
    for line in engine.floods:
        await line.stalled()
    engine.floods_may_end.set()
    for request_id, leaves, reader, writer in connections:
        if leaves:
            writer.transport.abort()
        data = b"" if leaves else await _rest(reader)
        clients.ended(request_id, good=data.endswith(END))
        writer.close()


async def _rest(reader: asyncio.StreamReader) -> bytes:
    """The last bytes of a response."""
    end = b""
    while not end.endswith(END) and (data := await reader.read(65536)):
        end = (end + data)[-len(END) :]
    return end
