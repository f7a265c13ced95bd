"""Copies bytes between a client's connection and one to the engine: what a relay in Python costs without parsing."""

import asyncio
import sys

import uvloop


class _Engine(asyncio.Protocol):
    def __init__(self, client: asyncio.Transport) -> None:
        self._client = client

    def data_received(self, data: bytes) -> None:
        self._client.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._client.close()


class _Client(asyncio.Protocol):
    def __init__(self, engine_port: int) -> None:
        self._engine_port = engine_port
        self._engine: asyncio.Transport | None = None
        self._early = b""  # before the connection to the engine is open

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._opening = asyncio.get_running_loop().create_task(self._open(transport))

    async def _open(self, client: asyncio.Transport) -> None:
        loop = asyncio.get_running_loop()
        self._engine, _ = await loop.create_connection(lambda: _Engine(client), "127.0.0.1", self._engine_port)
        self._engine.write(self._early)

    def data_received(self, data: bytes) -> None:
        if self._engine:
            self._engine.write(data)
        else:
            self._early += data

    def connection_lost(self, exc: Exception | None) -> None:
        if self._engine:
            self._engine.close()


async def serve(port: int, engine_port: int) -> None:
    await asyncio.get_running_loop().create_server(lambda: _Client(engine_port), "127.0.0.1", port, backlog=4096)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), int(sys.argv[2])))
