"""Runs a load in this process, or with workers that Locust connects; importing it patches the sockets."""

import logging
import signal
from collections.abc import Callable

import locust  # isort: skip - first, because it patches the standard library for gevent
import gevent
from locust.env import Environment

from loadgen.distributed.local_workers import LocalWorkers
from loadgen.distributed.master_run import MasterRun
from loadgen.distributed.worker_load import WorkerLoad
from loadgen.distributed.worker_pool import WorkerPool
from loadgen.run.load_metrics import LoadCollector
from loadgen.run.load_run import LoadRun
from loadgen.run.metrics_endpoint import MetricsEndpoint
from loadgen.run.settings import RunSettings

MASTER_HOST = "127.0.0.1"


def run(settings: RunSettings) -> int:
    """Run the load and report; returns 1 if the run is invalid, unless settings allow it, or its files are incomplete.

    Raises:
        UsageError: the target does not respond, or the folder or the metrics address cannot be used.
    """
    return _run(settings, lambda series: LoadRun(settings, series, lambda **_: None))


def run_with_workers(settings: RunSettings, count: int) -> int:
    """Run with worker processes on this machine that send a share each.

    Raises:
        UsageError: as in `run`, or a worker does not start.
    """

    def work(port: int) -> None:
        environment = Environment(events=locust.events, host=str(settings.target))
        worker = environment.create_worker_runner(MASTER_HOST, port)
        WorkerLoad(worker, lambda _: settings)
        worker.greenlet.join()

    def master(series: LoadCollector) -> MasterRun:
        environment = Environment(events=locust.events, host=str(settings.target))
        runner = environment.create_master_runner(MASTER_HOST, 0)
        pool = WorkerPool(runner, workers.has_ended)
        workers.connect(runner.server.port)
        pool.wait_for(count)
        return MasterRun(settings, series, pool)

    logging.getLogger("locust").setLevel(logging.WARNING)  # Locust logs each step of its start and stop
    workers = LocalWorkers(count, work)  # before this process has any connection
    try:
        return _run(settings, master)
    finally:
        workers.close()


def _run(settings: RunSettings, new_load: Callable[[LoadCollector], LoadRun | MasterRun]) -> int:
    gevent.get_hub().NOT_ERROR += (KeyboardInterrupt,)  # ctrl-c before the load: gevent would print it
    series = LoadCollector(settings.slos, settings.experiment, settings.configuration)
    endpoint = MetricsEndpoint(series, settings.metrics)
    load = new_load(series)  # last, so that a signal closes its files

    def stop() -> None:
        load.stop()
        endpoint.stop_waiting()

    for number in (signal.SIGTERM, signal.SIGINT):
        gevent.signal_handler(number, stop)
    two_scrapes = 2 * settings.slos.scrape_interval  # one may fail
    # Prometheus computes increases from the counters at 0 and at their last values, so both must be scraped.
    endpoint.wait_for_scrape(settings.metrics_wait + two_scrapes)
    load.run()
    endpoint.mark_unread()
    endpoint.wait_for_scrape(two_scrapes)
    endpoint.close()
    return load.monitor.exit_status
