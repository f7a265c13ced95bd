"""Dashboards as ConfigMaps for Grafana's sidecar in Kubernetes."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from compose.cli import main
from dashboards.boards.registry import BOARDS
from dashboards.command import GENERATED

RENDER = ["dashboards", "render", "--format", "configmap"]


def documents(text: str) -> list[Any]:
    """The loader in C takes a tenth of the time."""
    return list(yaml.load_all(text, yaml.CSafeLoader))


@pytest.mark.slow
def test_each_dashboard_is_in_a_config_map_byte_for_byte(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = ["--label", "team=llm", "--label", "grafana_dashboard=yes"]
    flags = ["--namespace", "monitoring", *labels, "--folder", "LLM serving"]
    assert main([*RENDER, *flags, "--out", str(tmp_path)]) == 0
    paths = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(tmp_path.iterdir()) == sorted(paths)
    for board, path in zip(BOARDS, paths, strict=True):
        (config_map,) = documents(path.read_text(encoding="utf-8"))
        # Kubernetes accepts four times as much; kubectl stores a copy in an annotation
        assert len(json.dumps(config_map)) < 2**18
        assert config_map == {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": board.uid,
                "namespace": "monitoring",
                "labels": {"grafana_dashboard": "yes", "team": "llm"},
                "annotations": {"grafana_folder": "LLM serving"},
            },
            "data": {board.file_name: (GENERATED / board.file_name).read_text(encoding="utf-8")},
        }


@pytest.mark.slow
def test_without_flags_kubectl_chooses_the_namespace(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RENDER, "--out", "-"]) == 0
    config_maps = documents(capsys.readouterr().out)
    assert [each["metadata"] for each in config_maps] == [
        {"name": board.uid, "labels": {"grafana_dashboard": "1"}, "annotations": {"grafana_folder": "vllm-slo"}}
        for board in BOARDS
    ]


@pytest.mark.parametrize(
    "words, message",
    [
        pytest.param(
            [*RENDER, "--namespace", "My_Space"],
            "--namespace: 'My_Space' is not a valid Kubernetes namespace; use up to 63 lower-case letters, digits and "
            "-, beginning and ending with a letter or digit",
            id="namespace",
        ),
        pytest.param(
            [*RENDER, "--label", "team"],
            "--label: 'team' is not a valid Kubernetes label; write KEY=VALUE, such as release=kube-prometheus-stack",
            id="label without a value",
        ),
        pytest.param(
            ["dashboards", "render", "--folder", "LLM", "--out", "nowhere"],
            "--namespace, --label, --folder: these need --format configmap",
            id="folder of a plain file",
        ),
        pytest.param(
            ["dashboards", "render"],
            "--out: plain dashboards are several files; add --out DIR, or --format configmap",
            id="plain files in one stream",
        ),
    ],
)
def test_invalid_flags_are_rejected(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, *([] if "--out" in words else ["--out", "-"])]) == 2
    assert capsys.readouterr() == ("", f"vllm-slo: {message}\n")
