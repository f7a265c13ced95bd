"""Every object of every combination of values is valid by its schemas, and the schemas refuse wrong ones."""

import json
import re
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.compose.helm.chart import ROOT, Object, objects, one, render, require_helm, run
from tests.compose.helm.installs import OPTIONS, STUB, all_pairs, pairs, pairwise, values_of, write
from tests.compose.helm.object_validation import (
    VERSIONS,
    core_error,
    custom_errors,
    everything,
    is_custom,
    why_no_custom_schemas,
)

pytestmark = pytest.mark.long

COMBINATIONS = pairwise(30)


@pytest.fixture(scope="module", autouse=True)
def _helm() -> None:
    require_helm()


@pytest.fixture(scope="module")
def rendered() -> list[Object]:
    """The objects of all operators, with the shipped SLO file."""
    return everything()


def test_the_combinations_contain_each_pair_of_options() -> None:
    assert len(OPTIONS) > 10
    assert all_pairs() - set().union(*map(pairs, COMBINATIONS)) == set()


@pytest.fixture(scope="module")
def all_combined() -> list[Object]:
    """The objects of all combinations, each distinct one once."""
    found = [each for combination in COMBINATIONS for each in render(values={**STUB, **values_of(combination)})]
    return list({json.dumps(each, sort_keys=True): each for each in found}.values())


def test_every_object_of_every_combination_is_valid(all_combined: list[Object]) -> None:
    core = [each for each in all_combined if not is_custom(each)]
    assert [error for each in core for version in VERSIONS if (error := core_error(each, version))] == []
    assert {each["kind"] for each in all_combined} == {
        *("AlertmanagerConfig", "ConfigMap", "Deployment", "GrafanaDashboard", "NetworkPolicy", "PodDisruptionBudget"),
        *("PodMonitor", "PrometheusRule", "ScaledObject", "Secret", "Service", "StatefulSet"),
    }


def test_lint_accepts_the_chart_without_values_and_every_combination(tmp_path: Path) -> None:
    chart = ROOT / "compose/helm/vllm-slo"
    assert run("lint", "--strict", chart).returncode == 0
    for combination in COMBINATIONS:
        values = write({**STUB, **values_of(combination)}, tmp_path / "values.yaml")
        done = run("lint", "--strict", "--quiet", chart, "--values", values)
        assert (done.returncode, done.stdout) == (0, "")


def add(*path: str | int) -> Callable[[Any], None]:
    """Adds an unknown field to the object at this path."""

    def change(each: Any) -> None:
        for key in path:
            each = each[key]
        each["unknwn"] = "x"

    return change


def put(value: object, *path: str | int) -> Callable[[Any], None]:
    def change(each: Any) -> None:
        for key in path[:-1]:
            each = each[key]
        each[path[-1]] = value

    return change


@pytest.mark.parametrize(
    "kind, change, error",
    [
        pytest.param("Service", add("spec", "ports", 0), "Service/vllm: spec.ports.0: ", id="Service"),
        pytest.param(
            "Deployment",
            add("spec", "template", "spec", "initContainers", 0, "securityContext"),
            "Deployment/vllm: spec.template.spec.initContainers.0.securityContext: ",
            id="Deployment",
        ),
        pytest.param("NetworkPolicy", add("spec", "ingress", 0), "NetworkPolicy/vllm: spec.ingress.0: ", id="policy"),
        pytest.param("PodDisruptionBudget", add("spec"), "PodDisruptionBudget/vllm: spec: ", id="disruption budget"),
    ],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_refuses_an_unknown_field(
    kind: str, change: Callable[[Any], None], error: str, version: str, rendered: list[Object]
) -> None:
    broken = deepcopy(one(rendered, kind))
    change(broken)
    assert core_error(broken, version).startswith(error)
    assert "'unknwn' was unexpected" in core_error(broken, version)


UNKNOWN = "'\"unknwn\"' does not exist in type"
BROKEN: list[tuple[str, str, Callable[[Any], None], str]] = [
    ("PodMonitor", "", add("spec", "podMetricsEndpoints", 0), UNKNOWN),
    ("PodMonitor", "", put("15 s", "spec", "podMetricsEndpoints", 0, "interval"), "interval must match pattern"),
    ("PrometheusRule", "", add("spec", "groups", 0, "rules", 0), UNKNOWN),
    ("AlertmanagerConfig", "", add("spec", "receivers", 0, "pagerdutyConfigs", 0), UNKNOWN),
    ("AlertmanagerConfig", "", put("==", "spec", "route", "matchers", 0, "matchType"), "matchType"),
    ("GrafanaDashboard", "vllm-slo-fleet", add("spec", "configMapRef"), UNKNOWN),
    ("ScaledObject", "", add("spec", "advanced", "horizontalPodAutoscalerConfig"), UNKNOWN),
    ("ScaledObject", "", put("2", "spec", "minReplicaCount"), "minReplicaCount must be integer"),
    ("Application", "", add("spec", "syncPolicy", "automated"), UNKNOWN),
    ("HelmRelease", "", add("spec", "driftDetection"), UNKNOWN),
]


def test_custom_resources_are_valid_and_their_operators_refuse_wrong_ones(
    rendered: list[Object], all_combined: list[Object]
) -> None:
    """One run for all, because each start of the compiler takes seconds."""
    if reason := why_no_custom_schemas():
        pytest.skip(reason)
    page = (ROOT / "docs/engine-only.md").read_text(encoding="utf-8")
    documented = re.findall(r"```yaml\n(apiVersion: .+?)```", page, re.DOTALL)
    assert len(documented) == 1
    examples = [each for path in (ROOT / "compose/gitops").glob("*/*.yaml") for each in objects(path.read_text())]
    assert {each["kind"] for each in examples} == {"Application", "GitRepository", "HelmRelease"}
    written = (*examples, *map(yaml.safe_load, documented))
    valid = [*(each for each in (*rendered, *all_combined) if is_custom(each)), *written]
    broken = []
    for kind, name, change, _ in BROKEN:
        broken.append(deepcopy(one((*rendered, *examples), kind, name)))
        change(broken[-1])
    errors = custom_errors([*valid, *broken])
    assert errors[: len(valid)] == [""] * len(valid)
    for (_, _, _, text), error in zip(BROKEN, errors[len(valid) :], strict=True):
        assert text in error
