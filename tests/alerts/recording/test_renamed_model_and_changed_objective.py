"""A model that is renamed in an incident, and an objective that is changed within the period."""

import pytest

from alerts.rule_file import rules
from alerts.rules.groups import Recording
from exporters.vocabulary.slo_file import SloFile, load, loads
from tests.alerts.firing import firing
from tests.support.promtool import ROOT, Case, Pace, Promtool

SHIPPED = load(ROOT / "alerts/slos.yaml")
PAGE = firing("LLMErrorBudgetBurn", "model", severity="page")
LEFT = 'round(llm_slo:error_budget:remaining_ratio{slo="ttft"}, 0.1)'
OLD, NEW = '{model="old"}', '{model="new"}'


def test_a_renamed_model_pages_under_its_new_name_and_starts_with_a_full_budget(promtool: Promtool) -> None:
    pace = Pace(SHIPPED)
    begun, renamed, after = 36, 46, 6
    old = pace.slo_events((begun, 100, 0), (renamed - begun, 100, 1), (after, 0, 0), model="old")
    new = pace.slo_events((after, 100, 1), model="new", start=0)
    before = f"_x{pace.scrapes(renamed)}"
    case = Case(SHIPPED, old | {name: f"{before} {values}" for name, values in new.items()}, pace.step)
    case.expect(pace.seconds(renamed), PAGE, {OLD: 1})
    # The old page ends with its short window and the step after it; the new one comes with the first events.
    case.expect(pace.seconds(renamed + 1), PAGE, {OLD: 1, NEW: 1}).expect(pace.seconds(renamed + 2), PAGE, {NEW: 1})
    case.expect(pace.seconds(renamed + after - 1), PAGE, {NEW: 1})
    at, labels = pace.seconds(renamed + after - 1), 'class="siso",model="%s",slo="ttft"'
    left = {f"{{{labels % 'old'}}}": 1 - 10 / 46 / 0.05, f"{{{labels % 'new'}}}": 1 - 1 / 0.05}
    case.expect(at, LEFT, {name: round(value, 1) for name, value in left.items()})
    promtool.test([case])


def spec_with_objective(percent: str) -> SloFile:
    return loads((ROOT / "alerts/slos.yaml").read_text().replace("objective: 95%", f"objective: {percent}", 1))


@pytest.mark.parametrize(
    "objective,left,pages",
    [
        pytest.param("95%", 0.4, False, id="95 %: three fifths of the budget are spent"),
        pytest.param("97%", 0.0, False, id="97 %: all of it"),
        pytest.param("99.8%", -14.0, True, id="99.8 %: 15 times as much, at a burn rate that pages"),
    ],
)
def test_another_objective_judges_the_whole_period_by_the_counts_that_exist(
    promtool: Promtool, objective: str, left: float, pages: bool
) -> None:
    """3 % of the requests are bad, before and after the change."""
    spec = spec_with_objective(objective)
    pace = Pace(spec)
    case = Case(spec, pace.slo_events((30, 100, 0.03), model="m"), pace.step)
    case.expect(pace.seconds(29), LEFT, {'{class="siso",model="m",slo="ttft"}': left})
    promtool.test([case.expect(pace.seconds(29), PAGE, {'{model="m"}': 1} if pages else {})])


def test_the_rules_that_count_do_not_depend_on_the_objective() -> None:
    """So the counts that were recorded before the change remain valid, and no rule reads a recorded budget."""

    def counts(spec: SloFile) -> list[Recording]:
        recorded = (rule for group in rules(spec) for rule in group.rules if isinstance(rule, Recording))
        return [rule for rule in recorded if rule.series.name.endswith((":increase", "_events:ratio"))]

    names = {"llm_slo:tier_bad_events:ratio", "llm_slo:page_bad_events:ratio"}
    before, after = (
        [rule for rule in counts(spec_with_objective(each)) if rule.series.name not in names] for each in ("95%", "99%")
    )
    assert before == after
    assert {"llm_slo:events:increase", "llm_slo:bad_events:increase"} <= {rule.series.name for rule in before}
