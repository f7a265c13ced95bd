"""Wrong values are refused when the chart is rendered, each with its place and what would work."""

from typing import Any

import pytest

from tests.compose.helm.chart import require_helm, template
from tests.compose.helm.installs import STUB

pytestmark = pytest.mark.slow

RENDER = "add -f chart-values/values.yaml, which `vllm-slo deploy render --slos FILE --out chart-values` writes"


@pytest.fixture(scope="module", autouse=True)
def _helm() -> None:
    require_helm()


BY_THE_SCHEMA = [
    pytest.param({"ports": {"engine": 99999}}, "at '/ports/engine': maximum: got 99,999, want 65,535", id="a port"),
    pytest.param(
        {"workload": {"kind": "DaemonSet"}},
        "at '/workload/kind': value must be one of 'Deployment', 'StatefulSet', 'none'",
        id="a kind",
    ),
    pytest.param({"podMonitr": {}}, "additional properties 'podMonitr' not allowed", id="an unknown key"),
    pytest.param(
        {"podMonitor": {"enable": True}},
        "at '/podMonitor': additional properties 'enable' not allowed",
        id="an unknown key below",
    ),
    pytest.param({"image": {"repository": "vllm-slo:0.2"}}, "at '/image/repository': ", id="a tag in the name"),
    pytest.param({"stop": {"drain": "60s"}}, "at '/stop/drain': got string, want integer", id="a unit"),
    pytest.param(
        {"workload": {"pod": {"containers": []}}}, "at '/workload/pod/containers'", id="what the chart writes"
    ),
    pytest.param({"scrape": {"interval": "15"}}, "at '/scrape/interval'", id="no unit"),
    pytest.param({"alertmanagerConfig": {"channel": '"}'}}, "at '/alertmanagerConfig/channel'", id="a quote"),
]
BY_THE_TEMPLATES = [
    pytest.param(
        {"ports": {"relay": 8000}},
        "ports: engine, relay and metrics share the address of the pod; use three different ports",
        id="equal ports",
    ),
    pytest.param(
        {"scrapeAnnotations": {"enabled": True}},
        "scrapeAnnotations.enabled: each sidecar would be scraped twice; disable podMonitor",
        id="two scrapes",
    ),
    pytest.param(
        {"scrape": {"interval": "1m"}},
        "stop.linger: 17 s is not longer than the scrape interval, 1m, so the final counts may be lost; use 62",
        id="a short linger",
    ),
    pytest.param({"stop": {"delay": 2}}, "stop.delay: 2 s is shorter than the readiness probe", id="a short delay"),
    pytest.param(
        {"autoscaling": {"enabled": True}, "workload": {"kind": "none"}},
        "autoscaling.enabled: workload.kind is none, so there is nothing to scale",
        id="nothing to scale",
    ),
    pytest.param(
        {"autoscaling": {"minReplicas": 9}}, "autoscaling.minReplicas: 9 is above maxReplicas, 8", id="replicas"
    ),
    pytest.param(
        {"dashboards": {"enabled": False, "grafanaOperator": {"enabled": True}}},
        "dashboards.grafanaOperator.enabled: a GrafanaDashboard reads the ConfigMap of a dashboard",
        id="no ConfigMaps",
    ),
    pytest.param(
        {"sidecar": {"args": ["--drain=3s"]}},
        "sidecar.args: --drain is set by the chart; use the value for it",
        id="a flag of the chart",
    ),
]


@pytest.fixture(scope="module")
def refusals() -> str:
    """What Helm says about all wrong values, in two runs: the templates are rendered only after the schema."""
    found = ""
    for cases in (BY_THE_SCHEMA, BY_THE_TEMPLATES):
        values: dict[str, Any] = dict(STUB)
        for case in cases:
            wrong = case.values[0]
            assert isinstance(wrong, dict)
            for key, value in wrong.items():
                values[key] = {**values.get(key, {}), **value}
        done = template(values=values)
        assert done.returncode == 1
        found += done.stderr
    return found


@pytest.mark.parametrize("values, message", [*BY_THE_SCHEMA, *BY_THE_TEMPLATES])
def test_a_wrong_value_is_refused_with_all_others(values: dict[str, Any], message: str, refusals: str) -> None:
    assert message in refusals


def test_all_that_is_missing_is_listed_in_one_run() -> None:
    done = template()
    assert done.returncode == 1
    assert f"slos: empty, but the sidecar needs the SLO file; {RENDER}\n" in done.stderr
    assert f"prometheusRule.enabled: there are no rules; {RENDER}\n" in done.stderr
    assert f"dashboards.enabled: there are no boards; {RENDER}\n" in done.stderr
