import json
import subprocess
from dataclasses import replace
from pathlib import Path

from compose.prometheus_tools import Tools
from dashboards.boards.registry import BOARDS
from dashboards.command import GENERATED
from dashboards.dashboard_reader import QueryType, checks_of
from dashboards.interpolation import expand, intervals
from exporters.slos import SHIPPED, load
from tests.dashboards.dashboard_files import page_of


def test_promtool_accepts_every_query(tools: Tools, tmp_path: Path) -> None:
    pages = [json.loads(path.read_text(encoding="utf-8")) for path in GENERATED.glob("*.json")]
    pages += [page_of(board, replace(load(SHIPPED), group_by=("cluster", "namespace"))) for board in BOARDS]
    rules = [
        {"record": "query", "expr": expand(check.expression, {**check.values, **intervals(900, 15)})}
        for page in pages
        for check in checks_of(page)
        if check.query_type is not QueryType.LABEL_VALUES
    ]
    file = tmp_path / "queries.json"  # JSON is YAML
    file.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    # syntax only: all queries have one name here, which promtool's lint reports as duplicates
    checked = subprocess.run(
        [tools.promtool, "check", "rules", "--lint=none", file], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
    assert f"{len(rules)} rules found" in checked.stdout
