"""The report: text for terminals of several widths, and JSON."""

import io
import json
from pathlib import Path

from rich.console import Console

from compose.doctor.check_list import CHECKS
from compose.doctor.finding import Finding, State
from compose.doctor.findings_report import as_json, print_report

UNREACHABLE = Finding(
    State.NOT_CHECKED, "http://127.0.0.1:9090", "http://127.0.0.1:9090: connection refused", fix="start it"
)
FINDINGS = [
    (CHECKS[0], Finding(State.OK, "limits", "up to 9,952 clients per relay")),
    (
        CHECKS[1],
        Finding(
            State.FAILED,
            "/var/log/vllm-slo/requests.jsonl",
            "1.0 GiB used, 2.0 GiB free, less than --request-log-total 8.0 GiB",
            "on a full disk, lines of the request log are dropped",
            "a command that is longer than the terminal is wide, and that is not wrapped",
        ),
    ),
    (CHECKS[2], UNREACHABLE),
    (CHECKS[3], UNREACHABLE),
]

EIGHTY = """\
ok           descriptors  up to 9,952 clients per relay
failed       request log  1.0 GiB used, 2.0 GiB free, less than
                          --request-log-total 8.0 GiB
             looked at  /var/log/vllm-slo/requests.jsonl
             cost       on a full disk, lines of the request log are dropped
             fix        a command that is longer than the terminal is wide, and that is not wrapped
not checked  trace file   http://127.0.0.1:9090: connection refused
             fix        start it
not checked  ports        http://127.0.0.1:9090: connection refused

4 checks: 1 ok, 0 warning, 1 failed, 2 not checked
"""


def printed(width: int) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    print_report(FINDINGS, console)
    assert isinstance(console.file, io.StringIO)
    return "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines())


def test_a_fix_is_one_line_and_is_shown_once() -> None:
    assert printed(80) == EIGHTY
    assert printed(120) == EIGHTY.replace("than\n                          --request", "than --request")


def test_json_has_every_field_of_every_check() -> None:
    document = json.loads(as_json(FINDINGS))
    assert document["counts"] == {"ok": 1, "warning": 0, "failed": 1, "not checked": 2}
    assert [check["check"] for check in document["checks"]] == ["descriptors", "request log", "trace file", "ports"]
    assert document["checks"][1] == {
        "check": "request log",
        "state": "failed",
        "looked_at": "/var/log/vllm-slo/requests.jsonl",
        "found": "1.0 GiB used, 2.0 GiB free, less than --request-log-total 8.0 GiB",
        "cost": "on a full disk, lines of the request log are dropped",
        "fix": "a command that is longer than the terminal is wide, and that is not wrapped",
    }


def test_names_of_checks_are_distinct() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)


def test_the_documentation_lists_every_check() -> None:
    page = (Path(__file__).parents[3] / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    table = "\n".join(["| check | question |", "|---|---|", *(f"| {each.name} | {each.question} |" for each in CHECKS)])
    assert f"\n{table}\n\n" in page
