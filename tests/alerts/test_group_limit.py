"""Groups are split for evaluators that limit their rules; alerts tolerate that the parts are evaluated in any order."""

from itertools import chain
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.group_limit import FEWEST, MAX_RULES, limited
from alerts.plan import Plan
from alerts.rule_file import rules
from alerts.rules.groups import Recording
from compose.cli import main
from exporters.vocabulary.signals import Label
from exporters.vocabulary.slo_file import load
from tests.alerts.firing import burning, firing
from tests.support.promtool import ROOT, Case, Late, Pace, Promtool

SHIPPED = load(ROOT / "alerts/slos.yaml")


@settings(max_examples=15)
@given(most=st.integers(13, 50))
def test_parts_keep_all_rules_in_order_and_the_rules_of_a_window_together(most: int) -> None:
    groups = rules(SHIPPED)
    parts = limited(groups, most)
    assert all(len(part.rules) <= most for part in parts)
    assert [*chain(*(part.rules for part in parts))] == [*chain(*(group.rules for group in groups))]
    assert len({part.name for part in parts}) == len(parts)
    for part in parts:
        recorded = {
            (rule.series.name, rule.labels.get(Label.WINDOW)) for rule in part.rules if isinstance(rule, Recording)
        }
        for series, window in recorded:
            if series == "llm_slo:bad_events:ratio":
                assert ("llm_slo:bad_events:increase", window) in recorded


def test_the_committed_rules_fit_the_default_limit_of_mimir() -> None:
    document = yaml.load((ROOT / "alerts/generated/rules.yaml").read_text(), yaml.CSafeLoader)
    assert max(len(group["rules"]) for group in document["groups"]) <= MAX_RULES == 20


@pytest.mark.parametrize("late", [None, "groups"], ids=["in order", "late groups"])
def test_a_page_fires_and_ends_in_any_order_of_the_parts(promtool: Promtool, late: Late) -> None:
    """One evaluation later than undivided groups at most; the ticket stays silent."""
    pace, interval = Pace(SHIPPED), Plan.of(SHIPPED).direct_interval
    begun, ended = pace.seconds(36), pace.seconds(48)
    case = Case(SHIPPED, pace.slo_events((24, 700, 0), (12, 100, 0), (12, 100, 1), (12, 100, 0)), interval)
    # 72 % of an hour is bad after 43.2 minutes, 30 % of six hours never, 5 % of three days before the end.
    page = firing("LLMErrorBudgetBurn", "severity", severity="page")
    fires = begun + 44 * 60 + 2 * interval
    case.expect(begun + 43 * 60, page, {}).expect(fires, page, {'{severity="page"}': 1})
    for at in range(round(fires), round(ended), 300):
        case.expect(float(at), page, {'{severity="page"}': 1})
        case.expect_silent(float(at), "LLMErrorBudgetBurn", severity="ticket")
    case.expect(ended, burning(SHIPPED, "slow-ticket", "slo"), {'{slo="ttft"}': 1})
    case.expect(ended + 7 * 300 + 3 * interval, page, {})
    promtool.test([case], most=6, late=late)


def test_the_limit_is_a_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alerts", "render", "--out", str(tmp_path), "--max-rules-per-group", "1000"]) == 0
    document = yaml.load((tmp_path / "rules.yaml").read_text(), yaml.CSafeLoader)
    assert [group["name"] for group in document["groups"]] == [group.name for group in rules(SHIPPED)]
    assert main(["alerts", "render", "--out", str(tmp_path), "--max-rules-per-group", "12"]) == 2
    assert "--max-rules-per-group: 12 is too few; use 13 or more" in capsys.readouterr().err


def test_the_fewest_rules_are_those_of_the_largest_group_that_is_not_divisible() -> None:
    assert max(len(group.rules) for group in limited(rules(SHIPPED), FEWEST)) == FEWEST
    assert [len(group.rules) for group in rules(SHIPPED) if not group.divisible] == [FEWEST]
