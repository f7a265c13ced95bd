"""Runbooks name the replica, decide step by step, mark each remedy, and have only queries that Prometheus accepts."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from alerts.alert_names import AlertName
from compose.prometheus_tools import Tools
from tests.support.dashboard_queries import SERIES, labels_in, matchers_in, series_in
from tests.support.runbook_queries import COMMANDS, PAGES, queries

SECTIONS = ["Impact", "Which replica", "Open", "Decide", "Escalate"]

each = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
each_runbook = pytest.mark.parametrize("path", PAGES[:-1], ids=lambda path: path.stem)


def sections(path: Path) -> dict[str, str]:
    parts = re.split(r"^\*\*([A-Z][\w ]+)\.?\*\*\.?", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_promtool_accepts_every_query(tools: Tools, tmp_path: Path) -> None:
    rules = [{"record": "query", "expr": query} for path in PAGES for query in queries(path)]
    file = tmp_path / "queries.json"
    file.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    # syntax only: all queries have one name here, which promtool's lint reports as duplicates
    words = (tools.promtool, "check", "rules", "--lint=none", file)
    checked = subprocess.run(words, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert f"{len(rules)} rules found" in checked.stdout


@each
def test_the_series_and_labels_of_a_query_exist(path: Path) -> None:
    for query in queries(path):
        assert [name for name in series_in(query) if name not in SERIES] == [], query
        known = set[str]().union(*(SERIES[name].labels for name in series_in(query)))
        assert labels_in(query) <= known, query
        assert all(label in SERIES[name].labels for name, label, _ in matchers_in(query)), query


@each_runbook
def test_a_runbook_finds_the_replica_first_then_decides_and_marks_each_remedy(path: Path) -> None:
    found = sections(path)
    expected = [name for name in SECTIONS if name != "Which replica" or path.stem != AlertName.WATCHDOG]
    assert list(found) == expected
    if path.stem != AlertName.WATCHDOG:
        assert "```promql\n" in found["Which replica"]
    steps = re.split(r"^\d\. ", found["Decide"], flags=re.MULTILINE)[1:]
    assert len(steps) >= 2
    for step in steps:
        remedies = re.findall(r"^   - (.*?): ", step, re.MULTILINE)
        assert set(remedies) <= {"**now**", "**tomorrow**"}
        assert remedies or re.search(r"See \[LLM\w+\]\(LLM\w+\.md\)", re.sub(r"\s+", " ", step)), step


@each_runbook
def test_a_runbook_escalates_to_a_role_with_a_contact_to_fill_in(path: Path) -> None:
    contacts = dict(re.findall(r"^\| ([A-Z_]+) \| .* \| (.+) \|$", COMMANDS.read_text(encoding="utf-8"), re.MULTILINE))
    assert set(contacts.values()) == {"FILL IN"}
    roles = set(re.findall(r"\b[A-Z]+_OWNER\b", path.read_text(encoding="utf-8")))
    assert re.search(r"\b[A-Z]+_OWNER\b", sections(path)["Escalate"])
    assert roles <= set(contacts)


@each_runbook
def test_the_evidence_is_saved_before_an_engine_is_restarted(path: Path) -> None:
    for step in re.split(r"^\d\. ", sections(path)["Decide"], flags=re.MULTILINE):
        if "#restart-one-replica-at-a-time" in step:
            assert 0 < step.find("#save-the-evidence") < step.find("#restart-one-replica-at-a-time"), step


@pytest.mark.parametrize(
    "title",
    [
        "Save the evidence",
        "Drain one replica",
        "Restart one replica at a time",
        "Undo the last change",
        "Shed a tenant",
    ],
)
def test_every_remedy_has_a_command_for_kubernetes_docker_and_systemd(title: str) -> None:
    section = COMMANDS.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    for manager, command in (("Kubernetes", "kubectl "), ("Docker", "docker "), ("systemd", r"(systemctl|vllm-slo) ")):
        assert re.search(rf"{manager}\b.*?{command}", section, re.DOTALL), manager


def test_the_evidence_includes_stacks_gpus_logs_and_metrics() -> None:
    section = COMMANDS.read_text(encoding="utf-8").partition("\n## Save the evidence\n")[2].partition("\n## ")[0]
    for part in re.split(r"^(?:Kubernetes|Docker|systemd):$", section, flags=re.MULTILINE)[1:]:
        assert all(
            name in part for name in ("py-spy dump", "nvidia-smi -q", "logs" if "kubectl" in part else "vllm.log")
        )
        assert "/metrics" in part


@each_runbook
def test_no_remedy_rejects_valid_requests_or_takes_cache_from_an_engine_that_lacks_it(path: Path) -> None:
    """A lower --max-model-len turns valid requests into errors 400; less GPU memory leaves fewer KV blocks."""
    text = re.sub(r"\s+", " ", path.read_text(encoding="utf-8"))
    assert not re.search(r"\b(lower|less|bound|reduce|smaller)\b[^.]*--max-model-len", text, re.IGNORECASE)
    assert not re.search(r"with less: `--gpu-memory-utilization", text)
    for step in re.findall(r"No available memory for the cache blocks(.*?) \d\. ", text):
        assert "a higher `--gpu-memory-utilization`" in step
