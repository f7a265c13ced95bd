"""The relay process: serves on the listening socket of the supervisor until it drains."""

import asyncio
import itertools
import logging
import socket
import ssl
import sys
from datetime import UTC, datetime
from pathlib import Path

import uvloop

from exporters.child_process import collect_garbage_rarely, run_child, stop_event
from exporters.configuration.child_config import ChildConfig, Slos
from exporters.configuration.tls import Certificate
from exporters.errors import UsageError, system_reason
from exporters.journal import RelayJournal
from exporters.records import Hello
from exporters.relay import tcp_keepalive
from exporters.relay.client_limit import process_client_limit
from exporters.relay.record_sender import Sender
from exporters.relay.relay import Relay
from exporters.relay.tls_acceptor import BACKLOG, TlsAcceptor

FLUSH_TIMEOUT = 5.0
HANDSHAKE_TIMEOUT = 10.0

logger = logging.getLogger("vllm_slo.relay")


async def serve(config: ChildConfig) -> None:
    """Relay until standard input ends, then drain: stop accepting, wait for open requests, flush the records."""
    loop = asyncio.get_running_loop()
    certificate = config.sidecar.certificate
    tls = None if certificate is None else certificate.context()
    sender = Sender(config.records_path, Hello(config.process, config.run_id), loop)
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

    def reload(slos: Slos) -> None:
        relay.use(slos.file)
        if certificate is not None and tls is not None:
            _reload_certificate(certificate, tls)

    stop = stop_event(loop, reload)
    listener, drain_notice = (socket.socket(fileno=fd) for fd in config.socket_fds)
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
    await stop.wait()
    server.close()
    relay.drain()
    until = loop.time() + config.sidecar.drain
    while relay.open_requests and loop.time() < until:
        await asyncio.sleep(0.05)
    relay.close()
    await sender.close(max(FLUSH_TIMEOUT, config.sidecar.linger))


def _journal(config: ChildConfig) -> RelayJournal | None:
    try:
        return RelayJournal(Path(config.journals), config.run_id)
    except OSError as error:
        reason = system_reason(error)
        logger.error("no journal: %s; if this relay crashes, its requests are not counted as lost", reason)  # noqa: TRY400
        return None


def _reload_certificate(certificate: Certificate, context: ssl.SSLContext) -> None:
    try:
        expiry = datetime.fromtimestamp(certificate.load_into(context), UTC)
    except UsageError as error:
        logger.error("%s; keeping the old certificate", error)  # noqa: TRY400 - the message is complete
    else:
        logger.info("certificate reloaded, it expires on %s UTC", f"{expiry:%Y-%m-%d %H:%M:%S}")


def _announce_drain(relay: Relay, notice: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
    """When the supervisor closes its end of `notice`, ask clients to reconnect, which leads them elsewhere."""

    def ended() -> None:
        loop.remove_reader(notice)
        relay.announce_drain()

    loop.add_reader(notice, ended)


if __name__ == "__main__":
    sys.exit(run_child(serve, uvloop.run))
