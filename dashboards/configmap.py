"""Dashboards as Kubernetes ConfigMaps, which the sidecar of Grafana's chart loads by their label."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from alerts.prometheusrule import checked_labels
from alerts.rule_groups import dump
from exporters.errors import UsageError

HEADER = """\
---
# Made by `vllm-slo dashboards render --format configmap` from the SLO file; change that file and render again.
"""

FOLDER = "vllm-slo"
_LABEL, _FOLDER = "grafana_dashboard", "grafana_folder"
"""The default label and folder annotation that the sidecar of Grafana's chart reads."""

_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Placement:
    """Namespace and labels of the ConfigMaps, and the folder of the dashboards in Grafana."""

    namespace: str | None = None
    """None leaves the choice to kubectl."""
    labels: Mapping[str, str] = field(default_factory=dict)
    folder: str = FOLDER


def config_map(name: str, file_name: str, text: str, placement: Placement) -> str:
    """The ConfigMap of one dashboard; there is one each, because a ConfigMap is limited to 1 MiB."""
    metadata = {
        "name": name,
        **({"namespace": placement.namespace} if placement.namespace else {}),
        "labels": {_LABEL: "1", **placement.labels},
        "annotations": {_FOLDER: placement.folder},
    }
    return HEADER + dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {file_name: text}})


def parse_placement(namespace: str | None, labels: Iterable[str], folder: str | None) -> Placement:
    """The placement from the flags.

    Raises:
        UsageError: Kubernetes would reject one of them.
    """
    if namespace is not None and not _NAMESPACE.fullmatch(namespace):
        raise UsageError(
            f"--namespace: {namespace!r} is no name of a Kubernetes namespace; use up to 63 lower-case letters, digits "
            "and -, beginning and ending with a letter or digit"
        )
    return Placement(namespace, checked_labels(labels), FOLDER if folder is None else folder)
