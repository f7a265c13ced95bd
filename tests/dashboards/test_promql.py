"""Every query of every dashboard is PromQL, by a parser in milliseconds and by Prometheus itself."""

import json
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from compose.programs.tools import Tools
from dashboards.boards.board import Board
from dashboards.boards.registry import BOARDS_OF
from dashboards.command import GENERATED
from dashboards.live.interpolation import expand, intervals
from dashboards.live.reader import QueryType, checks_of
from exporters.vocabulary.slo_file import SHIPPED, load, loads
from tests.dashboards.dashboard_files import STRICT_SLOS, Page, page_of
from tests.support.promql_tree import tree

BOARDS = [board for boards in BOARDS_OF.values() for board in boards]
FLEET = replace(load(SHIPPED), group_by=("cluster", "namespace"))


def queries(pages: Iterable[Page]) -> list[str]:
    """The queries with the default value of each variable."""
    return [
        expand(check.expression, {**check.values, **intervals(900, 15)})
        for page in pages
        for check in checks_of(page)
        if check.query_type is not QueryType.LABEL_VALUES
    ]


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_a_parser_reads_every_query(board: Board) -> None:
    for spec in (loads(STRICT_SLOS), FLEET):
        for query in queries([page_of(board, spec)]):
            assert tree(query)


def test_promtool_accepts_every_query(tools: Tools, tmp_path: Path) -> None:
    pages = [json.loads(path.read_text(encoding="utf-8")) for path in GENERATED.glob("*.json")]
    rules = [
        {"record": "query", "expr": query} for query in queries([*pages, *(page_of(board, FLEET) for board in BOARDS)])
    ]
    file = tmp_path / "queries.json"  # JSON is YAML
    file.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    # syntax only: all queries have one name here, which promtool's lint reports as duplicates
    checked = subprocess.run(
        [tools.promtool, "check", "rules", "--lint=none", file], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
    assert f"{len(rules)} rules found" in checked.stdout
