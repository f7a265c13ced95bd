"""The rules read as few series as they can: what several alerts compare is recorded once, or is usually absent."""

import re

from alerts.plan import Plan
from alerts.promql.build import select
from alerts.recording.limits import over_limit
from alerts.rule_file import rules
from alerts.rules.groups import Alert
from exporters.vocabulary.signals import RECORDED, REQUESTS_IN, Label
from exporters.vocabulary.slo_file import SHIPPED, SloFile, load

SPARSE = {
    "llm_slo:long_window_bad_events:ratio",
    "llm_slo:low_traffic_events:increase",
    "llm_slo:tier_bad_events:ratio",
    "llm_slo:page_bad_events:ratio",
    "llm_slo:held_bad_events:increase",
    "llm_slo:held_page:group",
    "llm_slo:outlier_bad_events:ratio",
    "llm_instance:outlier_bad_events:ratio",
    "llm_instance:surge_requests:ratio",
    "llm_class:surge_requests:ratio",
    "llm_engine:cold_start:group",
}
"""Recorded series that exist only while something is wrong or has little traffic."""


def reads_a_minute(spec: SloFile) -> float:
    """Selectors of recorded series that exist in a healthy fleet, weighted by the rate of evaluation."""
    names = "|".join(re.escape(each.name) for each in RECORDED if each.name not in SPARSE)
    pattern = re.compile(rf"(?<![\w:])(?:{names})(?![\w:])")
    each = ((str(rule.expr), group.interval) for group in rules(spec) for rule in group.rules)
    return sum(len(pattern.findall(expression)) * 60 / interval for expression, interval in each)


def test_rules_read_fewer_series_than_one_rule_for_each_tier_would() -> None:
    """With a rule for each tier of each SLO and without the alert on outliers, the same count was 137.6."""
    assert reads_a_minute(load(SHIPPED)) < 137


def test_ended_requests_by_outcome_are_read_by_recording_rules_only() -> None:
    """They have the most series at each sidecar; the failed ones, which alerts on restarts read, are few."""
    readers = [
        str(rule.expr)
        for group in rules(load(SHIPPED))
        for rule in group.rules
        if isinstance(rule, Alert) and REQUESTS_IN.name in str(rule.expr)
    ]
    assert all(f'{Label.OUTCOME}=~"timeout' in each for each in readers)


def test_the_limits_of_all_slos_are_one_comparison_unless_a_tier_is_rescaled(spec: SloFile, loose: SloFile) -> None:
    at_once, one_by_one = (str(over_limit(Plan.of(file), 0, select("x"))) for file in (spec, loose))
    assert at_once == "x > on (class, slo) group_left () 14.4 * (1 - llm_slo:objective:ratio)"
    assert one_by_one.count("llm_slo:objective:ratio{slo=") == len(loose.slos)
