"""Rules are evaluated after the rules that they read."""

from itertools import chain

import pytest

from alerts.plan import OPEN, Plan
from alerts.recording.steps import counts_of_past
from alerts.rule_file import rules
from alerts.rules.groups import Recording, RuleGroup
from compose.backfill.rule_order import passes
from exporters.vocabulary import signals, slo_file
from exporters.vocabulary.signals import Label, Recorded
from tests.support.promtool import Case, Pace, Promtool
from tests.support.sample_records import SLOS

SHIPPED = slo_file.load(slo_file.SHIPPED)


@pytest.mark.slow
@pytest.mark.parametrize("spec", [SHIPPED, SLOS], ids=["shipped", "12 hours"])
def test_each_rule_is_in_one_pass_after_all_rules_that_it_reads(spec: slo_file.SloFile) -> None:
    ordered = passes(spec)
    recordings = [rule for group in rules(spec) for rule in group.rules if isinstance(rule, Recording)]
    assert sorted((each.rule.series.name, str(each.rule.labels)) for each in chain(*ordered)) == sorted(
        (rule.series.name, str(rule.labels))
        for rule in recordings
        if rule.series not in {signals.ENGINE_MODEL, signals.PAGE_HELD, signals.HELD_PAGE, signals.STEP_TIME}
    )
    for number, each in enumerate(ordered):
        later = [rule for rules_of_pass in ordered[number:] for rule in rules_of_pass]
        assert not [rule for rule in each if any(rule.reads(other) for other in later)]


def test_a_burn_rate_is_evaluated_after_its_counts() -> None:
    numbers = {
        (each.rule.series.name, each.rule.labels.get("window")): number
        for number, rules_of_pass in enumerate(passes(SHIPPED))
        for each in rules_of_pass
    }
    names = [("llm_slo:events:increase", "step"), ("llm_slo:events:increase", "open")]
    names += [
        ("llm_slo:events:increase", "1d"),
        ("llm_slo:bad_events:ratio", "1d"),
        ("llm_slo:error_budget:burn_rate", "1d"),
    ]
    assert [numbers[name] for name in names] == [0, 1, 2, 3, 4]


def test_an_open_dozen_is_the_same_without_its_own_last_sample(promtool: Promtool) -> None:
    """At each of 40 steps with other counts, with a pause in which there are none."""
    spec = SHIPPED
    assert Plan.of(spec).step == 300
    pace = Pace(spec).coarse
    once = next(
        rule
        for rule in counts_of_past(Plan.of(pace.spec))
        if rule.series == signals.SLO_EVENTS_IN and rule.labels == {Label.WINDOW: OPEN}
    )
    series = Recorded("once", "", signals.SLO_EVENTS_IN.labels)
    other = RuleGroup("once", Plan.of(spec).step, (Recording(series, once.expr, once.labels),))
    phases = [(1, float(number % 7), 0.0) for number in range(20)] + [(14, 0, 0.0), (6, 5, 0.0)]
    case = Case(pace.spec, pace.slo_events(*phases), interval=300)
    labels = '{class="siso",model="org/m",slo="ttft",window="open"}'
    different = f'abs(once - llm_slo:events:increase{{window="{OPEN}"}}) > 1e-9'
    for step in range(3, 40):
        case.expect(pace.seconds(step), different, {})
        case.expect(pace.seconds(step), f"count(once{labels})", {"{}": 1})
    promtool.test([case], more=[other])
