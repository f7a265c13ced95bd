"""TTFT with the streams that never got a token: the panel over the exporter's series in a real Prometheus."""

import math
from collections.abc import Iterator, Mapping

import pytest

from compose.programs.tools import Tools
from dashboards.boards.request_anatomy import BOARD
from dashboards.live.interpolation import expand
from dashboards.panels.range_totals import range_total_queries
from dashboards.queries.variables import VARIABLES
from exporters.analysis.prometheus_api import Prometheus
from exporters.records.messages import Finished
from exporters.sidecar.ingest.request_metrics import RequestMetrics
from exporters.vocabulary.signals import Outcome
from exporters.vocabulary.slo_file import SHIPPED, load, loads
from tests.dashboards.dashboard_files import STRICT_SLOS
from tests.dashboards.promql_history import limits, panel
from tests.support.openmetrics import whole
from tests.support.ports import free_port
from tests.support.prometheus_blocks import SCRAPE, prometheus_over
from tests.support.sample_records import finished

ALL, WITH_A_TOKEN = "TTFT of all streams", "Time to first token"
SCRAPES, START = 40, 1_700_000_000
NO_TOKEN = 600.0
TIMES = {"siso": 0.3, "lilo": 3.0, "silo": 1.0}


def ended(request_class: str, outcome: Outcome, ttft: float | None) -> Finished:
    wait = 30.0 if ttft is None else None
    return finished(request_class=request_class, outcome=outcome, ttft=ttft, wait_at_least=wait, tenant="other")


def requests_of_a_scrape() -> Iterator[Finished]:
    """One in ten of `siso` and all of `silo` have no token; `lilo` has invalid requests and empty responses."""
    for index in range(10):
        share = index / 10  # of 20 %, which is more than one bucket
        yield ended("lilo", Outcome.OK, TIMES["lilo"] * (1 + share / 5))
        yield ended("lilo", Outcome.CLIENT_ERROR, None)
        yield ended("lilo", Outcome.OK, None)
        yield ended("silo", Outcome.TIMEOUT_FIRST_TOKEN, None)
        yield (
            ended("siso", Outcome.OK, TIMES["siso"] * (1 + share / 5))
            if index
            else ended("siso", Outcome.UPSTREAM_ERROR, None)
        )


def lines() -> Iterator[str]:
    metrics = RequestMetrics(load(SHIPPED))
    metrics.add_model("tiny")
    for scrape in range(SCRAPES):
        for record in requests_of_a_scrape():
            metrics.record(record)
        for family in whole(metrics.collect(0.0)):
            for name, labels, value, *_ in family.samples:
                if "first_token" in name:
                    text = ",".join(f'{label}="{each}"' for label, each in labels.items())
                    yield f'{name}{{{text},instance="s:1"}} {value} {START + scrape * SCRAPE}\n'


@pytest.fixture(scope="module")
def prometheus(tools: Tools) -> Iterator[Prometheus]:
    # promtool reads the samples of a series together
    with prometheus_over(sorted(lines(), key=lambda line: line.partition(" ")[0]), free_port(), tools) as url:
        yield Prometheus(url)


def drawn(prometheus: Prometheus, title: str, quantile: str) -> Mapping[str, float]:
    (target,) = panel(BOARD, title)["targets"]
    values = dict.fromkeys(map(str, VARIABLES), ".*") | {"quantile": quantile, "__rate_interval": "2m"}
    return prometheus.query_by("class", expand(target["expr"], values), START + (SCRAPES - 1) * SCRAPE)


@pytest.mark.parametrize(
    "quantile, seconds",
    [
        pytest.param("0.5", {"siso": 0.33, "lilo": 3.3, "silo": NO_TOKEN}, id="p50"),
        pytest.param("0.85", {"siso": 0.35, "lilo": 3.5, "silo": NO_TOKEN}, id="nine in ten have a token"),
        pytest.param("0.95", {"siso": NO_TOKEN, "lilo": 3.57, "silo": NO_TOKEN}, id="p95 has no token"),
    ],
)
def test_a_stream_without_a_token_is_slower_than_any(
    prometheus: Prometheus, quantile: str, seconds: dict[str, float]
) -> None:
    assert drawn(prometheus, ALL, quantile) == pytest.approx(seconds, rel=0.1)


def test_the_median_of_the_totals_counts_streams_without_a_token(prometheus: Prometheus) -> None:
    query = expand(str(range_total_queries()["ttft_p50"]), {"__range": "5m"})
    medians = prometheus.query_by("class", query, START + (SCRAPES - 1) * SCRAPE)
    medians = {name: value for name, value in medians.items() if not math.isnan(value)}  # without NaN: no traffic
    assert medians == pytest.approx({"siso": 0.33, "lilo": 3.3, "silo": NO_TOKEN}, rel=0.1)


def test_time_to_first_token_is_that_of_streams_with_a_token(prometheus: Prometheus) -> None:
    assert drawn(prometheus, WITH_A_TOKEN, "0.95") == pytest.approx({"siso": 0.354, "lilo": 3.57}, rel=0.1)


def test_the_highest_bound_is_a_line_named_no_token() -> None:
    shown = panel(BOARD, ALL, loads(STRICT_SLOS))
    assert limits(shown) == [0.3, 2, NO_TOKEN]
    (mapping,) = shown["fieldConfig"]["defaults"]["mappings"]
    assert mapping["options"] == {"600": {"text": "no token", "index": 0}}
    assert "600 s" in shown["description"]


def test_a_threshold_above_all_bounds_is_the_highest_bound() -> None:
    spec = loads(STRICT_SLOS.replace("threshold: 2s", "threshold: 15m"))
    shown = panel(BOARD, ALL, spec)
    assert limits(shown) == [0.3, 900]
    assert shown["fieldConfig"]["defaults"]["mappings"][0]["options"] == {"900": {"text": "no token", "index": 0}}
