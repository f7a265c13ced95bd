"""Golden files of findings, one for each check."""

from collections.abc import Mapping

from compose.doctor.finding import Finding
from tests.compose import golden_texts


def assert_golden(check: str, found: Mapping[str, Finding], places: Mapping[str, str] | None = None) -> None:
    """The finding of each case is that of the file, as a whole; `places` names what differs in each run."""
    golden_texts.assert_golden(__file__, check, {case: _text(each) for case, each in found.items()}, places)


def _text(finding: Finding) -> str:
    """State and evidence; below them what was looked at, the cost and the fix."""
    return f"{finding.state}: {finding.found}\n{finding.looked_at} | {finding.cost} | {finding.fix}".rstrip("| ")
