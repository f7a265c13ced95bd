"""The manifests are valid, unknown fields are refused, and every name in them exists in what the project generates."""

import argparse
import contextlib
import json
import re
import shlex
import subprocess
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
import yaml

from alerts.group_limit import MAX_RULES, limited
from alerts.prometheusrule import prometheus_rule
from alerts.rule_file import head, rules
from alerts.rules.groups import Alert, Recording
from compose.cli import main
from compose.programs.tools import Tools
from dashboards.boards.registry import BOARDS
from exporters.sidecar import command
from exporters.sidecar.supervision.supervisor import STOP_TIMEOUT
from exporters.text.errors import UsageError
from exporters.text.units import parse_duration
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.slo_file import SHIPPED, load
from tests.compose.kubernetes.kustomize import (
    BASE,
    COMPONENTS,
    MANIFESTS,
    OPTIONAL,
    ROOT,
    Object,
    objects,
    render,
    with_components,
)
from tests.compose.kubernetes.manifest_validation import (
    VERSIONS,
    core_error,
    custom_errors,
    everything,
    is_custom,
    name_of,
    why_no_custom_schemas,
)

pytestmark = pytest.mark.slow

SPEC = load(SHIPPED)
PAGE = (ROOT / "docs/kubernetes.md").read_text(encoding="utf-8")
ONCALL = (ROOT / "docs/oncall.md").read_text(encoding="utf-8")
SERVING = "vllm-slo/serving=true"
RULES = [rule for group in rules(SPEC, autoscaling=True) for rule in group.rules]
ALERTS = {rule.name for rule in RULES if isinstance(rule, Alert)}
RECORDED = {rule.series.name for rule in RULES if isinstance(rule, Recording)}


@pytest.fixture(scope="module")
def rendered() -> list[Object]:
    """The base with all components."""
    try:
        return everything()
    except UsageError as error:
        pytest.skip(f"no program renders the manifests: {error}")


@pytest.fixture(scope="module")
def base() -> dict[str, Object]:
    """The base alone, by name."""
    return {name_of(each): each for each in objects(render(BASE))}


@pytest.fixture(scope="module")
def pod(rendered: list[Object]) -> dict[str, Any]:
    spec: dict[str, Any] = one(rendered, "Deployment")["spec"]["template"]["spec"]
    return spec


@pytest.fixture(scope="module")
def sidecar(pod: dict[str, Any]) -> dict[str, Any]:
    (container,) = pod["initContainers"]
    assert container["name"] == "sidecar"
    return dict(container)


def one(rendered: list[Object], kind: str, name: str = "") -> Object:
    (found,) = [each for each in rendered if each["kind"] == kind and name in ("", each["metadata"]["name"])]
    return found


def named(values: list[dict[str, Any]], name: str) -> dict[str, Any]:
    (found,) = [each for each in values if each["name"] == name]
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_valid_in_this_kubernetes(version: str, rendered: list[Object]) -> None:
    assert [*filter(None, (core_error(each, version) for each in rendered if not is_custom(each)))] == []


@pytest.mark.parametrize("component", OPTIONAL)
def test_each_component_renders_alone(
    component: str, tmp_path: Path, rendered: list[Object], base: dict[str, Object]
) -> None:
    alone = {name_of(each): each for each in objects(with_components(tmp_path, (component,)))}
    assert base.keys() <= alone.keys()
    assert alone != base
    assert {name for name, each in alone.items() if name not in base and each not in rendered} == set()


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
        pytest.param("Service", add("spec", "ports", 0), "Service/llm: spec.ports.0: ", id="Service"),
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
]


def test_custom_resources_are_valid_and_their_operators_refuse_wrong_ones(rendered: list[Object]) -> None:
    """One run for all, because each start of the compiler takes seconds."""
    if reason := why_no_custom_schemas():
        pytest.skip(reason)
    page = (ROOT / "docs/engine-only.md").read_text(encoding="utf-8")
    documented = re.findall(r"```yaml\n(apiVersion: .+?)```", page, re.DOTALL)
    assert len(documented) == 1
    valid = [*(each for each in rendered if is_custom(each)), *map(yaml.safe_load, documented)]
    broken = []
    for kind, name, change, _ in BROKEN:
        broken.append(deepcopy(one(rendered, kind, name)))
        change(broken[-1])
    errors = custom_errors([*valid, *broken])
    assert errors[: len(valid)] == [""] * len(valid)
    for (_, _, _, text), error in zip(BROKEN, errors[len(valid) :], strict=True):
        assert text in error


def test_the_rules_are_those_of_the_slo_file_with_the_series_for_autoscaling() -> None:
    path = MANIFESTS / "components/alerts/generated/prometheusrule.yaml"
    groups = limited(rules(SPEC, autoscaling=True), MAX_RULES)
    expected = prometheus_rule(groups, "vllm-slo", {"release": "kube-prometheus-stack"}, head(SPEC))
    assert path.read_text(encoding="utf-8") == expected, "run `make generate`"


