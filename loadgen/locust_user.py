"""The Locust user that runs the load; one user is enough, because every request has its own greenlet."""

import logging

import gevent
from locust import User, task
from locust.exception import StopUser

from exporters.errors import UsageError
from loadgen.load_run import LoadRun


class OpenLoopUser(User):
    """Runs the whole load, then ends the test."""

    abstract = True
    fixed_count = 1

    def load(self) -> LoadRun:
        raise NotImplementedError

    @task
    def offer(self) -> None:
        try:
            self.load().run()
        except UsageError as error:  # Locust's web UI has no command line that could print it
            logging.getLogger(__name__).error("%s", error)  # noqa: TRY400 - a message, never a traceback
            self.environment.process_exit_code = 2
        finally:
            runner = self.environment.runner
            # In another greenlet, because ending the test kills this one.
            gevent.spawn(runner.stop if self.environment.web_ui else runner.quit)
        raise StopUser  # otherwise Locust runs the task again first
