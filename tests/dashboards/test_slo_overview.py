import json
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards import slo_overview
from dashboards.command import GENERATED
from dashboards.page import to_json
from dashboards.truth import truth_queries
from exporters.slos import SHIPPED, SloFile, load, loads

COMMITTED = GENERATED / "slo-overview.json"
LAB = Path(__file__).parents[2] / "compose" / "slos.yaml"

STRICTER = """
version: 1
period: 30d
first_token_timeout: 20s
classes: [{name: chat}]
slos:
  - {name: fast, classes: [chat], signal: ttft, threshold: 300ms, objective: 99%}
  - {name: slow, classes: [other], signal: ttft, threshold: 2s, objective: 80%}
"""


@pytest.fixture(scope="module")
def spec() -> SloFile:
    return load(SHIPPED)


def panel(page: dict[str, Any], title: str) -> dict[str, Any]:
    (found,) = [one for one in page["panels"] if one["title"] == title]
    return dict(found)


def steps(page: dict[str, Any], title: str) -> list[float | None]:
    return [step["value"] for step in panel(page, title)["fieldConfig"]["defaults"]["thresholds"]["steps"]]


def test_the_committed_dashboard_is_what_the_slo_file_gives(spec: SloFile) -> None:
    assert COMMITTED.read_text(encoding="utf-8") == slo_overview.render(spec)


def test_rendering_twice_gives_the_same_bytes(spec: SloFile) -> None:
    assert slo_overview.render(spec) == slo_overview.render(spec)


def test_the_sdk_reads_the_file_back_into_the_same_dashboard() -> None:
    text = COMMITTED.read_text(encoding="utf-8")
    assert to_json(Dashboard.from_json(json.loads(text))) == text


def test_the_queries_are_the_same_for_every_slo_file_so_a_shorter_period_needs_no_other_dashboard(
    spec: SloFile,
) -> None:
    shipped, lab = (json.loads(slo_overview.render(file)) for file in (spec, load(LAB)))
    assert [one.get("targets") for one in shipped["panels"]] == [one.get("targets") for one in lab["panels"]]


def test_thresholds_come_from_the_slo_file() -> None:
    page = json.loads(slo_overview.render(loads(STRICTER)))
    assert steps(page, "Time to first token") == [None, 0.3, 2.0]
    assert steps(page, "Oldest wait") == [None, 0.3, 20.0]
    assert steps(page, "Goodput now") == [None, 0.6, 0.8]
    assert steps(page, "Burn rate") == [None, 1, 6, 14.4]


def test_an_slo_file_without_a_ttft_threshold_draws_none() -> None:
    page = json.loads(slo_overview.render(loads(STRICTER.replace("signal: ttft", "signal: e2e"))))
    assert steps(page, "Time to first token") == [None]
    assert steps(page, "Oldest wait") == [None, 20.0]


def test_flips_are_drawn_at_the_time_that_the_series_holds() -> None:
    (flips,) = json.loads(COMMITTED.read_text(encoding="utf-8"))["annotations"]["list"]
    assert slo_overview.flip_query() == "llm_engine_config_change_timestamp_seconds * 1000"
    assert flips["expr"] == flips["target"]["expr"] == slo_overview.flip_query()
    assert flips["useValueForTime"] is True
    assert flips["titleFormat"] == "{{setting}}: {{old}} → {{new}}"
    assert "placement" not in flips  # it would hide the switch in a menu


def test_each_truth_query_is_the_query_of_one_panel() -> None:
    page = json.loads(COMMITTED.read_text(encoding="utf-8"))
    shown = {one["title"]: [target["expr"] for target in one.get("targets", [])] for one in page["panels"]}
    titles = ["Offered", "OK", "Goodput", "TTFT p50", "Tokens out", "Cached tokens"]
    assert list(truth_queries()) == ["offered", "ok", "goodput", "ttft_p50", "tokens_out", "cached_tokens"]
    assert [shown[f"{title} in range"] for title in titles] == [[query] for query in truth_queries().values()]


def test_the_uid_never_changes_because_alerts_link_to_it() -> None:
    assert json.loads(COMMITTED.read_text(encoding="utf-8"))["uid"] == "vllm-slo-overview"
