"""The PromQL of the runbooks and of docs/oncall.md."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER, COMMANDS = ROOT / "alerts" / "runbooks", ROOT / "docs" / "oncall.md"
PAGES = [*sorted(FOLDER.glob("*.md")), COMMANDS]


def blocks(path: Path) -> list[str]:
    """The queries to paste."""
    return re.findall(r"^```promql\n(.*?)\n```$", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def queries(path: Path) -> list[str]:
    """The blocks of PromQL, and the inline code that contains a series of this project."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    inline = re.findall(r"`([^`]+)`", text)
    return blocks(path) + [re.sub(r"\s+", " ", code) for code in inline if "llm_" in code]
