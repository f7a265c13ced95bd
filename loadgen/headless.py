"""Runs Locust headless inside this process; imported only by `load run`, for importing Locust patches the sockets."""

import signal

import locust  # isort: skip - first of all: it patches the standard library for gevent
import gevent
from locust.env import Environment

from loadgen.load import Load
from loadgen.settings import Settings
from loadgen.user import OpenLoop


def run(settings: Settings) -> int:
    """Offer the load and report.

    Raises:
        UsageError: the target does not answer, or the folder cannot be used.
    """
    environment = Environment(events=locust.events, host=str(settings.target))
    load = Load(settings, environment.events.request.fire)

    class Mix(OpenLoop):
        def load(self) -> Load:
            return load

    environment.user_classes = [Mix]
    runner = environment.create_local_runner()
    for number in (signal.SIGTERM, signal.SIGINT):
        gevent.signal_handler(number, load.stop)
    runner.start(user_count=1, spawn_rate=1)
    runner.greenlet.join()
    return 0
