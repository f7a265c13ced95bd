"""Values of installs: five typical ones with golden files, and combinations that cover each pair of options."""

from collections.abc import Mapping
from itertools import combinations, product
from pathlib import Path
from random import Random
from typing import Any

import yaml

from tests.compose.helm.chart import EXAMPLES

STUB = {
    "slos": "version: 1\n",
    "rules": {"groups": [{"name": "g", "interval": "15s", "rules": [{"record": "a", "expr": "b"}]}]},
    "boards": {"vllm-slo-overview": {"file": "slo-overview.json", "json": "{}"}},
}
"""What `deploy render` writes, in short."""

TLS = {"secret": "metrics-certificate", "serverName": "metrics.vllm", "caSecret": "authority"}
OPERATORS = {
    "alertmanagerConfig": {"enabled": True},
    "autoscaling": {"enabled": True},
    "dashboards": {"grafanaOperator": {"enabled": True}},
}

INSTALLS: dict[str, Mapping[str, Any]] = {
    "smallest": {},
    "statefulset": yaml.safe_load((EXAMPLES / "statefulset.yaml").read_text()) | {"metricsTls": TLS},
    "operators": OPERATORS,
    "without-operators": {
        "podMonitor": {"enabled": False},
        "prometheusRule": {"enabled": False},
        "scrapeAnnotations": {"enabled": True},
        "adminSecret": "admin",
    },
    "another-charts-pods": {
        "workload": {"kind": "none"},
        "podLabels": {"app": "chat"},
        "ports": {"engine": 8010, "relay": 8000},
        "service": {"enabled": False},
    },
}

OPTIONS: dict[str, list[Mapping[str, Any]]] = {
    "workload": [{"workload": {"kind": kind}} for kind in ("Deployment", "StatefulSet", "none")],
    "cache": [{}, {"engine": {"cache": {"persistentVolumeClaim": {"claimName": "models"}}, "huggingFaceSecret": ""}}],
    "pod": [{}, {"workload": {"pod": {"nodeSelector": {"gpu": "h100"}, "volumes": [{"name": "x", "emptyDir": {}}]}}}],
    "labels": [{}, {"podLabels": {"app": "chat", "team": "a"}}],
    "scrapes": [
        {},
        {"podMonitor": {"enabled": False}},
        {"podMonitor": {"enabled": False}, "scrapeAnnotations": {"enabled": True}},
    ],
    "tls": [{}, {"metricsTls": {"secret": "certificate"}}, {"metricsTls": TLS}],
    "log": [{}, {"sidecar": {"requestLogGiB": 0, "args": ["--workers=2"]}}],
    "rules": [{}, {"prometheusRule": {"enabled": False}}],
    "dashboards": [
        {},
        {"dashboards": {"enabled": False}},
        {"dashboards": {"grafanaOperator": {"enabled": True}}},
    ],
    "alertmanager": [{}, {"alertmanagerConfig": {"enabled": True, "channel": "@on-call", "secret": "receivers"}}],
    "autoscaling": [{}, {"autoscaling": {"enabled": True, "selector": 'model="a"'}}],
    "network": [
        {},
        {"networkPolicy": {"enabled": False}},
        {"networkPolicy": {"clients": [{"podSelector": {"matchLabels": {"app": "gateway"}}}]}},
    ],
    "disruption": [{}, {"disruptionBudget": {"enabled": False}}, {"disruptionBudget": {"maxUnavailable": "25%"}}],
    "secret": [{}, {"adminSecret": "admin", "imagePullSecrets": [{"name": "registry"}]}],
    "service": [{}, {"service": {"enabled": False}}],
    "stop": [{}, {"stop": {"drain": 605, "delay": 10}}],
}

Combination = tuple[int, ...]


def allowed(first: tuple[str, int], second: tuple[str, int]) -> bool:
    """Whether the chart accepts two options together: a workload of another chart has no autoscaler."""
    return {first, second} != {("workload", 2), ("autoscaling", 1)}


def pairs(combination: Combination) -> set[tuple[tuple[str, int], tuple[str, int]]]:
    return set(combinations(zip(OPTIONS, combination, strict=True), 2))


def all_pairs() -> set[tuple[tuple[str, int], tuple[str, int]]]:
    found = set()
    for first, second in combinations(OPTIONS, 2):
        for numbers in product(range(len(OPTIONS[first])), range(len(OPTIONS[second]))):
            pair = (first, numbers[0]), (second, numbers[1])
            if allowed(*pair):
                found.add(pair)
    return found


def pairwise(count: int) -> list[Combination]:
    """Combinations of options that contain each pair at least once: the best of random ones, one after the other."""
    random, left, chosen = Random(1), all_pairs(), []  # noqa: S311 - not a secret
    for _ in range(count):
        drawn = [tuple(random.randrange(len(each)) for each in OPTIONS.values()) for _ in range(200)]
        candidates = [each for each in drawn if all(allowed(*pair) for pair in pairs(each))]
        best = max(candidates, key=lambda each: len(pairs(each) & left))
        left -= pairs(best)
        chosen.append(best)
    return chosen


def values_of(combination: Combination) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for options, number in zip(OPTIONS.values(), combination, strict=True):
        _merge(merged, options[number])
    return merged


def _merge(into: dict[str, Any], values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, Mapping):
            _merge(into.setdefault(key, {}), value)
        else:
            into[key] = value


def write(values: Mapping[str, Any], path: Path) -> Path:
    path.write_text(yaml.safe_dump(dict(values)))
    return path
