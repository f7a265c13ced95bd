"""With `per_tenant`, a tenant that burns inside a healthy total pages by name."""

from dataclasses import replace

import pytest

from alerts.rule_file import render
from exporters.vocabulary.slo_file import SloFile, load
from tests.alerts.firing import firing
from tests.support.promtool import ROOT, Case, Pace, Promtool

TENANT, BURN = "LLMTenantErrorBudgetBurn", "LLMErrorBudgetBurn"


@pytest.fixture
def per_tenant(pace: Pace) -> SloFile:
    tenants = replace(pace.spec.tenants, allow=("small", "big"))
    return replace(pace.spec, tenants=tenants, alerting=replace(pace.spec.alerting, per_tenant=True))


def test_one_tenant_that_burns_inside_a_healthy_total_pages_by_name(promtool: Promtool, per_tenant: SloFile) -> None:
    """80 % of the small tenant's requests are bad, which are 1.6 % of all: the objective allows 5 %."""
    pace = Pace(per_tenant)
    series = {
        **pace.slo_events((24, 2, 0), (12, 2, 0.8), (6, 2, 0), tenant="small"),
        **pace.slo_events((24, 98, 0), (12, 98, 0), (6, 98, 0), tenant="big"),
    }
    page = firing(TENANT, "class, model, slo, tenant", severity="page")
    labels = '{class="siso",model="org/m",slo="ttft",tenant="small"}'
    case = Case(per_tenant, series, pace.step).expect_silent(pace.seconds(24))
    case.expect(pace.seconds(36), page, {labels: 1}).expect_silent(pace.seconds(36), BURN)
    promtool.test([case.expect_silent(pace.seconds(39), TENANT)])


def test_when_all_tenants_burn_there_is_one_page_for_all(promtool: Promtool, per_tenant: SloFile) -> None:
    pace = Pace(per_tenant)
    small, big = (
        pace.slo_events((24, rate, 0), (12, rate, 1), tenant=name) for name, rate in (("small", 2), ("big", 98))
    )
    case = Case(per_tenant, small | big, pace.step).expect_silent(pace.seconds(36), TENANT)
    page = firing(BURN, "class, model, slo, severity")
    labels = '{class="siso",model="org/m",severity="page",slo="ttft"}'
    promtool.test([case.expect(pace.seconds(36), page, {labels: 1})])


def test_no_tenant_pages_first_where_the_rules_for_all_tenants_are_evaluated_later(
    promtool: Promtool, per_tenant: SloFile
) -> None:
    pace = Pace(per_tenant)
    small, big = (
        pace.slo_events((24, rate, 0), (12, rate, 1), tenant=name) for name, rate in (("small", 2), ("big", 98))
    )
    case = Case(per_tenant, small | big, pace.step / 5)
    for step in range(25, 36):
        case.expect_silent(pace.seconds(step), TENANT)
    promtool.test([case.expect_firing(pace.seconds(35), BURN)], late="groups", often=True)


def test_a_tenant_needs_enough_events(promtool: Promtool, per_tenant: SloFile) -> None:
    pace = Pace(per_tenant)
    small = pace.slo_events((12, 40 / pace.scrapes(12), 1), tenant="small")
    big = pace.slo_events((12, 100, 0), tenant="big")
    promtool.test([Case(per_tenant, small | big, pace.step).expect_silent(pace.seconds(12), TENANT)])


def test_without_per_tenant_no_rule_has_tenants() -> None:
    assert "tenant" not in render(load(ROOT / "alerts/slos.yaml")).lower()
