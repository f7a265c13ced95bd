"""The Locust user that offers a whole run: one is all it takes, since every request has a greenlet of its own."""

import logging

import gevent
from locust import User, task
from locust.exception import StopUser

from exporters.errors import UsageError
from loadgen.load_run import Load


class OpenLoop(User):
    """Offers the whole mix of one run, then ends the test."""

    abstract = True
    fixed_count = 1

    def load(self) -> Load:
        raise NotImplementedError

    @task
    def offer(self) -> None:
        try:
            self.load().play()
        except UsageError as error:  # under Locust's web page there is no command line to refuse on
            logging.getLogger(__name__).error("%s", error)  # noqa: TRY400 - a message, never a traceback
            self.environment.process_exit_code = 2
        finally:
            runner = self.environment.runner
            # From a greenlet of its own: ending the test kills this one.
            gevent.spawn(runner.stop if self.environment.web_ui else runner.quit)
        raise StopUser  # else Locust would run the task again until that greenlet has its turn
