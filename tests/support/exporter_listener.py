"""The exporter's end of the connections of a sender in a test, which comes and goes."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import NoReturn

from exporters.records.connection import RelayListener, connect
from exporters.relay.record_sender import Sender


def no_exporter() -> NoReturn:
    raise ConnectionRefusedError


@contextlib.asynccontextmanager
async def accepting(sender: Sender, connection: Callable[[], asyncio.Protocol]) -> AsyncIterator[None]:
    """An exporter accepts the connections of the sender, which cannot open any before and after."""
    to_exporter, relays = socket.socketpair()
    with to_exporter, relays:
        listener = RelayListener(relays, connection, asyncio.get_running_loop())
        sender._open = partial(connect, to_exporter)
        try:
            yield
        finally:
            sender._open = no_exporter
            listener.close()
