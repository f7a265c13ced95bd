"""The worker processes of this machine, forked by `vllm-slo load run --workers`."""

import os
import signal
import sys
from collections.abc import Callable

import gevent
import gevent.os
from gevent.monkey import get_original

PORT_BYTES = 5
_close = get_original("os", "close")  # gevent's closes later, but a forked process must not inherit the pipes


class LocalWorkers:
    """Each process waits for the port of the master, then calls `work` with it; all end with this process."""

    def __init__(self, count: int, work: Callable[[int], None]) -> None:
        self._ended: set[int] = set()
        self._pipes: list[int] = []
        self._pids: list[int] = []
        for _ in range(count):
            read_end, write_end = os.pipe()
            sys.stdout.flush()
            pid = gevent.os.fork_gevent()
            if pid == 0:
                for pipe in (*self._pipes, write_end):
                    _close(pipe)
                _work(read_end, work)
            _close(read_end)
            self._pipes.append(write_end)
            self._pids.append(pid)

    def connect(self, port: int) -> None:
        for pipe in self._pipes:
            os.write(pipe, b"%*d" % (PORT_BYTES, port))

    def has_ended(self, pid: int) -> bool:
        """Whether this process id is that of a worker that has ended."""
        if pid in self._pids and pid not in self._ended and os.waitpid(pid, os.WNOHANG)[0]:
            self._ended.add(pid)
        return pid in self._ended

    def close(self) -> None:
        """End all workers."""
        for pipe in self._pipes:
            _close(pipe)
        for pid in self._pids:
            while not self.has_ended(pid):
                gevent.sleep(0.01)


def _work(lifeline: int, work: Callable[[int], None]) -> None:
    """The whole life of a worker process; the lifeline closes when the master's process ends."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a terminal sends them to the workers, too: the master decides
        signal.signal(number, signal.SIG_IGN)
    status = 1
    try:
        if port := os.read(lifeline, PORT_BYTES):
            worker = gevent.spawn(work, int(port))
            gevent.os.make_nonblocking(lifeline)
            while gevent.os.nb_read(lifeline, 1):
                pass
            worker.kill(block=False)
            status = 0
    finally:
        os._exit(status)
