"""The same load with Locust's web UI: `locust -f loadgen/locustfile.py`, configured by VLLM_SLO_* variables.

Every start creates a folder under VLLM_SLO_OUT. One process sends all requests: with --master and --worker, Locust
assigns the only user to one worker; `vllm-slo load run --workers` splits the requests. With VLLM_SLO_METRICS every
process exposes metrics, at 0 in all but that worker, so sums are correct. Two processes on one machine need two
addresses.
"""

import os
import sys
from dataclasses import replace
from datetime import UTC, datetime
from time import monotonic
from typing import Any

from locust import events

from exporters.errors import UsageError
from loadgen.live_figures import LiveFigures
from loadgen.load_metrics import LoadCollector
from loadgen.load_run import LoadRun
from loadgen.locust_tab import add_tab
from loadgen.locust_user import OpenLoopUser
from loadgen.metrics_endpoint import MetricsEndpoint
from loadgen.run_settings import from_environment


class Mix(OpenLoopUser):
    """Runs the scenario of VLLM_SLO_SCENARIO."""

    series: LoadCollector  # over all starts
    latest: LoadRun | None = None

    def load(self) -> LoadRun:
        settings = from_environment(os.environ, self.host)
        folder = settings.out / datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        Mix.latest = LoadRun(replace(settings, out=folder), self.series, self.environment.events.request.fire)
        return Mix.latest

    @classmethod
    def figures(cls) -> tuple[LiveFigures, float] | None:
        """The figures of the latest run, and the seconds since its start."""
        run = cls.latest
        return None if run is None else (run.dispatcher.figures, monotonic() - run.dispatcher.start)


def _check_settings(environment: Any, **_: Any) -> None:
    try:
        settings = from_environment(os.environ, environment.host)
        Mix.series = LoadCollector(settings.slos)
        MetricsEndpoint(Mix.series, settings.metrics)
        if environment.web_ui is not None:
            add_tab(environment.web_ui, Mix.figures)
    except UsageError as error:
        print(f"vllm-slo load: {error}", file=sys.stderr)
        sys.exit(2)


events.init.add_listener(_check_settings)  # type: ignore[no-untyped-call]
