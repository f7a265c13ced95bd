"""Runbooks have only queries that Prometheus accepts, on series that exist, and a command prints them."""

import json
import subprocess
from pathlib import Path

import pytest

from compose.cli import main
from compose.programs.tools import Tools
from exporters.vocabulary.alert_names import AlertName
from tests.support.dashboard_queries import SERIES, labels_in, matchers_in, series_in
from tests.support.runbook_queries import FOLDER, PAGES, queries


def test_promtool_accepts_every_query(tools: Tools, tmp_path: Path) -> None:
    rules = [{"record": "query", "expr": query} for path in PAGES for query in queries(path)]
    file = tmp_path / "queries.json"
    file.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    # syntax only: all queries have one name here, which promtool's lint reports as duplicates
    words = (tools.promtool, "check", "rules", "--lint=none", file)
    checked = subprocess.run(words, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert f"{len(rules)} rules found" in checked.stdout


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_series_and_labels_of_a_query_exist(path: Path) -> None:
    for query in queries(path):
        assert [name for name in series_in(query) if name not in SERIES] == [], query
        known = set[str]().union(*(SERIES[name].labels for name in series_in(query)))
        assert labels_in(query) <= known, query
        assert all(label in SERIES[name].labels for name, label, _ in matchers_in(query)), query


def test_the_command_lists_all_names_and_prints_the_runbook_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alerts", "runbook"]) == 0
    names = capsys.readouterr().out.splitlines()
    assert names == [*AlertName, "oncall"]
    for name in names:
        assert main(["alerts", "runbook", name]) == 0
        assert capsys.readouterr().out == (FOLDER / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["LLMSidecarDwon", "../runbooks/LLMSidecarDown"])
def test_an_unknown_name_gets_a_near_one(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alerts", "runbook", name]) == 2
    message = f"vllm-slo: {name}: there is no alert of this name; did you mean 'LLMSidecarDown'?\n"
    assert capsys.readouterr() == ("", message)
