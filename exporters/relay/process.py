"""The relay process: takes the listening socket from the supervisor and serves until told to drain."""

import asyncio
import itertools
import signal
import socket
import ssl
import sys
from datetime import UTC, datetime
from pathlib import Path

import uvloop

from exporters import slos
from exporters.configuration.child_process import ChildConfig, collect_seldom, read_child_config, stop_event
from exporters.errors import UsageError
from exporters.records import Hello
from exporters.relay.record_sender import Sender
from exporters.relay.relay import Relay

FLUSH_PATIENCE = 5.0
HANDSHAKE_PATIENCE = 10.0


async def serve(config: ChildConfig) -> None:
    """Relay until SIGTERM or SIGINT, then drain: stop accepting, let open requests end, flush the records."""
    loop = asyncio.get_running_loop()
    tls = _tls(config, loop)
    sender = Sender(config.records_path, Hello(config.process, config.life), loop)
    numbers = itertools.count(1)
    relay = Relay(
        config.sidecar,
        slos.load(Path(config.sidecar.slos)),
        sender,
        loop,
        salt=config.salt,
        new_request_id=lambda: f"{config.life}-{next(numbers):x}",
    )
    stop = stop_event(loop)
    listening = socket.socket(fileno=config.socket_fds[0])
    server = await loop.create_server(
        relay.client,
        sock=listening,
        backlog=4096,
        ssl=tls,
        ssl_handshake_timeout=None if tls is None else HANDSHAKE_PATIENCE,
    )
    sender.start()
    relay.start()
    collect_seldom()
    await stop.wait()
    server.close()
    relay.drain()
    until = loop.time() + config.sidecar.drain
    while relay.open_requests and loop.time() < until:
        await asyncio.sleep(0.05)
    relay.close()
    await sender.close(FLUSH_PATIENCE)


def _tls(config: ChildConfig, loop: asyncio.AbstractEventLoop) -> ssl.SSLContext | None:
    """What clients are shown; SIGHUP reads its files again."""
    certificate = config.sidecar.certificate
    if certificate is None:
        return None
    context = certificate.context()

    def reload() -> None:
        try:
            ends = datetime.fromtimestamp(certificate.load_into(context), UTC)
        except UsageError as error:
            said = f"{error}; keeping the old certificate"
        else:
            said = f"certificate read again, it ends on {ends:%Y-%m-%d %H:%M:%S} UTC"
        print(f"{config.process}: {said}", file=sys.stderr, flush=True)

    loop.add_signal_handler(signal.SIGHUP, reload)
    return context


def main() -> int:
    config = read_child_config()
    try:
        uvloop.run(serve(config))
    except UsageError as error:  # a file was right when the sidecar started, and is wrong at this restart
        print(f"{config.process}: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
