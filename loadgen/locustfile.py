"""The same load with Locust's web UI: `locust -f loadgen/locustfile.py`, configured by VLLM_SLO_* variables.

Every start creates a folder under VLLM_SLO_OUT. With --master and --worker, each worker sends its share of the
requests, and the master writes the folder and exposes the metrics of VLLM_SLO_METRICS.
"""

import os
import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from gevent.event import Event
from locust import User, events, task
from locust.exception import StopUser
from locust.runners import MasterRunner, WorkerRunner

from exporters.text.errors import UsageError
from loadgen.distributed.locust_tab import add_tab
from loadgen.distributed.locust_user import LocustMaster, run_to_end
from loadgen.distributed.master_run import MasterRun
from loadgen.distributed.worker_load import WorkerLoad
from loadgen.distributed.worker_pool import WorkerPool
from loadgen.run.live_figures import LiveFigures
from loadgen.run.load_metrics import LoadCollector
from loadgen.run.load_run import LoadRun
from loadgen.run.metrics_endpoint import MetricsEndpoint
from loadgen.run.settings import RunSettings, from_environment


class Mix(User):
    """Runs the scenario of VLLM_SLO_SCENARIO; one user is enough, because every request has its own greenlet."""

    fixed_count = 1
    series: LoadCollector  # over all starts
    latest: LoadRun | MasterRun | None = None

    @task
    def offer(self) -> None:
        """Run the whole load, then end the test."""
        if isinstance(self.environment.runner, WorkerRunner):  # it sends its share without users
            Event().wait()
        run_to_end(self.environment, self.load)
        raise StopUser  # otherwise Locust runs the task again first

    def load(self) -> LoadRun:
        run = LoadRun(_new_settings(self.host), self.series, self.environment.events.request.fire)
        Mix.latest = run
        return run

    @classmethod
    def figures(cls) -> tuple[LiveFigures, float] | None:
        """The figures of the latest run, and the seconds since its start."""
        return None if cls.latest is None else (cls.latest.monitor.figures, cls.latest.monitor.now)


def _new_settings(host: str | None) -> RunSettings:
    """The settings of a run with a folder of its own."""
    settings = from_environment(os.environ, host)
    return replace(settings, out=settings.out / datetime.now(UTC).strftime("%Y%m%dT%H%M%S"))


def _prepare(environment: Any, runner: Any, **_: Any) -> None:
    if isinstance(runner, WorkerRunner):
        WorkerLoad(runner, lambda target: from_environment(os.environ, target))
        return

    def new_run(pool: WorkerPool) -> MasterRun:
        run = MasterRun(_new_settings(environment.host), Mix.series, pool)
        Mix.latest = run
        return run

    try:
        settings = from_environment(os.environ, environment.host)
        Mix.series = LoadCollector(settings.slos, settings.experiment, settings.configuration)
        MetricsEndpoint(Mix.series, settings.metrics)
        if isinstance(runner, MasterRunner):
            LocustMaster(environment, new_run)
        if environment.web_ui is not None:
            add_tab(environment.web_ui, Mix.figures)
    except UsageError as error:
        print(f"vllm-slo load: {error}", file=sys.stderr)
        sys.exit(2)


events.init.add_listener(_prepare)  # type: ignore[no-untyped-call]
