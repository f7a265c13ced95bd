"""Engines, each of which ends or delays its connections in one way."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

HALF_SERVER_HELLO = b"\x16\x03\x03\x00\x7a\x02\x00\x00\x76\x03\x03"

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def close_at_once(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def end_sending(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write_eof()
    await reader.read()


async def close_after_the_client_hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.close()


async def close_in_the_server_hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(HALF_SERVER_HELLO)
    writer.close()


async def stop_in_the_server_hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HALF_SERVER_HELLO)
    await reader.read()


async def say_nothing(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


async def speak_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 mail.example.org ESMTP\r\n")
    await reader.read()


@contextlib.asynccontextmanager
async def behaving(behaviour: Behaviour, tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[int, set[int]]]:
    """An engine that treats each connection this way: its port, and the connections that are open."""
    connections: set[int] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(id(writer))
        with contextlib.suppress(ConnectionError):
            while not reader.at_eof() and not writer.is_closing():
                await behaviour(reader, writer)
                await reader.read()
        connections.discard(id(writer))
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1], connections
    finally:
        server.close()
