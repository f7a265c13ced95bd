"""Runs Locust headless in this process; only `load run` imports it, because importing Locust patches the sockets."""

import logging
import signal

import locust  # isort: skip - first, because it patches the standard library for gevent
import gevent
from locust.env import Environment

from loadgen.load_metrics import LoadCollector
from loadgen.load_run import LoadRun
from loadgen.local_workers import LocalWorkers
from loadgen.locust_user import OpenLoopUser
from loadgen.master_run import MasterRun
from loadgen.metrics_endpoint import MetricsEndpoint
from loadgen.run_settings import RunSettings
from loadgen.worker_load import WorkerLoad
from loadgen.worker_pool import WorkerPool

MASTER_HOST = "127.0.0.1"


def run(settings: RunSettings) -> int:
    """Run the load and report; returns 1 if the run is invalid, unless settings allow it, or its files are incomplete.

    Raises:
        UsageError: the target does not respond, or the folder or the metrics address cannot be used.
    """
    _quieten()
    environment = Environment(events=locust.events, host=str(settings.target))
    series = LoadCollector(settings.slos, settings.experiment, settings.configuration)
    endpoint = MetricsEndpoint(series, settings.metrics)

    class Mix(OpenLoopUser):
        def load(self) -> LoadRun:
            return load

    def stop() -> None:
        load.stop()
        endpoint.stop_waiting()

    environment.user_classes = [Mix]
    runner = environment.create_local_runner()
    load = LoadRun(settings, series, environment.events.request.fire)  # last, so that a signal closes its files
    for number in (signal.SIGTERM, signal.SIGINT):
        gevent.signal_handler(number, stop)
    _wait_for_first_scrape(endpoint, settings)
    runner.start(user_count=1, spawn_rate=1)
    runner.greenlet.join()
    return _end(endpoint, settings, load)


def run_with_workers(settings: RunSettings, count: int) -> int:
    """As `run`, with worker processes on this machine that send a share each.

    Raises:
        UsageError: as in `run`, or a worker does not start.
    """
    _quieten()

    def work(port: int) -> None:
        environment = Environment(events=locust.events, host=str(settings.target))
        worker = environment.create_worker_runner(MASTER_HOST, port)
        WorkerLoad(worker, lambda _: settings)
        worker.greenlet.join()

    workers = LocalWorkers(count, work)  # before this process has any connection
    try:
        series = LoadCollector(settings.slos, settings.experiment, settings.configuration)
        endpoint = MetricsEndpoint(series, settings.metrics)
        environment = Environment(events=locust.events, host=str(settings.target))
        runner = environment.create_master_runner(MASTER_HOST, 0)
        pool = WorkerPool(runner, workers.has_ended)
        workers.connect(runner.server.port)
        pool.wait_for(count)
        load = MasterRun(settings, series, pool)

        def stop() -> None:
            load.stop()
            endpoint.stop_waiting()

        for number in (signal.SIGTERM, signal.SIGINT):
            gevent.signal_handler(number, stop)
        _wait_for_first_scrape(endpoint, settings)
        load.run()
        return _end(endpoint, settings, load)
    finally:
        workers.close()


def _quieten() -> None:
    gevent.get_hub().NOT_ERROR += (KeyboardInterrupt,)  # ctrl-c before the load: gevent would print it
    logging.getLogger("locust").setLevel(logging.WARNING)  # Locust logs each step of its start and stop


def _wait_for_first_scrape(endpoint: MetricsEndpoint, settings: RunSettings) -> None:
    # Prometheus computes increases from the counters at 0 and at their last values, so both must be scraped.
    endpoint.wait_for_scrape(settings.metrics_wait + _two_scrapes(settings))


def _end(endpoint: MetricsEndpoint, settings: RunSettings, load: LoadRun | MasterRun) -> int:
    endpoint.mark_unread()
    endpoint.wait_for_scrape(_two_scrapes(settings))
    endpoint.close()
    return load.monitor.exit_status


def _two_scrapes(settings: RunSettings) -> float:
    return 2 * settings.slos.scrape_interval  # one may fail
