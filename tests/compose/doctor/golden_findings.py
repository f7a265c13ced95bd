"""Golden files of findings, one for each check: `WRITE_FINDINGS=1 pytest tests/compose/doctor` writes them."""

import os
from collections.abc import Mapping
from pathlib import Path

from compose.doctor.finding import Finding

GOLDEN = Path(__file__).parent / "golden"


def assert_golden(check: str, found: Mapping[str, Finding], places: Mapping[str, str] | None = None) -> None:
    """The finding of each case is that of the file, as a whole; `places` names what differs in each run."""
    text = "".join(f"{case}: {_text(finding)}\n" for case, finding in found.items())
    for place, name in (places or {}).items():
        text = text.replace(place, name)
    file = GOLDEN / f"{check}.txt"
    if os.environ.get("WRITE_FINDINGS"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


def _text(finding: Finding) -> str:
    """State and evidence; below them what was looked at, the cost and the fix."""
    return f"{finding.state}: {finding.found}\n    {finding.looked_at} | {finding.cost} | {finding.fix}".rstrip("| ")
