"""Free loopback ports, distinct between all test processes of the machine."""

import contextlib
import itertools
import socket
from collections.abc import Iterator

from compose.lab.ports import HOST, SERVICES, Ports

_FIRST, _LAST, _BLOCK = 10_000, 32_000, 500
"""Below the range of outgoing connections on Linux, 32768 to 60999."""


def free_port() -> int:
    """An unused port that no other test process gets."""
    for port in _candidates:
        probe = _bound(port)
        if probe is not None:
            probe.close()
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


def _bound(port: int) -> socket.socket | None:
    probe = socket.socket()
    try:
        probe.bind((HOST, port))
    except OSError:
        probe.close()
        return None
    return probe


def _ports_of_this_process() -> Iterator[int]:
    """The ports of a block whose first port this process holds, so that concurrent test runs share no port."""
    for first in range(_FIRST, _LAST, _BLOCK):
        guard = _bound(first)
        if guard is not None:
            with guard:
                yield from itertools.cycle(range(first + 1, first + _BLOCK))
    raise AssertionError(f"{HOST}: no block of {_BLOCK} ports is free")


_candidates = _ports_of_this_process()
