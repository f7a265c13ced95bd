"""Labels of our series that collide with labels of targets, against a fake Prometheus and a real one."""

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from compose.programs.tools import Tools
from exporters.analysis.label_collisions import Collision, collisions
from exporters.analysis.prometheus_api import Prometheus, PrometheusError, QueryError
from tests.support.fake_prometheus import FakePrometheus
from tests.support.prometheus_process import prometheus
from tests.support.waiting import wait_until

HONOR = "set honor_labels: true for the job (honorLabels in a PodMonitor or ServiceMonitor)"
SCRAPE = f"scrape the sidecars themselves; if the page is of a federation, a collector or a Pushgateway, {HONOR}"


def vector(*series: dict[str, str]) -> tuple[int, Any]:
    return 200, {"data": {"resultType": "vector", "result": [{"metric": each, "value": [0, "1"]} for each in series]}}


@pytest.mark.parametrize(
    "label, fix",
    [
        pytest.param(
            "endpoint",
            "update the sidecars: this version writes route, earlier ones endpoint; then render rules and boards",
            id="endpoint",
        ),
        pytest.param("pod", SCRAPE, id="a label of every target"),
        pytest.param(
            "model",
            "rename or remove the target label model (labels, relabel_configs, podTargetLabels, targetLabels), "
            f"or {HONOR}",
            id="a label that was added to targets",
        ),
    ],
)
def test_a_collision_has_its_series_reason_and_fix(label: str, fix: str) -> None:
    series = {"__name__": "llm_requests_total", "job": "llm"}, {"__name__": "llm_active_requests", "job": "llm"}
    with FakePrometheus(lambda _, __: vector(*series), labels=["__name__", f"exported_{label}", "model"]) as fake:
        (found,) = collisions(Prometheus(fake.url), 0.0, 300.0)
    ((path, parameters),) = fake.requests
    selector = f'{{__name__=~"llm_[a-z0-9_]+",exported_{label}!=""}}'
    assert (path, parameters) == (
        "/api/v1/query",
        {"query": f"count by (__name__, job) ({selector})", "time": "300.000"},
    )
    assert found.found == (
        f"exported_{label} on llm_active_requests and 1 more series of the job llm: the scraped page and the target "
        f"both have the label {label}, and with honor_labels: false the target's keeps the name"
    )
    assert found.fix == fix


@pytest.mark.parametrize("labels", [["endpoint", "route", "exported"], ["exported_endpoint"]])
def test_other_labels_and_labels_of_older_series_do_not_collide(labels: list[str]) -> None:
    with FakePrometheus(lambda _, __: vector(), labels=labels) as fake:
        assert collisions(Prometheus(fake.url), 0.0, 300.0) == []


def test_a_server_that_lists_no_labels_is_an_error() -> None:
    with (
        FakePrometheus(lambda _, __: (200, {"data": {}})) as fake,
        pytest.raises(QueryError, match="not from Prometheus"),
    ):
        collisions(Prometheus(fake.url), 0.0, 300.0)


async def test_a_real_prometheus_renames_the_labels_of_the_page(tools: Tools, tmp_path: Path) -> None:
    async def page(_: web.Request) -> web.Response:
        lines = 'llm_requests_total{job="a",instance="b",route="c"} 1\nother_total{pod="d"} 1\n'
        return web.Response(text=lines, headers={"Content-Type": "text/plain; version=0.0.4"})

    app = web.Application()
    app.router.add_get("/metrics", page)
    async with TestServer(app) as server, prometheus(tools.prometheus, tmp_path, server.port or 0, job="llm") as url:
        found: list[Collision] = []

        def are_found() -> bool:
            now = time.time()
            with suppress(PrometheusError):  # it is starting
                found[:] = collisions(Prometheus(url), now - 300, now)
            return bool(found)

        await asyncio.to_thread(wait_until, are_found)
    assert found == [Collision(label, ["llm_requests_total"], ["llm"]) for label in ("instance", "job")]
