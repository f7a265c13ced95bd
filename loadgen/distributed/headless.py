"""Runs a load with workers that Locust connects; importing it patches the sockets."""

import logging

import locust  # isort: skip - first, because it patches the standard library for gevent
from locust.env import Environment

from loadgen.distributed.local_workers import LocalWorkers
from loadgen.distributed.master_run import MasterRun
from loadgen.distributed.worker_load import WorkerLoad
from loadgen.distributed.worker_pool import WorkerPool
from loadgen.run.load_metrics import LoadCollector
from loadgen.run.load_run import run_with
from loadgen.run.settings import RunSettings

MASTER_HOST = "127.0.0.1"


def run(settings: RunSettings, count: int) -> int:
    """Run with worker processes on this machine that send a share each.

    Raises:
        UsageError: as in `load_run.run`, or a worker does not start.
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
        return run_with(settings, master)
    finally:
        workers.close()
