"""The panel of log lines, which only a request log in Loki has."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compose.cli import main
from dashboards.boards.registry import BOARDS
from dashboards.boards.slo_objective import BOARD
from dashboards.live.reader import checks_of
from exporters.requestlog.writer import RequestLog
from exporters.vocabulary.signals import Verdict
from exporters.vocabulary.slo_file import SHIPPED, load
from tests.support.sample_records import finished

SCHEMA = Path(__file__).parents[1] / "schema"
PARSER = SCHEMA / "node_modules/@grafana/lezer-logql"
SELECTOR = '{app="vllm-sidecar"}'
SPEC = load(SHIPPED)


def loki_targets(page: dict[str, Any]) -> list[str]:
    targets = [target for panel in page["panels"] for target in panel.get("targets", [])]
    return [target["expr"] for target in targets if target["datasource"] == {"type": "loki", "uid": "${loki}"}]


def test_without_the_flag_no_dashboard_asks_a_loki() -> None:
    for board in BOARDS:
        assert "loki" not in board.render(SPEC)


@pytest.mark.parametrize("labels", [(), ("cluster", "namespace")], ids=["one cluster", "several clusters"])
def test_the_board_of_an_slo_has_the_log_lines_of_bad_requests_of_the_class(labels: tuple[str, ...]) -> None:
    spec = replace(SPEC, group_by=labels)
    page, without = json.loads(BOARD.render(spec, log_selector=SELECTOR)), json.loads(BOARD.render(spec))
    assert loki_targets(page) == [SELECTOR + ' |~ `"slo": ?\\{[^}]*: ?"bad"` | json class="class" | class=~"$class"']
    assert page["panels"][:-2] == without["panels"]
    (variable,) = (each for each in page["templating"]["list"] if each not in without["templating"]["list"])
    assert (variable["name"], variable["type"], variable["query"]) == ("loki", "datasource", "loki")
    # the audit and the preview ask only a Prometheus
    assert [check.expression for check in checks_of(page)] == [check.expression for check in checks_of(without)]


def test_the_query_finds_the_lines_of_bad_requests_in_a_request_log(tmp_path: Path) -> None:
    log = RequestLog(tmp_path / "requests.jsonl")
    good, bad = {"ttft": Verdict.GOOD}, {"ttft": Verdict.GOOD, "availability": Verdict.BAD}
    records = [
        finished(slo=good),
        finished(slo=bad, request_id="bad"),
        finished(slo={}, request_id='"slo":{"ttft":"bad"}'),
    ]
    log.write("run", list(enumerate(records, 1)), None)
    log.close()
    (query,) = loki_targets(json.loads(BOARD.render(SPEC, log_selector=SELECTOR)))
    lines = (tmp_path / "requests.jsonl").read_text().splitlines()
    (found,) = [json.loads(line) for line in lines if re.search(query.split("`")[1], line)]
    assert found["request_id"] == "bad"
    assert [found[field] for field in re.findall(r'\| json \w+="(\w+)"', query)] == ["short"]


def syntax(query: str) -> list[str]:
    """The nodes of the syntax tree; `⚠` is an error."""
    node = ["node", str(SCHEMA / "logql.cjs")]
    return list(json.loads(subprocess.run(node, input=query, capture_output=True, text=True, check=True).stdout))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="node, which runs Grafana's parser, is not installed")
@pytest.mark.skipif(not PARSER.exists(), reason="Grafana's parser is not installed: make test, with npm")
def test_the_query_is_logql() -> None:
    (query,) = loki_targets(json.loads(BOARD.render(SPEC, log_selector=SELECTOR)))
    # Grafana inserts the values of the variable before it sends the query
    nodes = syntax(query.replace("$class", "siso|liso"))
    assert "⚠" not in nodes
    assert {"Selector", "LineFilter", "JsonExpressionParser", "LabelFilter"} <= set(nodes)
    assert "⚠" in syntax(query.replace("| json", "json"))


def test_the_flag_adds_the_log_lines_to_one_dashboard(tmp_path: Path) -> None:
    assert main(["dashboards", "render", "--out", str(tmp_path), "--loki", SELECTOR]) == 0
    pages = {path.stem: json.loads(path.read_text()) for path in tmp_path.iterdir()}
    assert [name for name, page in pages.items() if loki_targets(page)] == ["slo-objective"]


@pytest.mark.parametrize("text", ["", "vllm", "{}", '{app="x"'])
def test_a_text_that_is_no_selector_is_rejected(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboards", "render", "--out", str(tmp_path), "--loki", text]) == 2
    assert capsys.readouterr().err == (
        f'vllm-slo: --loki: {text!r} is not a selector of log streams, such as {{app="vllm-sidecar"}}\n'
    )
