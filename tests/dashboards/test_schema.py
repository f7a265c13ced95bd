"""Checks every committed dashboard against Grafana's TypeScript types; `schema/` pins the npm packages."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from dashboards.boards.engine import BOARD as ENGINE
from dashboards.boards.engine_only import BOARD as ENGINE_ONLY
from dashboards.command import GENERATED
from exporters.vocabulary.slo_file import SHIPPED as SLOS
from exporters.vocabulary.slo_file import load

SCHEMA = Path(__file__).parent / "schema"
SHIPPED = sorted(GENERATED.glob("*.json"))
COMPILER = SCHEMA / "node_modules/typescript/bin/tsc"
FLAGS = ["--noEmit", "--strict", "--skipLibCheck", "--target", "esnext", "--module", "preserve"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("node") is None, reason="node, which runs Grafana's types, is not installed"),
    pytest.mark.skipif(not COMPILER.exists(), reason="Grafana's types are not installed: make test, with npm"),
]


def compile_errors(folder: Path, boards: dict[str, Any]) -> dict[str, str]:
    """The errors of the compiler by dashboard, from a single run."""
    for name, board in boards.items():
        text = f"import type {{ Board }} from '{SCHEMA / 'board'}';\nexport const board: Board = {json.dumps(board)};\n"
        (folder / f"{name}.ts").write_text(text, encoding="utf-8")
    files = [f"{name}.ts" for name in boards]
    compiled = subprocess.run([COMPILER, *FLAGS, *files], cwd=folder, capture_output=True, text=True, check=False)
    errors = dict.fromkeys(boards, "")
    for file, text in re.findall(r"^(\S+)\.ts\(\d+,\d+\): error (.*(?:\n .*)*)", compiled.stdout, re.MULTILINE):
        errors[file] += text
    assert compiled.returncode == 0 or any(errors.values()), compiled.stdout
    return errors


BROKEN: dict[str, tuple[Callable[[Any], Any], str]] = {
    "field": (lambda page: page.update(refreshh="10s"), '"refreshh"'),
    "enum": (lambda page: page.update(graphTooltip=7), "Type '7' is not assignable"),
    "kind": (lambda page: page["panels"][1].update(type="timeserie"), '"timeserie"'),
    "option": (lambda page: a_graph(page)["options"].update(legendd={}), '"legendd"'),
    "option-enum": (lambda page: a_graph(page)["options"]["legend"].update(placement="left"), "'\"left\"'"),
    "custom": (lambda page: a_graph(page)["fieldConfig"]["defaults"]["custom"].update(lineWith=1), '"lineWith"'),
    "override": (
        lambda page: a_graph(page)["fieldConfig"]["overrides"].append(
            {"matcher": {"id": "byName", "options": "x"}, "properties": [{"id": "custom.lineWith", "value": 1}]}
        ),
        "'\"custom.lineWith\"'",
    ),
    "variable": (lambda page: page["templating"]["list"][1].update(sort=9), "Type '9' is not assignable"),
    "annotation": (lambda page: page["annotations"]["list"][0].update(iconColour="red"), '"iconColour"'),
}


def a_graph(page: Any) -> Any:
    return next(panel for panel in page["panels"] if panel["type"] == "timeseries")


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The errors of every shipped and every broken dashboard."""
    boards = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in SHIPPED}
    boards["without-sidecar"] = json.loads(ENGINE_ONLY.render(load(SLOS)))
    boards["with-loki"] = json.loads(ENGINE.render(load(SLOS), log_selector='{app="vllm-sidecar"}'))
    for name, (corrupt, _) in BROKEN.items():
        boards[name] = deepcopy(boards["slo-overview"])
        corrupt(boards[name])
    return compile_errors(tmp_path_factory.mktemp("schema"), boards)


def test_every_dashboard_is_valid(errors: dict[str, str]) -> None:
    valid = [*(path.stem for path in SHIPPED), "without-sidecar", "with-loki"]
    assert {name: errors[name] for name in valid} == dict.fromkeys(valid, "")


def test_an_invalid_name_or_value_is_reported_in_every_part_of_a_dashboard(errors: dict[str, str]) -> None:
    assert {name: errors[name] for name, (_, part) in BROKEN.items() if part not in errors[name]} == {}
