"""The objects of the chart agree with the SLO file, with each other, and with the pages that describe them."""

import argparse
import gzip
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts.group_limit import MAX_RULES, limited
from alerts.rule_file import rules
from alerts.rules.groups import Alert, Recording, document
from compose.cli import main
from compose.programs.tools import Tools
from compose.rolling_update.pod_manifest import POD
from dashboards.boards.registry import BOARDS
from exporters.sidecar import command
from exporters.sidecar.supervision.supervisor import STOP_TIMEOUT
from exporters.text.units import parse_duration
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.slo_file import SHIPPED, load
from tests.compose.helm.chart import (
    CHART,
    EXAMPLES,
    NAMESPACE,
    ROOT,
    Object,
    named,
    one,
    render,
    render_slos,
    require_helm,
    run,
)
from tests.compose.helm.golden_installs import GOLDEN, files
from tests.compose.helm.golden_installs import pod as pod_file
from tests.compose.helm.installs import OPERATORS
from tests.release.names import names

pytestmark = pytest.mark.slow

SPEC = load(SHIPPED)
PAGE = (ROOT / "docs/kubernetes.md").read_text(encoding="utf-8")
ONCALL = (ROOT / "docs/oncall.md").read_text(encoding="utf-8")
GENERATED = ROOT / "dashboards/generated"
SERVING = "vllm-slo/serving=true"
RULES = [rule for group in rules(SPEC, autoscaling=True) for rule in group.rules]
ALERTS = {rule.name for rule in RULES if isinstance(rule, Alert)}
RECORDED = {rule.series.name for rule in RULES if isinstance(rule, Recording)}


@pytest.fixture(scope="module", autouse=True)
def _helm() -> None:
    require_helm()


