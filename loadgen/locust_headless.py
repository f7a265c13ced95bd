"""Runs Locust headless inside this process; imported only by `load run`, for importing Locust patches the sockets."""

import signal

import locust  # isort: skip - first of all: it patches the standard library for gevent
import gevent
from locust.env import Environment

from loadgen.load_metrics import LoadSeries
from loadgen.load_run import Load
from loadgen.locust_user import OpenLoop
from loadgen.metrics_page import Page
from loadgen.run_settings import Settings

_DISCOVERY = 5.0  # a Prometheus that has just started, as in the lab, looks for targets only after so long


def run(settings: Settings) -> int:
    """Offer the load and report.

    Raises:
        UsageError: the target does not answer, or the folder or the address of the metrics cannot be used.
    """
    environment = Environment(events=locust.events, host=str(settings.target))
    series = LoadSeries(settings.slos)
    page = Page(series, settings.metrics)
    load = Load(settings, series, environment.events.request.fire)

    class Mix(OpenLoop):
        def load(self) -> Load:
            return load

    def stop() -> None:
        load.stop()
        page.hurry()

    environment.user_classes = [Mix]
    runner = environment.create_local_runner()
    for number in (signal.SIGTERM, signal.SIGINT):
        gevent.signal_handler(number, stop)
    # Prometheus must see the counters at 0, or it cannot tell how much they grew, and then where they ended.
    two_scrapes = 2 * settings.slos.scrape_interval  # for one may be lost
    page.wait(_DISCOVERY + two_scrapes)
    runner.start(user_count=1, spawn_rate=1)
    runner.greenlet.join()
    page.changed()
    page.wait(two_scrapes)
    page.close()
    return 0
