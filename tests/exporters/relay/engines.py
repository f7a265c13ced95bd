"""Relays whose engine serves connections in a way of its own, and TLS on both sides."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from exporters.configuration.tls import Trust
from exporters.relay.tls_acceptor import TlsAcceptor
from exporters.text import pem_file
from tests.exporters.configuration.certificates import Authority, authority
from tests.support.scripted_relay import Stage, staged
from tests.support.waiting import HANG


def server_context(trusted: Authority) -> ssl.SSLContext:
    """The context of a server whose clients trust the authority."""
    leaf = trusted.issue("leaf")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(leaf.cert, leaf.key)
    return context


@contextlib.asynccontextmanager
async def accepting_tls(
    stage: Stage, trusted: Authority, handshake_timeout: float = HANG
) -> AsyncIterator[TlsAcceptor]:
    """Let the clients of the stage connect over TLS."""
    listener = socket.create_server(("127.0.0.1", 0))
    stage.port = listener.getsockname()[1]
    loop = asyncio.get_running_loop()
    acceptor = TlsAcceptor(stage.relay, listener, server_context(trusted), handshake_timeout, loop)
    acceptor.start()
    try:
        yield acceptor
    finally:
        acceptor.close()


@contextlib.asynccontextmanager
async def behind(
    tmp_path: Path,
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    *,
    tls: bool = False,
    **settings: Any,
) -> AsyncIterator[Stage]:
    """A relay whose engine serves each connection in this way."""
    context, trust = None, Trust()
    if tls:
        trusted = authority(tmp_path / "trusted")
        context, trust = server_context(trusted), Trust(ca=pem_file.read(trusted.ca, "--upstream-ca"))
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    url = f"http{'s' if tls else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        async with staged(tmp_path, None, upstream=url, trust=trust, **settings) as stage:
            yield stage
    finally:
        server.close()
