"""Listening sockets of the sidecar."""

import errno
import logging
import socket
import sys
import time
from collections.abc import Sequence

from exporters.text.addresses import parse_address
from exporters.text.errors import UsageError, parse_flag, system_reason

BACKLOG = 4096

_BALANCES_LISTENERS = sys.platform == "linux"
"""Linux alone spreads connections over the listeners of one port; elsewhere all relays accept from one queue."""


TAKEOVER_SECONDS = 3.0
"""The maximum wait for a port. The children of a killed supervisor release it in half of that time."""

RETRY_SECONDS = 0.05

logger = logging.getLogger("vllm_slo.supervisor")


def listen_when_free(text: str, flag: str, count: int = 1) -> list[socket.socket]:
    """Listening sockets on one port, once no process of a killed sidecar has it; raises UsageError as `listen`."""
    until = time.monotonic() + TAKEOVER_SECONDS
    logged = False
    while True:
        try:
            return listen(text, flag, count)
        except UsageError as error:
            in_use = isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE
            if not in_use or time.monotonic() > until:
                raise
            if not logged:
                logged = True
                logger.warning(
                    "%s; retrying for %g s, because a sidecar may just have been killed", error, TAKEOVER_SECONDS
                )
        time.sleep(RETRY_SECONDS)


def listen(text: str, flag: str, count: int = 1) -> list[socket.socket]:
    """Listening sockets on one port, bound before any child starts so that a busy port is reported immediately.

    The first socket listens without SO_REUSEPORT, which fails if another sidecar uses the port; only then it allows the
    other sockets. So the second of two sidecars always fails, even if both start at the same time.

    Raises:
        UsageError: the address is invalid or in use.
    """
    host, port = parse_flag(flag, text, parse_address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listeners: list[socket.socket] = []
    try:
        for number in range(count):
            if number and not _BALANCES_LISTENERS:
                listeners.append(listeners[0].dup())
                continue
            listener = socket.socket(family, socket.SOCK_STREAM)
            listeners.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if len(listeners) > 1:
                for each in (listeners[0], listener):
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listener.bind((host, port))
            listener.listen(BACKLOG)
    except OSError as error:
        for each in listeners:
            each.close()
        raise UsageError(f"{flag}: cannot listen on {text}: {system_reason(error)}") from error
    return listeners


def bind_again(text: str, others: Sequence[socket.socket], *, shared: bool) -> socket.socket:
    """A socket on the port of a closed listener; it gets no connections before its relay listens on it.

    Raises:
        OSError: another program uses the port.
    """
    if others and not _BALANCES_LISTENERS:
        return others[0].dup()
    host, port = parse_address(text)
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener
