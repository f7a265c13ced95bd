"""Finds the peers that have disconnected, although nothing is read from their connections."""

import select
from collections.abc import Iterable

_GONE = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)
"""Outside Linux only a reset is found: there is no event for the end of the peer's bytes before they are read."""


def disconnected(sockets: Iterable[int]) -> list[int]:
    """The descriptors whose peer has ended or reset the connection, if its bytes fit into the socket's buffer."""
    poll = select.poll()
    for descriptor in sockets:
        poll.register(descriptor, _GONE)
    return [descriptor for descriptor, _ in poll.poll(0)]
