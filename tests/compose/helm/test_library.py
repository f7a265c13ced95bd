"""The sidecar in workloads of other charts: by the template, and by a patch."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.compose.helm.chart import CHART, EXAMPLES, Object, kubectl, objects, one, render, require_helm, run
from tests.compose.helm.installs import STUB, write
from tests.compose.helm.object_validation import (
    VERSIONS,
    WITHOUT_SCHEMA,
    core_error,
    custom_errors,
    is_custom,
    why_no_custom_schemas,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _helm() -> None:
    require_helm()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, with the chart as `helm dependency update` places it."""
    folder = tmp_path_factory.mktemp("chart") / "examples/library"
    shutil.copytree(EXAMPLES / "library", folder)
    shutil.copytree(CHART, folder.parents[1] / "vllm-slo")
    done = run("dependency", "update", folder)
    assert done.returncode == 0, done.stderr
    return folder


def workload(library: Path, kind: str) -> Object:
    return one(render(values={"workload": kind, "vllm-slo": STUB}, chart=library), kind)


PODS = {
    "LeaderWorkerSet": ("spec", "leaderWorkerTemplate", "leaderTemplate"),
    "Rollout": ("spec", "template"),
    "InferenceService": ("spec", "predictor"),
}


def pod_template(each: Object) -> Object:
    """The pod with the sidecar as an object that Kubernetes has a schema for."""
    found: Any = each
    for key in PODS[each["kind"]]:
        found = found[key]
    if each["kind"] == "InferenceService":
        found = {"spec": {key: value for key, value in found.items() if key != "minReplicas"}}
    return {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "any"}, "template": found}


@pytest.mark.parametrize("kind", PODS)
def test_the_pod_of_each_example_is_valid_and_has_the_chart_s_sidecar(kind: str, library: Path) -> None:
    each = workload(library, kind)
    template = pod_template(each)
    assert [core_error(template, version) for version in VERSIONS] == [""] * len(VERSIONS)
    expected = one(render(values=STUB), "Deployment")["spec"]["template"]["spec"]
    spec = template["template"]["spec"]
    assert spec["initContainers"] == expected["initContainers"]
    for key in ("lifecycle", "livenessProbe", "readinessProbe"):
        assert spec["containers"][0][key] == expected["containers"][0][key]
    assert is_custom(each) or kind in WITHOUT_SCHEMA


@pytest.mark.long
def test_a_rollout_is_valid(library: Path) -> None:
    if reason := why_no_custom_schemas():
        pytest.skip(reason)
    assert custom_errors([workload(library, "Rollout")]) == [""]


def test_the_workers_of_a_leader_have_no_sidecar(library: Path) -> None:
    workers = workload(library, "LeaderWorkerSet")["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    assert workers.keys() == {"spec"}
    assert workers["spec"].keys() == {"containers"}


@pytest.mark.parametrize("name", ["deployment", "statefulset"])
def test_the_worked_values_render_a_valid_workload(name: str) -> None:
    rendered = render(EXAMPLES / f"{name}.yaml", values=STUB)
    (found,) = [each for each in rendered if each["kind"].lower() == name]
    assert [core_error(found, version) for version in VERSIONS] == [""] * len(VERSIONS)
    volumes = {each["name"] for each in found["spec"]["template"]["spec"]["volumes"]}
    claims = {each["metadata"]["name"] for each in found["spec"].get("volumeClaimTemplates", [])}
    mounted = {each["name"] for each in found["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]}
    assert mounted <= volumes | claims
    assert not volumes & claims


STACK = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: stack-chat-deployment-vllm}
spec:
  selector: {matchLabels: {model: chat, environment: test, release: test}}
  template:
    metadata: {labels: {model: chat, environment: test, release: test}}
    spec:
      containers:
        - name: vllm
          image: vllm/vllm-openai:v0.33.0
          command: [vllm, serve, chat, --port, "8000", --port, "8010"]
          ports: [{name: container-port, containerPort: 8000}]
          startupProbe: {httpGet: {path: /health, port: 8000}, periodSeconds: 10, failureThreshold: 60}
          livenessProbe: {httpGet: {path: /health, port: 8000}, periodSeconds: 10, failureThreshold: 3}
          volumeMounts: [{name: shm, mountPath: /dev/shm}]
      volumes: [{name: shm, emptyDir: {medium: Memory}}]
"""


def test_the_patch_adds_the_sidecar_to_a_deployment_of_production_stack(library: Path, tmp_path: Path) -> None:
    files = (write({"vllm-slo": STUB}, tmp_path / "values.yaml"), EXAMPLES / "production-stack.yaml")
    words = [word for file in files for word in ("--values", file)]
    patch = run("template", "slo", library, "--show-only", "templates/patch.yaml", *words)
    assert patch.returncode == 0, patch.stderr
    (tmp_path / "patch.yaml").write_text(patch.stdout)
    (tmp_path / "stack.yaml").write_text(STACK)
    write(
        {"resources": ["stack.yaml"], "patches": [{"path": "patch.yaml", "target": {"kind": "Deployment"}}]},
        tmp_path / "kustomization.yaml",
    )
    done = subprocess.run([kubectl(), "kustomize", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (found,) = objects(done.stdout)
    assert [core_error(found, version) for version in VERSIONS] == [""] * len(VERSIONS)
    engine = found["spec"]["template"]["spec"]["containers"][0]
    assert engine["livenessProbe"].keys() == {"exec", "periodSeconds", "timeoutSeconds", "failureThreshold"}
    assert engine["command"][-1] == "8010"
    sidecar = found["spec"]["template"]["spec"]["initContainers"][0]
    assert {"--upstream=http://127.0.0.1:8010", "--listen=0.0.0.0:8000"} <= {*sidecar["args"]}
    assert {"shm", "vllm-slo-data"} <= {each["name"] for each in found["spec"]["template"]["spec"]["volumes"]}


def test_a_hook_of_the_engine_is_not_overwritten(library: Path, tmp_path: Path) -> None:
    folder = tmp_path / "library"
    shutil.copytree(library, folder)
    engine = folder / "templates/_engine.tpl"
    engine.write_text(
        engine.read_text().replace("      resources:", "      lifecycle: {preStop: {}}\n      resources:")
    )
    assert workload(folder, "Rollout")["spec"]["template"]["spec"]["containers"][0]["lifecycle"]["preStop"]
    engine.write_text(engine.read_text().replace("preStop: {}", "preStop: {sleep: {seconds: 5}}"))
    words = ("--values", write({"workload": "Rollout", "vllm-slo": STUB}, tmp_path / "values.yaml"))
    done = run("template", "x", folder, *words)
    assert "container vllm: lifecycle.preStop: the drain hook needs its place; remove it" in done.stderr


@pytest.mark.long
def test_values_can_be_nested_for_a_chart_that_depends_on_it(tmp_path: Path) -> None:
    from compose.cli import main  # noqa: PLC0415 - the other tests need no command

    for words in ((), ("--nest", "vllm-slo")):
        assert main(["deploy", "render", "--out", str(tmp_path / "-".join(words)), *words]) == 0
    top = yaml.safe_load((tmp_path / "values.yaml").read_text())
    nested = yaml.safe_load((tmp_path / "--nest-vllm-slo/values.yaml").read_text())
    assert nested == {"vllm-slo": top}
