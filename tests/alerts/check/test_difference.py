"""`vllm-slo alerts diff` shows what a change of the SLO file does to objectives, limits, alerts and series."""

import functools
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts.check.difference import Difference, as_text, difference
from alerts.rule_file import render
from compose.cli import main
from exporters.vocabulary.slo_file import SHIPPED, load, loads
from tests.support.promtool import ROOT
from tests.support.slo_files import ENGINE_ONLY, MINIMAL

LOOSER = MINIMAL.replace("threshold: 5s, objective: 95%", "threshold: 7s, objective: 90%")
BURN = 'LLMErrorBudgetBurn{{alert_source="vllm-slo", severity="{}", slo="ttft"}}: annotations'

TEXT = f"""\
SLO file:
  ~ slos.ttft.threshold: 5s -> 7s
  ~ slos.ttft.objective: 95 % -> 90 %

limits:
  ~ ttft (fast-page): 72 % bad of at least 50 events in 1h and 5m -> 90 % bad of at least 50 events in 1h and 5m
  ~ ttft (slow-page): 30 % bad of at least 50 events in 6h and 30m -> 60 % bad of at least 50 events in 6h and 30m
  ~ ttft (fast-ticket): 15 % bad of at least 100 events in 1d and 2h -> 30 % bad of at least 100 events in 1d and 2h
  ~ ttft (slow-ticket): 5 % bad of at least 100 events in 3d and 6h -> 10 % bad of at least 100 events in 3d and 6h

alerts:
  ~ {BURN.format("page")}
  ~ {BURN.format("ticket")}

series:
  ~ llm_goodput:objective:ratio{{class="short"}}: expr vector(0.95) -> vector(0.9)
  ~ llm_slo:long_window_bad_events:ratio{{window="1h"}}: expr
  ~ llm_slo:objective:ratio{{class="short", slo="ttft"}}: expr vector(0.95) -> vector(0.9)
  ~ llm_slo:threshold:seconds{{class="short", slo="ttft"}}: expr vector(5) -> vector(7)
  ~ llm_slo:tier_bad_events:ratio: expr
  - llm_time_to_first_token_seconds_bucket{{le="5"}}
  + llm_time_to_first_token_seconds_bucket{{le="7"}}

note: slo ttft: its budget counts verdicts of both definitions (ttft within 5s for 95 %; ttft within 7s for 90 %) \
until 30d after the update; a new name would start with a full budget

note: bounds of histograms change: a quantile over sidecars of both files can be off by one bucket until all have the \
new one, and for the range of the query after that"""


def test_a_changed_objective_and_threshold_show_all_that_they_change() -> None:
    assert as_text(difference(loads(MINIMAL), loads(LOOSER))) == TEXT


@pytest.mark.parametrize("path", [SHIPPED, ROOT / "compose" / "slos.yaml"], ids=["shipped", "lab"])
def test_a_file_does_not_differ_from_itself(path: Path) -> None:
    assert as_text(difference(load(path), load(path))) == "no differences"


def test_a_default_that_is_written_is_not_a_difference() -> None:
    written = loads(MINIMAL + "first_token_timeout: 1m\nalerting: {min_bad: 10}\n")
    assert as_text(difference(loads(MINIMAL), written)) == "no differences"


def test_another_order_of_classes_is_a_difference() -> None:
    first, second = MINIMAL.splitlines(keepends=True)[4:6]
    swapped = loads(MINIMAL.replace(first + second, second + first))
    assert (
        "  ~ classes: short, long, other -> long, short, other\n" in as_text(difference(loads(MINIMAL), swapped)) + "\n"
    )


FILES = {
    "minimal": MINIMAL,
    "another class and SLO": MINIMAL.replace("name: long", "name: longer")
    + "  - {name: up, classes: [longer], signal: availability, objective: 99%}\n",
    "another period": MINIMAL.replace("30d", "7d"),
    "tenants": MINIMAL + "tenants: {allow: [a, b]}\nalerting: {per_tenant: true}\n",
    "overrides": MINIMAL
    + "alerting: {cold_start_of: {m: 45m}, alerts: {LLMSidecarDown: {for: 10m, enabled: false}}}\nlabels: {team: ml}\n",
    "vLLM alone": ENGINE_ONLY,
}
PAIRS = [pytest.param(old, new, id=f"{old} to {new}") for old, new in pairwise([*FILES, "minimal"])]
"""Each file and the next one, so that each is once the old and once the new file."""


@functools.cache
def rule_file(name: str) -> Any:
    """The loader in C takes a tenth of the time."""
    return yaml.load(render(loads(FILES[name])), yaml.CSafeLoader)


@functools.cache
def between(old: str, new: str) -> Difference:
    return difference(loads(FILES[old]), loads(FILES[new]))


def rules_of(name: str, kind: str) -> set[str]:
    groups = rule_file(name)["groups"]
    found = [(rule[kind], rule.get("labels", {})) for group in groups for rule in group["rules"] if kind in rule]
    return {
        f"{name}{{{', '.join(pairs)}}}" if pairs else name
        for name, labels in found
        if not of_sidecar(name)
        for pairs in [[f'{key}="{value}"' for key, value in sorted(labels.items())]]
    }


def of_sidecar(series: str) -> bool:
    """Whether a sidecar exposes the series; rules record it only for vLLM alone."""
    return series.startswith("llm_") and ":" not in series


@pytest.mark.parametrize("old, new", PAIRS)
def test_added_and_removed_alerts_and_series_are_those_of_the_rule_files(old: str, new: str) -> None:
    found = between(old, new)
    for kind, changes in (("alert", found.alerts), ("record", found.series)):
        had, has = rules_of(old, kind), rules_of(new, kind)
        assert {each.what for each in changes if each.old is None and not of_sidecar(each.what)} == has - had
        assert {each.what for each in changes if each.new is None and not of_sidecar(each.what)} == had - has


@pytest.mark.parametrize("old, new", PAIRS)
def test_the_way_back_adds_what_the_change_removes(old: str, new: str) -> None:
    there, back = between(old, new), between(new, old)
    for one, other in ((there.objectives, back.objectives), (there.alerts, back.alerts), (there.series, back.series)):
        assert {each.what for each in one if each.old is None} == {each.what for each in other if each.new is None}
        assert {each.what for each in one} == {each.what for each in other} != set()


def test_json_has_the_same_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "old.yaml").write_text(MINIMAL)
    (tmp_path / "new.yaml").write_text(LOOSER)
    files = ["--slos", str(tmp_path / "new.yaml"), "--against", str(tmp_path / "old.yaml")]
    assert main(["alerts", "diff", *files, "--format", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["objectives"][0] == {"what": "slos.ttft.threshold", "old": "5s", "new": "7s"}
    assert {name: len(part) for name, part in shown.items()} == {
        "objectives": 2,
        "limits": 4,
        "alerts": 2,
        "series": 7,
        "notes": 2,
    }


def test_the_page_on_gitops_shows_lines_of_this_output() -> None:
    page = (ROOT / "docs" / "gitops.md").read_text(encoding="utf-8")
    block = page.partition("    SLO file:\n")[2].partition("\n`+` is added")[0]
    shown = [line.strip().removesuffix(" ...") for line in block.splitlines() if line.strip() not in {"", "..."}]
    assert [line for line in shown if line not in TEXT] == []
    assert len(shown) > 8
