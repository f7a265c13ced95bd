"""The drain as the exporter knows it, and its messages from and to the supervisor.

A message is one byte on a socket pair. Both ends stay open in the supervisor, so a restarted exporter receives the
messages that its predecessor has not read. Its configuration has the state that results from the others.
"""

import asyncio
import socket
import time
from enum import IntEnum


class Order(IntEnum):
    """A message from the supervisor to the exporter."""

    FAIL_READINESS = 1
    RELAYS_EXITED = 2


class Report(IntEnum):
    """A message from the exporter to the supervisor."""

    DRAIN_REQUESTED = 1
    READINESS_FAILED = 2
    FINAL_SCRAPE = 3
    """A scrape that began after the last request was counted has been answered."""


class Drain:
    """The drain so far; times are monotonic seconds, None before."""

    def __init__(self, began_at: float | None = None, relays_exited_at: float | None = None) -> None:
        self._began_at = began_at
        self._relays_exited_at = relays_exited_at
        self._relays_exited = asyncio.Event()
        self._counted = asyncio.Event()
        self._control: socket.socket | None = None
        if relays_exited_at is not None:
            self._relays_exited.set()

    @property
    def begun(self) -> bool:
        return self._began_at is not None

    @property
    def counts_are_final(self) -> bool:
        return self._counted.is_set()

    async def relays_exited(self) -> None:
        """Wait until all relays have exited."""
        await self._relays_exited.wait()

    def begin(self) -> None:
        if self._began_at is None:
            self._began_at = time.monotonic()

    def end(self) -> None:
        """All requests are counted."""
        self._counted.set()

    async def request(self) -> float:
        """Request a drain, unless it has begun, and wait until it has ended; returns its duration in seconds."""
        if not self.begun:
            self.report(Report.DRAIN_REQUESTED)
        await self._counted.wait()
        ended_at = self._relays_exited_at or time.monotonic()  # None if the supervisor was killed
        return ended_at - (self._began_at or ended_at)

    def report(self, report: Report) -> None:
        """Send a message to the supervisor."""
        if self._control is not None:
            self._control.send(bytes([report]))

    def connect(self, control: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        """Obey the orders of the supervisor."""

        def read() -> None:
            orders = control.recv(64)
            if not orders:  # the supervisor has exited
                loop.remove_reader(control)
            for order in orders:
                self._obey(Order(order))

        self._control = control
        control.setblocking(False)
        loop.add_reader(control, read)

    def _obey(self, order: Order) -> None:
        if order is Order.FAIL_READINESS:
            self.begin()
            self.report(Report.READINESS_FAILED)
        else:
            self._relays_exited_at = time.monotonic()
            self._relays_exited.set()
