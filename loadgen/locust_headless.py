"""Runs Locust headless in this process; only `load run` imports it, because importing Locust patches the sockets."""

import logging
import signal

import locust  # isort: skip - first, because it patches the standard library for gevent
import gevent
from locust.env import Environment

from loadgen.load_metrics import LoadCollector
from loadgen.load_run import LoadRun
from loadgen.locust_user import OpenLoopUser
from loadgen.metrics_endpoint import MetricsEndpoint
from loadgen.run_settings import RunSettings


def run(settings: RunSettings) -> int:
    """Run the load and report; returns 1 if the run is invalid, unless settings allow it, or its files are incomplete.

    Raises:
        UsageError: the target does not respond, or the folder or the metrics address cannot be used.
    """
    gevent.get_hub().NOT_ERROR += (KeyboardInterrupt,)  # ctrl-c before the load: gevent would print it
    logging.getLogger("locust").setLevel(logging.WARNING)  # Locust logs each step of its start and stop
    environment = Environment(events=locust.events, host=str(settings.target))
    series = LoadCollector(settings.slos)
    endpoint = MetricsEndpoint(series, settings.metrics)
    load = LoadRun(settings, series, environment.events.request.fire)

    class Mix(OpenLoopUser):
        def load(self) -> LoadRun:
            return load

    def stop() -> None:
        load.stop()
        endpoint.stop_waiting()

    environment.user_classes = [Mix]
    runner = environment.create_local_runner()
    for number in (signal.SIGTERM, signal.SIGINT):
        gevent.signal_handler(number, stop)
    # Prometheus computes increases from the counters at 0 and at their last values, so both must be scraped.
    two_scrapes = 2 * settings.slos.scrape_interval  # one may fail
    endpoint.wait_for_scrape(settings.metrics_wait + two_scrapes)
    runner.start(user_count=1, spawn_rate=1)
    runner.greenlet.join()
    endpoint.mark_unread()
    endpoint.wait_for_scrape(two_scrapes)
    endpoint.close()
    return 0 if load.complete and (load.valid or settings.allow_invalid) else 1
