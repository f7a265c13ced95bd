"""The objects for operators have the groups of the rule file, a name and labels."""

from pathlib import Path

import pytest
import yaml

from alerts.rule_file import render
from compose.cli import main
from exporters.vocabulary.slo_file import SHIPPED, load

OPERATOR = ["alerts", "render", "--format", "prometheusrule"]


@pytest.mark.parametrize(
    "form,version,kind",
    [
        ("prometheusrule", "monitoring.coreos.com/v1", "PrometheusRule"),
        ("vmrule", "operator.victoriametrics.com/v1beta1", "VMRule"),
    ],
)
def test_the_object_has_the_groups_of_the_rule_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str, version: str, kind: str
) -> None:
    words = ["--name", "llm.slo-1", "--label", "release=kube-prometheus-stack", "--label", "example.com/team="]
    assert main(["alerts", "render", "--format", form, *words, "--out", str(tmp_path)]) == 0
    path = tmp_path / f"{form}.yaml"
    assert capsys.readouterr().out.startswith(f"{path}: ")
    manifest = yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)
    plain = yaml.load(render(load(SHIPPED)), yaml.CSafeLoader)
    labels = {"release": "kube-prometheus-stack", "example.com/team": ""}
    assert manifest == {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "llm.slo-1", "labels": labels},
        "spec": plain,
    }
    assert plain["groups"]


def test_without_flags_there_is_a_name_and_no_labels(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*OPERATOR, "--out", "-"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["metadata"] == {"name": "vllm-slo"}


NO_LABEL = "--label: {!r} is not a valid Kubernetes label; write KEY=VALUE, such as release=kube-prometheus-stack"


@pytest.mark.parametrize(
    "words,message",
    [
        pytest.param(
            [*OPERATOR, "--name", "My_Rules"],
            "--name: 'My_Rules' is not a valid Kubernetes object name; use lower-case letters, digits, - and ., with a "
            "letter or digit first and last",
            id="name",
        ),
        pytest.param([*OPERATOR, "--label", "release"], NO_LABEL.format("release"), id="label without a value"),
        pytest.param([*OPERATOR, "--label", "release=a b"], NO_LABEL.format("release=a b"), id="value with a blank"),
        pytest.param(
            ["alerts", "render", "--label", "a=b"],
            "--name, --label: only an object has these; add --format prometheusrule or vmrule",
            id="label of a plain file",
        ),
    ],
)
def test_names_and_labels_that_kubernetes_rejects_are_rejected(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--out", "-"]) == 2
    assert capsys.readouterr() == ("", f"vllm-slo: {message}\n")
