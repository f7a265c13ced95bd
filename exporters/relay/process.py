"""The relay process: serves on the listening socket of the supervisor until it drains."""

import asyncio
import itertools
import logging
import socket
import sys
from functools import partial
from pathlib import Path

import uvloop

from exporters.configuration.child import ChildConfig, Reload
from exporters.configuration.sidecar import TlsPort
from exporters.processes.child import Orders, collect_garbage_rarely, run_child
from exporters.records.connection import connect
from exporters.records.journal import RelayJournal
from exporters.records.messages import Hello
from exporters.relay.connections import tcp_keepalive
from exporters.relay.connections.client_limit import process_client_limit
from exporters.relay.record_sender import Sender
from exporters.relay.relay import Relay
from exporters.relay.tls_acceptor import BACKLOG, TlsAcceptor
from exporters.text.errors import system_reason

FLUSH_TIMEOUT = 5.0
HANDSHAKE_TIMEOUT = 10.0

logger = logging.getLogger("vllm_slo.relay")


async def serve(config: ChildConfig) -> None:
    """Relay until the supervisor stops this process, then drain: wait for open requests, flush the records."""
    loop = asyncio.get_running_loop()
    tls = None
    if config.tls is not None and config.sidecar.tls_port is not TlsPort.METRICS:
        tls = config.tls.certificate.context()
    listener, drain_notice, exporter = (socket.socket(fileno=fd) for fd in config.socket_fds)
    sender = Sender(
        partial(connect, exporter), Hello(config.process, config.run_id, config.restarts[config.process]), loop
    )
    numbers = itertools.count(1)
    relay = Relay(
        config.sidecar,
        config.slos.file,
        sender,
        loop,
        salt=config.salt,
        new_request_id=lambda: f"{config.run_id}-{next(numbers):x}",
        client_limit=process_client_limit(),
        journal=_journal(config),
    )

    def reload(message: Reload) -> None:
        relay.use(message.slos.file)
        if message.tls is not None and tls is not None:
            message.tls.certificate.load_into(tls)

    orders = Orders(loop, reload)
    _announce_drain(relay, drain_notice, loop)
    tcp_keepalive.enable(listener)
    server: asyncio.Server | TlsAcceptor
    if tls is None:
        server = await loop.create_server(relay.client, sock=listener, backlog=BACKLOG)
    else:
        server = TlsAcceptor(relay, listener, tls, HANDSHAKE_TIMEOUT, loop)
        server.start()
    sender.start()
    relay.start()
    collect_garbage_rarely()
    await orders.stop.wait()
    server.close()
    relay.drain()
    until = loop.time() + config.sidecar.drain
    while relay.open_requests and loop.time() < until and not orders.orphaned:
        await asyncio.sleep(0.05)
    relay.close()
    await sender.close(max(FLUSH_TIMEOUT, config.sidecar.linger))


def _journal(config: ChildConfig) -> RelayJournal | None:
    if not config.journals:
        return None
    try:
        return RelayJournal(Path(config.journals), config.run_id)
    except OSError as error:
        reason = system_reason(error)
        logger.error("no journal: %s; if this relay crashes, its requests are not counted as lost", reason)  # noqa: TRY400
        return None


def _announce_drain(relay: Relay, notice: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
    """Ask clients to reconnect when the supervisor closes its end of `notice`; this leads them elsewhere."""

    def ended() -> None:
        loop.remove_reader(notice)
        relay.announce_drain()

    loop.add_reader(notice, ended)


if __name__ == "__main__":
    sys.exit(run_child(serve, uvloop.run))
