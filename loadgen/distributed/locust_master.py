"""The master of `locust --master`: each start of Locust's test is one run by all workers."""

from collections.abc import Callable
from typing import Any

import gevent
from locust.env import Environment

from loadgen.distributed.locust_user import run_to_end
from loadgen.distributed.master_run import MasterRun
from loadgen.distributed.worker_pool import WorkerPool


class LocustMaster:
    """Starts and stops runs with Locust's test."""

    def __init__(self, environment: Environment, new_run: Callable[[WorkerPool], MasterRun]) -> None:
        self._environment = environment
        self._new_run = new_run
        self._pool = WorkerPool(environment.runner)
        self._greenlet: Any = gevent.spawn(lambda: None)
        self._run: MasterRun | None = None
        events: Any = environment.events
        events.test_start.add_listener(self._begin)
        events.test_stopping.add_listener(self._stop)

    def _begin(self, **_: Any) -> None:
        self._greenlet = gevent.spawn(lambda: run_to_end(self._environment, self._prepare))

    def _prepare(self) -> MasterRun:
        self._run = None
        self._run = self._new_run(self._pool)
        return self._run

    def _stop(self, **_: Any) -> None:
        """Stop the run and wait for its report: Locust ends the workers afterwards; a second ctrl-c ends it at once."""
        while not self._greenlet.ready():
            try:
                if self._run is None:
                    self._greenlet.kill()
                else:
                    self._run.stop()
                    self._greenlet.join()
            except KeyboardInterrupt:
                continue
