"""Finds pods with an engine and without a sidecar, in the series of kube-state-metrics."""

from collections.abc import Sequence
from dataclasses import dataclass

from compose.doctor.finding import Finding, State, Unread
from exporters.analysis.prometheus_api import Prometheus
from exporters.vocabulary.slo_file import SloFile, Source

_MOST_NAMES = 3
"""Pods that are named per controller."""

# The last part of the name of an image, because the folders of a registry may have any name.
_ENGINE = 'image=~"(.*/)?[^/]*(vllm|sglang|tensorrt-?llm|llama.cpp|text-generation-inference)[^/]*"'
_OURS = "(.*/)?vllm-slo[^/]*"
# With honor_labels: false, `pod` is the pod of kube-state-metrics itself.
_NOT_RENAMED = 'exported_pod=""'
_ENGINE_PODS = (
    "group by (namespace, pod, created_by_kind, created_by_name) ("
    f"kube_pod_info{{{_NOT_RENAMED}}} * on (namespace, pod) group_left () "
    f'group by (namespace, pod) (kube_pod_container_info{{{_ENGINE}, image!~"{_OURS}", {_NOT_RENAMED}}})'
    ' unless on (namespace, pod) (kube_pod_status_phase{phase=~"Succeeded|Failed"} == 1))'
)
_SIDECAR_PODS = (
    f'group by (namespace, pod) (kube_pod_container_info{{image=~"{_OURS}", {_NOT_RENAMED}}}'
    f' or kube_pod_init_container_info{{image=~"{_OURS}", {_NOT_RENAMED}}})'
)


@dataclass(frozen=True, slots=True)
class EnginePod:
    """A pod with the image of an engine; `owner` is the kind and the name of its controller."""

    namespace: str
    name: str
    owner: tuple[str, str]
    has_sidecar: bool


def read_engine_pods(prometheus: Prometheus) -> list[EnginePod]:
    """The pods of engines, except those that have ended; none without kube-state-metrics.

    Raises:
        PrometheusError: the server cannot be read.
    """
    with_sidecar = {(each.labels["namespace"], each.labels["pod"]) for each in prometheus.query(_SIDECAR_PODS)}
    pods = [each.labels for each in prometheus.query(_ENGINE_PODS)]
    return [
        EnginePod(
            each["namespace"],
            each["pod"],
            (each.get("created_by_kind", ""), each.get("created_by_name", "")),
            (each["namespace"], each["pod"]) in with_sidecar,
        )
        for each in sorted(pods, key=lambda labels: (labels["namespace"], labels["pod"]))
    ]


def engine_pods(pods: Sequence[EnginePod] | Unread, spec: SloFile) -> Finding:
    """Whether each pod with an engine has a sidecar, unless the rules need none."""
    looked_at = "kube_pod_container_info and kube_pod_init_container_info of kube-state-metrics"
    if isinstance(pods, Unread):
        return pods.not_checked(looked_at)
    if spec.source is Source.ENGINE:
        return Unread("the rules read vLLM alone, without a sidecar").not_checked(looked_at)
    if not pods:
        return Unread(
            "no series of kube-state-metrics has the image of an engine",
            "in Kubernetes: scrape kube-state-metrics with honor_labels: true",
        ).not_checked(looked_at)
    lacking = [pod for pod in pods if not pod.has_sidecar]
    if not lacking:
        return Finding(State.OK, looked_at, f"all {len(pods)} have a sidecar")
    owners = dict.fromkeys((pod.namespace, pod.owner) for pod in lacking)
    found = "; ".join(
        _controller(namespace, owner, [pod.name for pod in lacking if (pod.namespace, pod.owner) == (namespace, owner)])
        for namespace, owner in owners
    )
    return Finding(
        State.WARNING,
        looked_at,
        f"{len(lacking)} of {len(pods)} have no sidecar: {found}",
        "their requests are in no series, no budget and no alert, unless a sidecar in front of them measures them",
        "install them with the chart compose/helm/vllm-slo, or add the sidecar by its template "
        "(docs/kubernetes.md, Other workloads)",
    )


def _controller(namespace: str, owner: tuple[str, str], pods: Sequence[str]) -> str:
    kind, name = owner
    listed = ", ".join(pods[:_MOST_NAMES]) + (", ..." if len(pods) > _MOST_NAMES else "")
    # kube-state-metrics writes <none> for a pod without a controller.
    return f"{kind} {namespace}/{name} ({listed})" if kind not in ("", "<none>") else f"{namespace}: {listed}"
