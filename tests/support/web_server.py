"""Serves an application of aiohttp on a free port."""

import contextlib
import ssl
from collections.abc import AsyncIterator

from aiohttp import web

from tests.support.ports import free_port


@contextlib.asynccontextmanager
async def served(
    app: web.Application, port: int = 0, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[str]:
    """The URL of the server, without a path."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, host, port or free_port(), ssl_context=tls)
    await site.start()
    try:
        yield site.name
    finally:
        await runner.cleanup()
