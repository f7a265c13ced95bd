"""Reads the sockets of all open responses in rounds, and stamps each read with the time of its arrival in the kernel.

A wake-up of the process costs more than a read, so with many streams one wake-up reads all sockets that are readable.
The arrival times come from Linux (`SO_TIMESTAMPNS`, see socket(7)), so waiting for a round does not change them.
"""

import contextlib
import socket
import struct
from collections.abc import Callable
from time import monotonic, time
from typing import Any

import gevent
from gevent.hub import Waiter
from gevent.monkey import get_original

from loadgen.completion_response import CompletionResponse

READ_BYTES = 16 * 1024
"""More than the chunks that arrive in one round; cheap to allocate."""
ROUND = 0.002
"""Seconds between two rounds."""
SHORT_GAP = 2 * ROUND
"""Seconds; after two reads of one stream with a shorter gap, the next read does not wait: chunks would be merged."""
MOST_READS = 256
"""In one round; due requests are sent between rounds."""
CLOCKS_APART = 2e-5
"""Seconds between two readings of the clocks above which they are read again, as the difference would be wrong."""

_READABLE = 1  # of libev and of epoll
_SO_TIMESTAMPNS = 64  # of Linux; the one with 64-bit fields
_TIMESTAMP = struct.Struct("=qq")  # seconds and nanoseconds of CLOCK_REALTIME
_ANCILLARY_BYTES = socket.CMSG_SPACE(_TIMESTAMP.size)


def request_timestamps(connection: Any) -> None:
    """Ask the kernel for the arrival time of each read; without them, reads do not wait for rounds."""
    with contextlib.suppress(OSError):  # older than Linux 5.1, or not Linux itself
        connection.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)


class SocketReader:
    """Feeds the responses of any number of greenlets; needs epoll."""

    def __init__(self, wall_clock: Callable[[], float] = time) -> None:
        loop = gevent.get_hub().loop
        self._wall_clock = wall_clock
        self._epoll = get_original("select", "epoll")()  # Locust's patches remove it
        self._arrival = loop.io(self._epoll.fileno(), _READABLE)
        self._timer = loop.timer(ROUND, ROUND)
        # by descriptor: what receives, the response, the greenlet that waits, and the time of the last read
        self._open: dict[int, list[Any]] = {}

    def read(self, connection: Any, response: CompletionResponse, since: float) -> None:
        """Feed `response` until it is complete or the connection closes; nothing has arrived before `since`.

        The calling greenlet runs only at the end, which halves the CPU time.

        Raises:
            OSError: the connection failed.
            ProtocolError: the response is not HTTP/1.1.
        """
        descriptor = connection.fileno()
        ended: Waiter[None] = Waiter()
        connection.setblocking(False)
        self._epoll.register(descriptor, _READABLE)
        if not self._open:
            self._arrival.start(self._on_arrival)
        self._open[descriptor] = [connection.recvmsg, response, ended, since]
        try:
            ended.get()
        finally:
            self._epoll.unregister(descriptor)
            del self._open[descriptor]
            if not self._open:
                self._arrival.stop()
                self._timer.stop()

    def _on_arrival(self) -> None:
        if self._read_all() and self._open:
            self._arrival.stop()
            self._timer.start(self._on_round)

    def _on_round(self) -> None:
        if not self._read_all():
            self._timer.stop()
            if self._open:
                self._arrival.start(self._on_arrival)

    def _clocks(self) -> tuple[float, float]:
        """The monotonic time, and how much it is ahead of the wall clock."""
        for _ in range(3):
            before, wall, now = monotonic(), self._wall_clock(), monotonic()
            if now - before < CLOCKS_APART:
                break  # else the process was interrupted between two readings
        return now, (before + now) / 2 - wall

    def _read_all(self) -> bool:
        """Read each readable socket once; True if the next reads may wait for a round."""
        now, offset = self._clocks()
        readable = self._epoll.poll(0, MOST_READS)
        may_wait = bool(readable)
        for descriptor, _ in readable:
            entry = self._open[descriptor]
            receive, response, ended, previous = entry
            try:
                data, ancillary, _, _ = receive(READ_BYTES, _ANCILLARY_BYTES)
                if ancillary:
                    seconds, nanoseconds = _TIMESTAMP.unpack(ancillary[0][2])
                    at = seconds + nanoseconds * 1e-9 + offset
                    # The wall clock may have been set since the arrival.
                    if at > now:
                        at = min(at, monotonic())
                    elif at < previous:
                        at = previous
                else:
                    at = monotonic()
                    may_wait = may_wait and not data
                if at - previous < SHORT_GAP:
                    may_wait = False
                entry[3] = at
                if data:
                    if not response.feed(data, at):
                        continue
                else:
                    response.eof(at)
            except BlockingIOError:
                continue
            except Exception as error:  # noqa: BLE001 - raised in the greenlet of the request
                ended.throw(error)
            else:
                ended.switch(None)
        return may_wait
