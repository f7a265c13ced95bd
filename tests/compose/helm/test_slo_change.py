"""A change of the SLO file changes what reads it, and restarts no pod; a change of a pod's values restarts it."""

from pathlib import Path
from typing import Any

import pytest

from exporters.vocabulary.slo_file import SHIPPED
from tests.compose.helm.chart import Object, render, render_slos, require_helm
from tests.compose.helm.installs import OPERATORS, STUB
from tests.compose.helm.object_validation import name_of

pytestmark = pytest.mark.slow

SLOS = SHIPPED.read_text(encoding="utf-8")


@pytest.fixture(scope="module", autouse=True)
def _helm() -> None:
    require_helm()


def changed(before: list[Object], after: list[Object]) -> set[str]:
    first, second = ({name_of(each): each for each in objects} for objects in (before, after))
    # A random token, unless Helm reads the installed one from the cluster.
    return {name for name in first.keys() | second.keys() if first.get(name) != second.get(name)} - {
        "Secret/vllm-admin"
    }


@pytest.mark.parametrize(
    "old, new, expected",
    [
        pytest.param("# ", "#  ", {"ConfigMap/vllm-slos"}, id="a comment"),
        pytest.param("threshold: 5s", "threshold: 2s", {"ConfigMap/vllm-slos", "PrometheusRule/vllm-slo"}, id="SLO"),
        pytest.param(
            "scrape_interval: 15s",
            "scrape_interval: 10s",
            {"ConfigMap/vllm-slos", "PrometheusRule/vllm-slo", "PodMonitor/vllm-sidecar"},
            id="scrape interval",
        ),
    ],
)
@pytest.mark.long
def test_a_change_of_the_slo_file_restarts_no_pod(old: str, new: str, expected: set[str], tmp_path: Path) -> None:
    assert old in SLOS
    before, after = (
        render(render_slos(text, tmp_path / name), values=OPERATORS)
        for name, text in (("before", SLOS), ("after", SLOS.replace(old, new)))
    )
    found = changed(before, after)
    assert {name for name in found if not name.startswith("ConfigMap/vllm-slo-")} == expected


@pytest.fixture(scope="module")
def installed() -> list[Object]:
    return render(values=STUB)


@pytest.mark.parametrize(
    "values, expected",
    [
        pytest.param({"slos": "version: 1 # changed\n"}, {"ConfigMap/vllm-slos"}, id="SLO file"),
        pytest.param({"rules": {"groups": []}}, {"PrometheusRule/vllm-slo"}, id="rules"),
        pytest.param(
            {"disruptionBudget": {"maxUnavailable": 2}, "networkPolicy": {"monitoringNamespace": "other"}},
            {"NetworkPolicy/vllm", "PodDisruptionBudget/vllm"},
            id="values of others",
        ),
    ],
)
def test_a_value_that_no_pod_reads_restarts_none(
    values: dict[str, Any], expected: set[str], installed: list[Object]
) -> None:
    assert changed(installed, render(values={**STUB, **values})) == expected


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({"image": {"tag": "9.9.9"}}, id="image"),
        pytest.param({"stop": {"drain": 30}}, id="stop"),
        pytest.param({"adminSecret": "other"}, id="secret"),
        pytest.param({"metricsTls": {"secret": "certificate"}}, id="certificate"),
        pytest.param({"sidecar": {"args": ["--workers=2"]}}, id="flags of the sidecar"),
    ],
)
def test_a_value_that_a_process_reads_at_its_start_restarts_the_pods(
    values: dict[str, Any], installed: list[Object]
) -> None:
    assert "Deployment/vllm" in changed(installed, render(values={**STUB, **values}))
