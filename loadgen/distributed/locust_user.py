"""The Locust user that runs the load; one user is enough, because every request has its own greenlet."""

import logging
from collections.abc import Callable
from typing import Any

import gevent
from gevent.event import Event
from locust import User, task
from locust.env import Environment
from locust.exception import StopUser
from locust.runners import WorkerRunner

from exporters.text.errors import UsageError
from loadgen.distributed.master_run import MasterRun
from loadgen.run.load_run import LoadRun

_log = logging.getLogger(__name__)


class OpenLoopUser(User):
    """Runs the whole load, then ends the test."""

    abstract = True
    fixed_count = 1

    def load(self) -> LoadRun:
        raise NotImplementedError

    @task
    def offer(self) -> None:
        if isinstance(self.environment.runner, WorkerRunner):  # it sends its share without users
            Event().wait()
        run_to_end(self.environment, self.load)
        raise StopUser  # otherwise Locust runs the task again first


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
