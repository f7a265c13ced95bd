"""Engines of Kubernetes without a sidecar and pods that are named by their address, planted in a real Prometheus."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from compose.doctor.engine_pods import EnginePod, engine_pods, read_engine_pods
from compose.doctor.finding import Finding, Place, Unread
from compose.doctor.prometheus_checks import target_names
from compose.doctor.prometheus_reading import read_prometheus
from compose.programs.tools import Tools
from exporters.analysis.prometheus_api import Prometheus, PrometheusError
from exporters.vocabulary.slo_file import SHIPPED, Source, load
from tests.compose.doctor.golden_findings import assert_golden
from tests.support.prometheus_process import prometheus
from tests.support.waiting import wait_until

SPEC = load(SHIPPED)
JOB = "vllm-slo-sidecar"
INSTALL = yaml.safe_load_all((Path(__file__).parents[1] / "helm/golden/smallest.yaml").read_text(encoding="utf-8"))
(POD_MONITOR,) = (each for each in INSTALL if each["kind"] == "PodMonitor")


def pods(kind: str, name: str, count: int, *, sidecar: bool = False) -> list[EnginePod]:
    return [EnginePod("inference", f"{name}-{number}", (kind, name), sidecar) for number in range(count)]


def test_pods_without_a_sidecar_are_named_by_their_controller() -> None:
    cases: dict[str, Sequence[EnginePod] | Unread] = {
        "one of two controllers": [*pods("ReplicaSet", "vllm-6d8f", 2, sidecar=True), *pods("StatefulSet", "chat", 2)],
        "many pods, and one without a controller": [*pods("StatefulSet", "chat", 4), *pods("<none>", "trial", 1)],
        "all have one": pods("StatefulSet", "a", 2, sidecar=True),
        "no series": [],
        "not read": Unread("refused", "start it"),
    }
    found = {name: engine_pods(each, SPEC) for name, each in cases.items()}
    found["rules without a sidecar"] = engine_pods(pods("StatefulSet", "b", 1), replace(SPEC, source=Source.ENGINE))
    assert_golden("engine pods", found)


def kube_state(pod: str, kind: str, images: dict[str, str], phase: str = "Running") -> str:
    """The series of kube-state-metrics for a pod; `images` by container, of which `sidecar` is a native sidecar."""
    where = f'namespace="inference",pod="{pod}",uid="1"'
    owner = f'created_by_kind="{kind}",created_by_name="{pod.rpartition("-")[0]}"'
    containers = [
        f"kube_pod_{'init_' * (name == 'sidecar')}container_info"
        f'{{{where},container="{name}",image="{image}",image_spec="x"}} 1'
        for name, image in images.items()
    ]
    return "\n".join(
        [f"kube_pod_info{{{where},{owner}}} 1", *containers, f'kube_pod_status_phase{{{where},phase="{phase}"}} 1', ""]
    )


VLLM, OURS = "docker.io/vllm/vllm-openai:v0.33.0", "registry.example.org:5000/vllm-slo:0.2.0"
PATCHED = kube_state("vllm-0", "ReplicaSet", {"vllm": VLLM, "sidecar": OURS})
OTHERS = (
    kube_state("web-0", "ReplicaSet", {"nginx": "registry.example.org/vllm-team/nginx:1"})
    + kube_state("download-0", "Job", {"sidecar": VLLM, "copy": "busybox:1"})
    + kube_state("benchmark-0", "Job", {"bench": VLLM}, phase="Succeeded")
)
NOT_PATCHED = kube_state("chat-0", "StatefulSet", {"chat": "ghcr.io/x/sglang:v0.5@sha256:ab"})


@pytest.mark.long
async def test_a_planted_fault_is_found_unless_it_is_corrected(tools: Tools, tmp_path: Path) -> None:
    """A pod without a sidecar, and a target named by its address, which the relabelings of the PodMonitor rename."""
    keys = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    relabelings = [
        {keys.get(key, key): value for key, value in each.items()}
        for each in POD_MONITOR["spec"]["podMetricsEndpoints"][0]["relabelings"]
    ]
    found: dict[str, Finding] = {}
    places: dict[str, str] = {}
    for name, extra, relabel_configs in (("planted", NOT_PATCHED, []), ("corrected", "", relabelings)):
        (tmp_path / name).mkdir()
        labels = {"__meta_kubernetes_namespace": "inference", "__meta_kubernetes_pod_name": "vllm-0"}
        flags: dict[str, Any] = {"job": JOB, "target_labels": labels, "relabel_configs": relabel_configs}
        async with (
            serving(PATCHED + OTHERS + extra) as port,
            prometheus(tools.prometheus, tmp_path / name, port, **flags) as url,
        ):
            await asyncio.to_thread(wait_until, lambda url=url: shows_pods(url))  # type: ignore[misc]
            read = await asyncio.to_thread(read_prometheus, Place(url, "--prometheus", named=True))
            found |= {f"{name}, engine pods": engine_pods(read.engine_pods, SPEC)}
            found |= {f"{name}, target names": target_names(read, SPEC)}
            places[str(port)] = "PORT"
    assert_golden("planted faults", found, places)


def shows_pods(url: str) -> bool:
    with suppress(PrometheusError):  # it is starting
        return bool(read_engine_pods(Prometheus(url)))
    return False


@asynccontextmanager
async def serving(page: str) -> AsyncIterator[int]:
    """The port of a target with this page."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=page, headers={"Content-Type": "text/plain; version=0.0.4"})

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    async with TestServer(app) as server:
        assert server.port
        yield server.port
