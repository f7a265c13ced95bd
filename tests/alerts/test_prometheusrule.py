"""prometheus-operator gets the same groups as Prometheus, under a name and the labels that select it."""

from pathlib import Path

import pytest
import yaml

from alerts.rule_file import render
from compose.cli import main
from exporters.slos import SHIPPED, load

OPERATOR = ["alerts", "render", "--format", "prometheusrule"]


def test_the_operator_gets_the_same_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--name", "llm.slo-1", "--label", "release=kube-prometheus-stack", "--label", "example.com/team="]
    assert main([*OPERATOR, *words, "--out", str(tmp_path)]) == 0
    path = tmp_path / "prometheusrule.yaml"
    assert capsys.readouterr().out.startswith(f"{path}: ")
    manifest = yaml.safe_load(path.read_text(encoding="utf-8"))
    plain = yaml.safe_load(render(load(SHIPPED)))
    assert manifest == {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": "llm.slo-1",
            "labels": {"release": "kube-prometheus-stack", "example.com/team": ""},
        },
        "spec": plain,
    }
    assert plain["groups"]


def test_a_name_is_there_without_flags_and_labels_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*OPERATOR, "--out", "-"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["metadata"] == {"name": "vllm-slo"}


@pytest.mark.parametrize(
    "words,message",
    [
        pytest.param(
            [*OPERATOR, "--name", "My_Rules"],
            "--name: 'My_Rules' is no name of a Kubernetes object; use lower-case letters, digits, - and ., beginning "
            "and ending with a letter or digit",
            id="name",
        ),
        pytest.param(
            [*OPERATOR, "--label", "release"],
            "--label: 'release' is no label of a Kubernetes object; write KEY=VALUE, such as "
            "release=kube-prometheus-stack",
            id="label without a value",
        ),
        pytest.param(
            [*OPERATOR, "--label", "release=a b"],
            "--label: 'release=a b' is no label of a Kubernetes object; write KEY=VALUE, such as "
            "release=kube-prometheus-stack",
            id="value with a blank",
        ),
        pytest.param(
            ["alerts", "render", "--label", "a=b"],
            "--name, --label: a plain rule file has neither; add --format prometheusrule",
            id="labels of a plain file",
        ),
    ],
)
def test_what_kubernetes_would_refuse_is_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--out", "-"]) == 2
    assert capsys.readouterr() == ("", f"vllm-slo: {message}\n")
