"""Listening sockets of the sidecar, bound before any child starts."""

import socket

from exporters.addresses import parse_address
from exporters.errors import UsageError, parse_flag, system_reason

BACKLOG = 4096


def listen(text: str, flag: str, count: int = 1) -> list[socket.socket]:
    """Listening sockets on one port, made before any child starts so that a busy port is said at once.

    The first is bound and listens without SO_REUSEPORT, which another sidecar on this port makes impossible; only then
    does it let the others in. Whichever of two sidecars comes second is refused, however close they start.

    Raises:
        UsageError: the address cannot be listened on.
    """
    host, port = parse_flag(flag, text, parse_address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made: list[socket.socket] = []
    try:
        for _ in range(count):
            listening = socket.socket(family, socket.SOCK_STREAM)
            made.append(listening)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if len(made) > 1:
                for each in (made[0], listening):
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listening.bind((host, port))
            listening.listen(BACKLOG)
    except OSError as error:
        for each in made:
            each.close()
        raise UsageError(f"{flag}: cannot listen on {text}: {system_reason(error)}") from error
    return made
