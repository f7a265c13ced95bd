"""What runs the load under Locust, for its user or as its master."""

import logging
from collections.abc import Callable
from typing import Any

import gevent
from locust.env import Environment

from exporters.text.errors import UsageError
from loadgen.distributed.master_run import MasterRun
from loadgen.distributed.worker_pool import WorkerPool
from loadgen.run.load_run import LoadRun

_log = logging.getLogger(__name__)


def run_to_end(environment: Environment, load: Callable[[], LoadRun | MasterRun]) -> None:
    """Run a load, then end Locust's test; Locust exits with the status of the run unless it is 0."""
    runner: Any = environment.runner
    try:
        run = load()
        run.run()
        environment.process_exit_code = run.monitor.exit_status or None
    except UsageError as error:  # Locust's web UI has no command line that could print it
        for message in str(error).splitlines():
            _log.error("%s", message)
        environment.process_exit_code = 2
    finally:
        # In another greenlet, because ending the test kills this one.
        gevent.spawn(runner.stop if environment.web_ui else runner.quit)


class LocustMaster:
    """The master of `locust --master`: each start of Locust's test is one run by all workers."""

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
