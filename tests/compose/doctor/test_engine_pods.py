"""Engines of Kubernetes without a sidecar and pods that are named by their address, planted in a real Prometheus."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from compose.cli import main
from compose.doctor.engine_pods import EnginePod, engine_pods, read_engine_pods
from compose.doctor.finding import Finding, State, Unread
from compose.programs.tools import Tools
from exporters.analysis.prometheus_api import Prometheus, PrometheusError
from exporters.vocabulary.slo_file import SHIPPED, Source, load
from tests.support.prometheus_process import prometheus
from tests.support.waiting import wait_until

SPEC = load(SHIPPED)
INSTALL = yaml.safe_load_all((Path(__file__).parents[1] / "helm/golden/smallest.yaml").read_text(encoding="utf-8"))
(POD_MONITOR,) = (each for each in INSTALL if each["kind"] == "PodMonitor")
SERIES = "kube_pod_container_info and kube_pod_init_container_info of kube-state-metrics"
COST = "their requests are in no series, no budget and no alert, unless a sidecar in front of them measures them"
FIX = (
    "install them with the chart compose/helm/vllm-slo, or add the sidecar by its template (docs/kubernetes.md, Other "
    "workloads)"
)


def pods(kind: str, name: str, count: int, *, sidecar: bool = False) -> list[EnginePod]:
    return [EnginePod("inference", f"{name}-{number}", (kind, name), sidecar) for number in range(count)]


@pytest.mark.parametrize(
    "found, text",
    [
        pytest.param(
            [*pods("ReplicaSet", "vllm-6d8f", 2, sidecar=True), *pods("StatefulSet", "chat", 2)],
            "2 of 4 have no sidecar: StatefulSet inference/chat (chat-0, chat-1)",
            id="one of two controllers",
        ),
        pytest.param(
            [*pods("StatefulSet", "chat", 4), *pods("<none>", "trial", 1)],
            "5 of 5 have no sidecar: StatefulSet inference/chat (chat-0, chat-1, chat-2, ...); inference: trial-0",
            id="many pods, and one without a controller",
        ),
    ],
)
def test_pods_without_a_sidecar_are_named_by_their_controller(found: list[EnginePod], text: str) -> None:
    assert engine_pods(found, SPEC) == Finding(State.WARNING, SERIES, text, COST, FIX)


@pytest.mark.parametrize(
    "found, expected",
    [
        pytest.param(pods("StatefulSet", "a", 2, sidecar=True), (State.OK, "all 2 have a sidecar", ""), id="all"),
        pytest.param(
            [],
            (
                State.NOT_CHECKED,
                "no series of kube-state-metrics has the image of an engine",
                "in Kubernetes: scrape kube-state-metrics with honor_labels: true",
            ),
            id="no series",
        ),
        pytest.param(Unread("refused", "start it"), (State.NOT_CHECKED, "refused", "start it"), id="not read"),
    ],
)
def test_without_such_pods_nothing_is_reported(
    found: Sequence[EnginePod] | Unread, expected: tuple[State, str, str]
) -> None:
    state, text, fix = expected
    assert engine_pods(found, SPEC) == Finding(state, SERIES, text, fix=fix)


def test_rules_without_a_sidecar_need_none() -> None:
    finding = engine_pods(pods("StatefulSet", "chat", 1), replace(SPEC, source=Source.ENGINE))
    assert (finding.state, finding.found) == (State.NOT_CHECKED, "the rules read vLLM alone, without a sidecar")


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


@pytest.mark.parametrize(
    "extra, relabelings, engines, names",
    [
        pytest.param(
            NOT_PATCHED,
            [],
            ("warning", "1 of 2 have no sidecar: StatefulSet inference/chat (chat-0)"),
            ("warning", "127.0.0.1:{port} is the pod inference/vllm-0"),
            id="planted",
        ),
        pytest.param(
            "",
            POD_MONITOR["spec"]["podMetricsEndpoints"][0]["relabelings"],
            ("ok", "all 1 have a sidecar"),
            ("ok", "no pod is named by its address"),
            id="the relabelings of the PodMonitor",
        ),
    ],
)
async def test_a_planted_fault_is_found(
    extra: str,
    relabelings: list[dict[str, Any]],
    engines: tuple[str, str],
    names: tuple[str, str],
    tools: Tools,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    keys = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    async with (
        serving(PATCHED + OTHERS + extra) as port,
        prometheus(
            tools.prometheus,
            tmp_path,
            port,
            job="vllm-slo-sidecar",
            target_labels={"__meta_kubernetes_namespace": "inference", "__meta_kubernetes_pod_name": "vllm-0"},
            relabel_configs=[{keys.get(key, key): value for key, value in each.items()} for each in relabelings],
        ) as url,
    ):
        await asyncio.to_thread(wait_until, lambda: shows_pods(url))
        await asyncio.to_thread(main, ["doctor", "--format", "json", "--prometheus", url])
        instances = {each.labels["instance"] for each in Prometheus(url).query("up")}
    checks = {each["check"]: each for each in json.loads(capsys.readouterr().out)["checks"]}
    state, text = names
    assert (checks["engine pods"]["state"], checks["engine pods"]["found"]) == engines
    assert (checks["target names"]["state"], checks["target names"]["found"]) == (state, text.format(port=port))
    assert instances == ({"inference/vllm-0"} if relabelings else {f"127.0.0.1:{port}"})


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
