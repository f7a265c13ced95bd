"""Free loopback ports, distinct between the workers of pytest-xdist."""

import contextlib
import os
import socket
from collections.abc import Iterator

from compose.ports import HOST, SERVICES, Ports

_FIRST, _PER_WORKER, _WORKERS = 10_000, 1_000, 20
"""Below the range of outgoing connections on Linux, 32768 to 60999."""


def free_port() -> int:
    """An unused port that no other worker gets."""
    for port in _candidates:
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise AssertionError("unreachable: the candidates are endless")


@contextlib.contextmanager
def busy_port() -> Iterator[int]:
    """A port on which this process listens."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen()
        yield listener.getsockname()[1]


def free_lab_ports() -> Ports:
    return Ports(**{service: free_port() for service in SERVICES})


def _ports_of(worker: str) -> Iterator[int]:
    first = _FIRST + int(worker.removeprefix("gw")) % _WORKERS * _PER_WORKER
    offset = os.getpid()  # so that concurrent test runs on one machine rarely use the same port
    while True:
        yield first + offset % _PER_WORKER
        offset += 1


_candidates = _ports_of(os.environ.get("PYTEST_XDIST_WORKER", "gw0"))
