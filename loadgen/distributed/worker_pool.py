"""The workers that are connected to the master of a distributed run, and their messages."""

import socket
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from time import monotonic, time
from typing import Any

import gevent
from gevent.queue import Empty, Queue

from exporters.text.errors import UsageError
from loadgen.distributed.messages import Batch, Hello, Message, Ready, Stop, listen, send

LOST_AFTER = 15.0
"""Seconds without a message after which a worker counts as lost."""
READY_WITHIN = 120.0
"""Seconds that workers may take to connect and to build the schedule."""
BACK_WITHIN = 2.0
"""Seconds that workers may take to return to Locust's list, which they leave for a moment at the end of a test."""
MOST_SKEW = 1.0
"""Seconds by which the clock of another machine may differ: all workers start at a time by the clock."""


class WorkerPool:
    """The workers of one run after the other; a worker that connects during a run takes part in the next one."""

    def __init__(self, runner: Any, has_ended: Callable[[int], bool] = lambda _: False) -> None:
        """`has_ended`: whether a process id is that of a worker on this machine that has ended."""
        self._runner = runner
        self._has_ended = has_ended
        self._host = socket.gethostname()
        self._connected: dict[str, Hello] = {}
        self._members: Sequence[str] = ()
        self._numbers = count(1)
        self.run = 0
        self._seen: dict[str, float] = {}
        self._listed: dict[str, float] = {}
        self._inbox: Queue[tuple[str, Ready | Batch]] = Queue()
        listen(runner, self._receive)

    def wait_for(self, workers: int) -> None:
        """Wait for this many workers.

        Raises:
            UsageError: they did not connect.
        """
        until = monotonic() + READY_WITHIN
        while len(self._connected) < workers:
            if monotonic() > until:
                raise UsageError(f"only {len(self._connected)} of {workers} workers have connected")
            gevent.sleep(0.01)

    def begin(self) -> int:
        """Begin a run with the workers that Locust does not miss; returns their number.

        Raises:
            UsageError: there is none.
        """
        clients = self._runner.clients
        until = monotonic() + BACK_WITHIN
        while any(worker not in clients for worker in self._connected) and monotonic() < until:
            gevent.sleep(0.05)
        self._connected = {worker: hello for worker, hello in self._connected.items() if worker in clients}
        missing = {client.id for client in clients.missing}
        self._members = [worker for worker in self._connected if worker not in missing]
        if not self._members:
            raise UsageError("no worker is connected")
        self._listed = dict.fromkeys(self._members, monotonic())
        self.run = next(self._numbers)
        return len(self._members)

    def send(self, index: int, message: Message) -> None:
        worker = self._members[index]
        if not isinstance(message, Stop):
            self._seen[worker] = monotonic()  # it sends nothing between two runs
        send(self._runner, message, worker)

    def messages(self, seconds: float) -> Iterator[tuple[int, Ready | Batch]]:
        """The messages of this run that have arrived, or do so in the next `seconds`, with the index of the worker."""
        until = monotonic() + seconds
        while True:
            try:
                worker, message = self._inbox.get(timeout=max(0.0, until - monotonic()))
            except Empty:
                return
            if worker in self._members and message.run == self.run:
                yield self._members.index(worker), message

    def name(self, index: int) -> str:
        """Name of a worker in messages: the index, and the machine if it is another one."""
        host = self._connected[self._members[index]].host
        return f"worker {index}" if host == self._host else f"worker {index} ({host})"

    def skew(self, index: int, message: Ready) -> float:
        """Seconds by which the clock of a worker is ahead, or behind if negative, less the time of its message."""
        return 0.0 if self._connected[self._members[index]].host == self._host else message.time - time()

    def is_lost(self, index: int) -> bool:
        worker, now = self._members[index], monotonic()
        if worker in self._runner.clients:
            self._listed[worker] = now
        return (
            now - self._listed[worker] > BACK_WITHIN  # it has announced its end to Locust
            or self._has_ended(self._connected[worker].pid)
            or now - self._seen[worker] > LOST_AFTER
        )

    def _receive(self, worker: str, message: Message) -> None:
        self._seen[worker] = monotonic()
        match message:
            case Hello():
                self._connected[worker] = message
            case Ready() | Batch() if worker in self._connected:
                self._inbox.put((worker, message))
