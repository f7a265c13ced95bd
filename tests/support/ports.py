"""Loopback ports for the servers of a test, distinct between the workers of pytest-xdist."""

import os
import socket
from collections.abc import Iterator

from compose.ports import HOST, SERVICES, Ports

_FIRST, _PER_WORKER, _WORKERS = 10_000, 1_000, 20
"""Below the range from which Linux takes the ports of outgoing connections, 32768 to 60999."""


def free_port() -> int:
    """A port on which nobody listens, and that no other worker is given."""
    for port in _candidates:
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise AssertionError("unreachable: the candidates are endless")


def free_lab_ports() -> Ports:
    return Ports(**{service: free_port() for service in SERVICES})


def _ports_of(worker: str) -> Iterator[int]:
    first = _FIRST + int(worker.removeprefix("gw")) % _WORKERS * _PER_WORKER
    offset = os.getpid()  # so that two runs of the tests on one machine seldom probe the same port at once
    while True:
        yield first + offset % _PER_WORKER
        offset += 1


_candidates = _ports_of(os.environ.get("PYTEST_XDIST_WORKER", "gw0"))
