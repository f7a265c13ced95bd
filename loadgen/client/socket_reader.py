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

from loadgen.client.completion import CompletionResponse

READ_BYTES = 16 * 1024
"""More than the chunks that arrive in one round; cheap to allocate."""
ROUND, LEAST_ROUND = 0.004, 0.002
"""Seconds between two rounds: half of the shortest gap between reads of a stream, so that its chunks are not merged.

If that is less than `LEAST_ROUND`, the next read does not wait.
"""
MOST_READS = 256
"""Reads in one round; due requests are sent between rounds."""
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
        self._new_timer = loop.timer
        self._timer = self._new_timer(ROUND)
        # by descriptor: what receives, the response, the greenlet that waits, and the time of the last read
        self._open: dict[int, list[Any]] = {}

    def read(self, connection: Any, response: CompletionResponse, since: float) -> None:
        """Feed `response` until it is complete or the connection closes; nothing has arrived before `since`.

        The calling greenlet runs only at the end, which halves the CPU time.

        Raises:
            OSError: the connection failed.
            BadHttpError: the response is not HTTP/1.1.
        """
        descriptor = connection.fileno()
        ended: Waiter[None] = Waiter()
        connection.setblocking(False)
        self._epoll.register(descriptor, _READABLE)
        if not self._open:
            self._arrival.start(self._on_readable)
        receive = connection._sock.recvmsg  # noqa: SLF001 - of the C class; gevent's adds a Python call per read
        self._open[descriptor] = [receive, response, ended, since]
        try:
            ended.get()
        finally:
            self._epoll.unregister(descriptor)
            del self._open[descriptor]
            if not self._open:
                self._arrival.stop()
                self._timer.stop()

    def _on_readable(self) -> None:
        """Something has arrived, or a round is due."""
        wait = self._read_all()
        if not self._open:
            return
        if wait:
            self._arrival.stop()
            self._timer = self._new_timer(wait)
            self._timer.start(self._on_readable)
        else:
            self._arrival.start(self._on_readable)

    def _clocks(self) -> tuple[float, float]:
        """The monotonic time, and how much it is ahead of the wall clock."""
        for _ in range(3):
            before, wall, now = monotonic(), self._wall_clock(), monotonic()
            if now - before < CLOCKS_APART:
                break  # else the process was interrupted between two readings
        return now, (before + now) / 2 - wall

    def _read_all(self) -> float:
        """Read each readable socket once; the seconds that the next reads may wait."""
        now, offset = self._clocks()
        readable = self._epoll.poll(0, MOST_READS)
        wait = ROUND if readable else 0.0
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
                    if data:
                        wait = 0.0
                if at - previous < 2 * wait:
                    wait = (at - previous) / 2
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
        return wait if wait >= LEAST_ROUND else 0.0
