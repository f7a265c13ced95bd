"""For plain Locust, `locust -f loadgen/locustfile.py`: the same load with Locust's own web page, set by VLLM_SLO_*.

Every start makes a folder of its own under VLLM_SLO_OUT. One process offers all of it: with --master and --workers,
Locust gives the one user to one worker. Under VLLM_SLO_METRICS every process shows its own series as long as it lives,
all but that worker's at 0, so their sum is right; two of them on one machine would need two addresses.
"""

import os
import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from locust import events

from exporters.errors import UsageError
from loadgen.load_metrics import LoadSeries
from loadgen.load_run import Load
from loadgen.locust_user import OpenLoop
from loadgen.metrics_page import Page
from loadgen.run_settings import from_environment


class Mix(OpenLoop):
    """Offers the scenario of VLLM_SLO_SCENARIO."""

    series: LoadSeries  # over all starts

    def load(self) -> Load:
        settings = from_environment(os.environ, self.host)
        folder = settings.out / datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        return Load(replace(settings, out=folder), self.series, self.environment.events.request.fire)


def _check_before_the_page_opens(environment: Any, **_: Any) -> None:
    try:
        settings = from_environment(os.environ, environment.host)
        Mix.series = LoadSeries(settings.slos)
        Page(Mix.series, settings.metrics)
    except UsageError as error:
        print(f"vllm-slo load: {error}", file=sys.stderr)
        sys.exit(2)


events.init.add_listener(_check_before_the_page_opens)  # type: ignore[no-untyped-call]