@pytest.fixture(scope="module")
def chart_values(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return render_slos(SHIPPED.read_text(encoding="utf-8"), tmp_path_factory.mktemp("chart-values"))


@pytest.fixture(scope="module")
def rendered(chart_values: Path) -> list[Object]:
    """The objects of all operators, with the shipped SLO file."""
    return render(chart_values, values=OPERATORS)


@pytest.fixture(scope="module")
def pod(rendered: list[Object]) -> dict[str, Any]:
    spec: dict[str, Any] = one(rendered, "Deployment")["spec"]["template"]["spec"]
    return spec


@pytest.fixture(scope="module")
def sidecar(pod: dict[str, Any]) -> dict[str, Any]:
    (container,) = pod["initContainers"]
    assert container["name"] == "sidecar"
    return dict(container)


def test_the_installs_are_those_of_the_golden_files() -> None:
    kept = {path.name: path.read_text() for path in GOLDEN.iterdir()}
    assert files() == kept, "run `python -m tests.compose.helm.golden_installs`, and read the difference"
    assert POD.read_text() == pod_file()


def test_the_rules_and_dashboards_are_those_of_the_slo_file(
    rendered: list[Object],
) -> None:
    expected = document(limited(rules(SPEC, autoscaling=True), MAX_RULES))
    assert one(rendered, "PrometheusRule")["spec"] == expected
    for board in BOARDS:
        config_map = one(rendered, "ConfigMap", board.uid)
        assert config_map["data"] == {board.file_name: (GENERATED / board.file_name).read_text(encoding="utf-8")}
        assert config_map["metadata"]["labels"] == {"grafana_dashboard": "1"}


def test_the_notes_and_a_release_fit_what_helm_stores(chart_values: Path) -> None:
    """Helm stores a release as a gzipped Secret of at most 1 MiB, and its JSON twice encoded in base64."""
    done = run("install", "--dry-run=client", "vllm", CHART, "--namespace", NAMESPACE, "--values", chart_values)
    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("\nNOTES:\n")[2]
    assert f"kubectl -n {NAMESPACE} wait --for=condition=Ready pod -l app=vllm" in notes
    assert "vllm-slo doctor --prometheus" in notes
    stored = (
        done.stdout.encode()
        + chart_values.read_bytes()
        + b"".join(path.read_bytes() for path in CHART.rglob("*") if path.is_file())
    )
    assert len(gzip.compress(stored)) * (4 / 3) ** 2 < 2**20


def test_grafana_operator_gets_every_dashboard(rendered: list[Object]) -> None:
    resources = {each["metadata"]["name"]: each["spec"] for each in rendered if each["kind"] == "GrafanaDashboard"}
    assert {name: spec["configMapRef"] for name, spec in resources.items()} == {
        board.uid: {"name": board.uid, "key": board.file_name} for board in BOARDS
    }
    for spec in resources.values():
        assert one(rendered, "ConfigMap", spec["configMapRef"]["name"])["data"].keys() == {spec["configMapRef"]["key"]}


def test_every_series_of_the_autoscaler_is_recorded(rendered: list[Object]) -> None:
    scaled = one(rendered, "ScaledObject")
    series = [re.findall(r"llm_\w+(?::\w+)+", each["metadata"]["query"]) for each in scaled["spec"]["triggers"]]
    assert [len(names) for names in series] == [1, 1]
    assert {name for names in series for name in names} <= RECORDED
    in_manifest = {
        rule.get("record") for group in one(rendered, "PrometheusRule")["spec"]["groups"] for rule in group["rules"]
    }
    assert {name for names in series for name in names} <= in_manifest
    assert scaled["spec"]["scaleTargetRef"]["name"] == one(rendered, "Deployment")["metadata"]["name"]
    assert "replicas" not in one(rendered, "Deployment")["spec"]


def test_every_series_and_alert_of_a_template_or_the_page_exists() -> None:
    for path in (*CHART.rglob("*.*"), *EXAMPLES.rglob("*.*"), ROOT / "docs/kubernetes.md"):
        text = path.read_text(encoding="utf-8")
        assert {*re.findall(r"\bllm_\w+(?::\w+)+", text)} <= RECORDED
        assert {*re.findall(r"\b(?:LLM[A-Z]\w+|VLLMSLO\w+)", text)} <= {str(name) for name in AlertName}


def plain_matchers(matchers: list[dict[str, str]]) -> list[str]:
    assert all(each["name"] != "alertname" or set(each["value"].split("|")) <= ALERTS for each in matchers)
    return [f'{each["name"]}{each["matchType"]}"{each["value"]}"' for each in matchers]


def plain_route(route: dict[str, Any]) -> dict[str, Any]:
    keys = {"groupBy": "group_by", "groupWait": "group_wait", "groupInterval": "group_interval"}
    plain = {{**keys, "repeatInterval": "repeat_interval"}.get(key, key): value for key, value in route.items()}
    plain["receiver"] = f"vllm-slo-{plain['receiver']}"
    plain["matchers"] = plain_matchers(plain["matchers"])
    return plain | ({"routes": [plain_route(each) for each in plain["routes"]]} if "routes" in plain else {})


def test_the_alertmanager_config_has_the_routes_and_inhibitions_of_the_generated_fragment(
    rendered: list[Object], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--page", "webhook=http://x", "--ticket", "webhook=http://x", "--heartbeat", "http://x", "--out", "-"]
    assert main(["alerts", "alertmanager", "--fragment", *words]) == 0
    fragment = yaml.safe_load(capsys.readouterr().out)
    spec = one(rendered, "AlertmanagerConfig")["spec"]
    assert plain_route(spec["route"]) == fragment["route"]["routes"][0]
    assert [
        {
            "source_matchers": plain_matchers(each["sourceMatch"]),
            "target_matchers": plain_matchers(each["targetMatch"]),
            "equal": each["equal"],
        }
        for each in spec["inhibitRules"]
    ] == fragment["inhibit_rules"]
    assert {each["name"] for each in spec["receivers"]} == {"page", "ticket", "heartbeat"}


NOTIFICATION = {
    "status": "firing",
    "alerts": [
        {"status": "firing", "annotations": {"summary": "first", "description": "a: b", "runbook_url": "http://r"}},
        {"status": "resolved", "annotations": {"summary": "second"}},
    ],
}


def test_the_texts_of_notifications_render_without_a_template_file(
    rendered: list[Object], tools: Tools, tmp_path: Path
) -> None:
    pages, tickets, _ = one(rendered, "AlertmanagerConfig")["spec"]["receivers"]
    page, ticket = pages["pagerdutyConfigs"][0], tickets["slackConfigs"][0]
    (tmp_path / "empty.tmpl").touch()
    (tmp_path / "data.json").write_text(json.dumps(NOTIFICATION))

    def text(template: str) -> str:
        words = ("--template.glob", "empty.tmpl", "--template.data", "data.json", "--template.text", template)
        done = subprocess.run(
            [tools.amtool, "template", "render", *words], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return done.stdout

    assert text(page["description"]) == "first"
    assert {each["key"]: text(each["value"]) for each in page["details"]} == {
        "description": "* a: b",
        "runbook": "http://r",
        "dashboard": "",
        "alerts": "* firing: first * resolved: second ",
    }
    assert text(ticket["title"]) == "[firing] first"
    assert text(ticket["text"]) == "a: b\nhttp://r\n\n* firing: first\n* resolved: second\n"


def test_the_scraped_port_job_and_interval_are_those_of_the_sidecar_and_the_slo_file(
    rendered: list[Object], sidecar: dict[str, Any]
) -> None:
    (endpoint,) = one(rendered, "PodMonitor")["spec"]["podMetricsEndpoints"]
    port = named(sidecar["ports"], endpoint["port"])["containerPort"]
    assert f"--metrics=0.0.0.0:{port}" in sidecar["args"]
    job, instance = endpoint["relabelings"]
    assert job == {"targetLabel": "job", "replacement": SPEC.scrape_job[0]}
    documented = re.search(r"```yaml\n- (\{source_labels: .+)\n```", PAGE)
    assert documented
    keys = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    assert {keys.get(key, key): value for key, value in instance.items()} == yaml.safe_load(documented[1])
    assert parse_duration(endpoint["interval"]) == SPEC.scrape_interval


def test_every_selector_selects_the_pods(rendered: list[Object]) -> None:
    labels = one(rendered, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert one(rendered, "Service")["spec"]["selector"] == labels
    # The label that takes a pod out of service must leave its controller, its scrapes and its policies as they are.
    removed, _, value = SERVING.partition("=")
    assert f"label pod POD {removed}-\n" in ONCALL
    assert f"label pod POD {SERVING}\n" in ONCALL
    assert labels.pop(removed) == value
    assert one(rendered, "NetworkPolicy")["spec"]["podSelector"] == {"matchLabels": labels}
    for kind in ("Deployment", "PodMonitor", "PodDisruptionBudget"):
        assert one(rendered, kind)["spec"]["selector"] == {"matchLabels": labels}


def flags(sidecar: dict[str, Any]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.configure(parser)
    assert sidecar["args"][0] == "sidecar"
    return parser.parse_args(sidecar["args"][1:])


def test_the_drain_fits_into_the_grace_period(pod: dict[str, Any], sidecar: dict[str, Any]) -> None:
    given, probe = flags(sidecar), sidecar["readinessProbe"]
    delay, drain, linger = (parse_duration(text) for text in (given.drain_delay, given.drain, given.linger))
    hook = named(pod["containers"], "vllm")["lifecycle"]["preStop"]["exec"]["command"]
    limit = float(hook[2])
    assert limit >= delay + drain + STOP_TIMEOUT
    stop_of_vllm, exporter = documented_seconds(4), documented_seconds(6)
    grace = pod["terminationGracePeriodSeconds"]
    assert grace >= limit + stop_of_vllm + linger + exporter
    assert documented_seconds(2) == delay
    assert f" | {drain:.0f} s, and {STOP_TIMEOUT:.0f} s for a relay that hangs: the hook waits {limit:.0f} s |" in PAGE
    assert documented_seconds(5) == linger
    total = limit + stop_of_vllm + linger + exporter
    assert grace == total
    assert f"`terminationGracePeriodSeconds: {grace}`, the sum" in PAGE
    assert probe["failureThreshold"] * probe["periodSeconds"] + probe["timeoutSeconds"] < delay
    assert linger > SPEC.scrape_interval


def documented_seconds(step: int) -> float:
    """The limit of a step in the page's table."""
    (seconds,) = re.findall(rf"^\| {step}\. [^|]+ \| (\d+) s \|", PAGE, re.MULTILINE)
    return float(seconds)


def test_the_page_has_the_resources_of_the_sidecar(sidecar: dict[str, Any]) -> None:
    requests, limits = sidecar["resources"]["requests"], sidecar["resources"]["limits"]
    expected = {
        "CPU request": requests["cpu"],
        "CPU limit": limits.get("cpu", "none"),
        "memory request": requests["memory"],
        "memory limit": limits["memory"],
        "ephemeral storage": requests["ephemeral-storage"],
    }
    rows = dict(re.findall(r"^\| ([\w ]+) \| ([^|]+) \| [^|]+ \|$", PAGE.partition("## Resources")[2], re.MULTILINE))
    assert {name: rows[name] for name in expected} == expected
    total = f"{flags(sidecar).request_log_total}".removesuffix("GiB")
    assert f"`sidecar.requestLogGiB: {total}`" in PAGE


def test_a_drained_sidecar_is_restarted_but_not_before_its_drain_has_ended(sidecar: dict[str, Any]) -> None:
    """`test_drain_hook.py` shows that the port of this probe is closed after a drain."""
    probe = sidecar["livenessProbe"]
    assert probe["tcpSocket"] == {"port": "relay"}
    assert f"--listen=0.0.0.0:{named(sidecar['ports'], 'relay')['containerPort']}" in sidecar["args"]
    assert (probe["failureThreshold"] - 1) * probe["periodSeconds"] >= parse_duration(flags(sidecar).drain)


def test_the_hook_and_the_token_are_mounted_where_both_containers_read_them(
    rendered: list[Object], pod: dict[str, Any], sidecar: dict[str, Any]
) -> None:
    vllm = named(pod["containers"], "vllm")
    script, probe = (Path(each["exec"]["command"][1]) for each in (vllm["lifecycle"]["preStop"], vllm["livenessProbe"]))
    hook = one(rendered, "ConfigMap", "vllm-drain")["data"]
    files = {name: CHART / "files" / name for name in ("drain.py", "livez.py")}
    assert hook == {name: file.read_text(encoding="utf-8") for name, file in files.items()}
    assert (script.parent, {script.name, probe.name}) == (probe.parent, {*files})
    mounts = {each["mountPath"]: each["name"] for each in vllm["volumeMounts"]}
    assert named(pod["volumes"], mounts[str(script.parent)])["configMap"] == {"name": "vllm-drain"}
    token = Path(flags(sidecar).admin_token_file)
    assert f'"{token}"' in hook[script.name]
    for container in (vllm, sidecar):
        mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
        assert named(pod["volumes"], mounts[str(token.parent)])["secret"] == {"secretName": "vllm-admin"}
    assert one(rendered, "ConfigMap", "vllm-slos")["data"] == {"slos.yaml": SHIPPED.read_text(encoding="utf-8")}


def test_the_sidecar_has_no_rights_and_writes_only_to_volumes(pod: dict[str, Any], sidecar: dict[str, Any]) -> None:
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "runAsGroup": 10001,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    writable = {each["mountPath"]: each["name"] for each in sidecar["volumeMounts"] if not each.get("readOnly")}
    assert all("emptyDir" in named(pod["volumes"], name) for name in writable.values())
    given = flags(sidecar)
    assert {str(Path(given.request_log).parent), str(Path(given.state).parent)} == writable.keys()
    assert "cpu" not in sidecar["resources"]["limits"]
    assert sidecar["image"] == f"registry.example.org/vllm-slo:{names()['version']}"


def test_clients_and_prometheus_reach_only_the_sidecar(rendered: list[Object], sidecar: dict[str, Any]) -> None:
    ports = {each["containerPort"] for each in sidecar["ports"]}
    ingress = one(rendered, "NetworkPolicy")["spec"]["ingress"]
    assert {port["port"] for rule in ingress for port in rule["ports"]} == ports
    (port,) = one(rendered, "Service")["spec"]["ports"]
    assert f"--listen=0.0.0.0:{port['targetPort']}" in sidecar["args"]