def test_the_dashboards_are_those_that_the_command_renders(
    rendered: list[Object], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dashboards", "render", "--format", "configmap", "--out", "-"]) == 0
    for expected in yaml.safe_load_all(capsys.readouterr().out):
        assert one(rendered, "ConfigMap", expected["metadata"]["name"]) == expected


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


def test_every_series_and_alert_in_a_comment_of_a_manifest_exists() -> None:
    for path in (*MANIFESTS.rglob("*.yaml"), ROOT / "docs/kubernetes.md"):
        if path.parent.name != "generated":
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
    annotations = one(rendered, "Deployment")["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(port)


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
    limit = float(hook[-1])
    assert limit >= delay + drain + STOP_TIMEOUT
    stop_of_vllm, exporter = documented_seconds(4), documented_seconds(6)
    grace = pod["terminationGracePeriodSeconds"]
    assert grace >= limit + stop_of_vllm + linger + exporter
    assert documented_seconds(2) == delay
    assert f" | {drain:.0f} s, and {STOP_TIMEOUT:.0f} s for a relay that hangs: the hook waits {limit:.0f} s |" in PAGE
    assert documented_seconds(5) == linger
    total = limit + stop_of_vllm + linger + exporter
    assert f"The sum of {total:.0f} s is below `terminationGracePeriodSeconds: {grace}`" in PAGE
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
    assert f"`--request-log-total={flags(sidecar).request_log_total}`" in PAGE


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
    hook = one(rendered, "ConfigMap", "vllm-slo-drain")["data"]
    files = {name: MANIFESTS / "components/sidecar" / name for name in ("drain.py", "livez.py")}
    assert hook == {name: file.read_text(encoding="utf-8") for name, file in files.items()}
    assert (script.parent, {script.name, probe.name}) == (probe.parent, {*files})
    mounts = {each["mountPath"]: each["name"] for each in vllm["volumeMounts"]}
    assert named(pod["volumes"], mounts[str(script.parent)])["configMap"] == {"name": "vllm-slo-drain"}
    token = Path(flags(sidecar).admin_token_file)
    assert f'"{token}"' in hook[script.name]
    for container in (vllm, sidecar):
        mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
        assert named(pod["volumes"], mounts[str(token.parent)])["secret"] == {"secretName": "vllm-slo-admin"}
    assert one(rendered, "ConfigMap", "vllm-slo-slos")["data"] == {"slos.yaml": SHIPPED.read_text(encoding="utf-8")}


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
    assert sidecar["image"] == f"vllm-slo:{version()}"


def version() -> str:
    found = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert found
    return found[1]


def test_clients_and_prometheus_reach_only_the_sidecar(rendered: list[Object], sidecar: dict[str, Any]) -> None:
    ports = {each["containerPort"] for each in sidecar["ports"]}
    ingress = one(rendered, "NetworkPolicy")["spec"]["ingress"]
    assert {port["port"] for rule in ingress for port in rule["ports"]} == ports
    (port,) = one(rendered, "Service")["spec"]["ports"]
    assert f"--listen=0.0.0.0:{port['targetPort']}" in sidecar["args"]


EXISTING = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: chat, namespace: prod}
spec:
  selector: {matchLabels: {model: chat}}
  template:
    metadata: {labels: {model: chat}}
    spec:
      initContainers:
        - {name: download, image: "download:1", volumeMounts: [{name: models, mountPath: /models}]}
      containers:
        - name: chat-8b
          image: vllm/vllm-openai:v0.25.1
          args: [--model=/models/chat]
          volumeMounts: [{name: models, mountPath: /models}]
        - {name: agent, image: "agent:1"}
      volumes: [{name: models, emptyDir: {}}]
"""


STATEFUL = EXISTING.replace("kind: Deployment", "kind: StatefulSet").replace("spec:", "spec:\n  serviceName: chat", 1)


@pytest.mark.parametrize(
    "existing", [pytest.param(EXISTING, id="Deployment"), pytest.param(STATEFUL, id="StatefulSet")]
)
def test_the_component_adds_the_sidecar_to_an_existing_workload_and_changes_nothing_else(
    existing: str, tmp_path: Path, pod: dict[str, Any], sidecar: dict[str, Any]
) -> None:
    (tmp_path / "workload.yaml").write_text(existing)
    rendered = objects(with_components(tmp_path, ("sidecar",), (tmp_path / "workload.yaml",)))
    patched = one(rendered, yaml.safe_load(existing)["kind"])
    assert [core_error(patched, version) for version in VERSIONS] == [""] * len(VERSIONS)
    spec = patched["spec"]["template"]["spec"]
    assert named(spec["initContainers"], "sidecar") == sidecar
    for key in ("lifecycle", "livenessProbe"):
        assert spec["containers"][0].pop(key) == named(pod["containers"], "vllm")[key]
    added = [each for each in spec["containers"][0]["volumeMounts"] if each["name"].startswith("vllm-slo-")]
    assert added == [each for each in pod["containers"][0]["volumeMounts"] if each["name"].startswith("vllm-slo-")]
    assert spec.pop("terminationGracePeriodSeconds") == pod["terminationGracePeriodSeconds"]
    for owner, key in ((spec, "initContainers"), (spec, "volumes"), (spec["containers"][0], "volumeMounts")):
        owner[key] = [each for each in owner[key] if not each["name"].startswith("vllm-slo-") and each != sidecar]
    name, _, value = SERVING.partition("=")
    assert patched["spec"]["template"]["metadata"]["labels"].pop(name) == value
    assert patched == yaml.safe_load(existing)


@pytest.mark.parametrize("existing", [EXISTING, STATEFUL], ids=["Deployment", "StatefulSet"])
def test_the_annotations_and_the_autoscaler_patch_both_kinds(existing: str, tmp_path: Path) -> None:
    (tmp_path / "workload.yaml").write_text(existing.replace("spec:", "spec:\n  replicas: 2", 1))
    components = ("scrape-annotations", "autoscaling")
    rendered = objects(with_components(tmp_path, components, (tmp_path / "workload.yaml",)))
    spec = one(rendered, yaml.safe_load(existing)["kind"])["spec"]
    assert "replicas" not in spec
    assert spec["template"]["metadata"]["annotations"]["prometheus.io/scrape"] == "true"


def test_the_commands_of_the_page_count_engines_and_sidecars(tmp_path: Path) -> None:
    """A LeaderWorkerSet is not patched, which the two numbers show."""
    template = indent(yaml.safe_dump(yaml.safe_load(EXISTING)["spec"]["template"]), " " * 6)
    other = "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nmetadata: {name: large}\n"
    other += f"spec:\n  leaderWorkerTemplate:\n    workerTemplate:\n{template}"
    (tmp_path / "workloads.yaml").write_text(f"{STATEFUL}---\n{other}")
    text = with_components(tmp_path, ("sidecar",), (tmp_path / "workloads.yaml",))
    patterns = re.findall(r"kubectl kustomize \. \| grep -c (?:-- )?'(.+)'", PAGE)
    assert [text.count(pattern) for pattern in patterns] == [2, 1]


def test_a_container_without_mounts_is_reported(tmp_path: Path, pod: dict[str, Any]) -> None:
    mounts = "          volumeMounts: [{name: models, mountPath: /models}]\n"
    (tmp_path / "deployment.yaml").write_text(EXISTING.replace(mounts, ""))
    with pytest.raises(UsageError, match=r"doc is missing path: .*containers/0/volumeMounts/-"):
        with_components(tmp_path, ("sidecar",), (tmp_path / "deployment.yaml",))


def test_each_component_is_documented() -> None:
    assert [name for name in COMPONENTS if f"| `{name}` |" not in PAGE] == []


@pytest.mark.parametrize("number", [pytest.param(0, id="shipped"), pytest.param(1, id="SLOs of your own")])
def test_each_example_of_the_page_renders_with_the_rules_of_the_sidecars_file(number: int, tmp_path: Path) -> None:
    given, own = (
        re.findall(r"```yaml\n(# kustomization\.yaml\n.+?)```", PAGE, re.DOTALL)[number],
        tmp_path / "slos.yaml",
    )
    (tmp_path / "vllm-slo").symlink_to(ROOT)
    (tmp_path / "kustomization.yaml").write_text(given)
    if number:
        own.write_text(SHIPPED.read_text(encoding="utf-8").replace("threshold: 5s", "threshold: 2s"))
        run_the_commands_of("## SLOs of your own", tmp_path)
    rendered = objects(render(tmp_path))
    assert {each["metadata"]["namespace"] for each in rendered} == {"inference"}
    assert json.dumps(rendered).count("registry.example.org/vllm-slo:") == 1
    slos = tmp_path / "rendered.yaml"
    slos.write_text(one(rendered, "ConfigMap", "vllm-slo-slos")["data"]["slos.yaml"])
    expected = rules(load(slos), autoscaling=True)
    content = yaml.safe_load(prometheus_rule(limited(expected, MAX_RULES), "vllm-slo", {}, ""))
    assert one(rendered, "PrometheusRule")["spec"] == content["spec"]
    assert one(rendered, "ConfigMap", "vllm-slo-overview")["data"]


def run_the_commands_of(section: str, folder: Path) -> None:
    """Run the indented commands of `vllm-slo` in a section of the page."""
    commands = re.findall(r"^    vllm-slo (.+)$", PAGE.partition(section)[2].partition("\n## ")[0], re.MULTILINE)
    assert len(commands) == 2
    with contextlib.chdir(folder):
        assert [main(shlex.split(command)) for command in commands] == [0, 0]
