"""One tenant that burns inside a healthy total pages by name where the file asks for it, and costs nothing else."""

import pytest

from alerts.rule_file import render
from exporters.slos import SloFile, load, loads
from tests.support.promtool import ROOT, Case, Pace, Promtool

TENANT, BURN = "LLMTenantErrorBudgetBurn", "LLMErrorBudgetBurn"


@pytest.fixture(scope="module", params=["alerts/slos.yaml", "compose/slos.yaml"], ids=["30d", "12h"])
def per_tenant(request: pytest.FixtureRequest) -> SloFile:
    text = (ROOT / request.param).read_text().replace("allow: []", "allow: [small, big]")
    return loads(text.replace("per_tenant: false", "per_tenant: true"))


def test_one_tenant_that_burns_inside_a_healthy_total_pages_by_name(promtool: Promtool, per_tenant: SloFile) -> None:
    """80 % of the small one's requests are bad, which are 1.6 % of all: the objective allows 5 %."""
    pace = Pace(per_tenant)
    series = {
        **pace.slo_events((24, 2, 0), (12, 2, 0.8), (6, 2, 0), tenant="small"),
        **pace.slo_events((24, 98, 0), (12, 98, 0), (6, 98, 0), tenant="big"),
    }
    firing = f'ALERTS{{alertname="{TENANT}",alertstate="firing",severity="page",tier="fast-page"}}'
    labels = '{class="siso",model="org/m",slo="ttft",tenant="small"}'
    promtool.test(
        [
            Case(per_tenant, series, pace.step)
            .expect_silent(pace.seconds(24))
            .expect(pace.seconds(36), f"sum by (class, model, slo, tenant) ({firing})", {labels: 1})
            .expect_silent(pace.seconds(36), BURN)
            .expect_silent(pace.seconds(39), TENANT, tier="fast-page")
        ]
    )


def test_when_all_burn_one_page_says_it_and_no_tenant_is_named(promtool: Promtool, per_tenant: SloFile) -> None:
    pace = Pace(per_tenant)
    series = pace.slo_events((24, 98, 0), (12, 98, 1), tenant="big") | pace.slo_events(
        (24, 2, 0), (12, 2, 1), tenant="small"
    )
    case = Case(per_tenant, series, pace.step).expect_silent(pace.seconds(36), TENANT, tier="fast-page")
    promtool.test(
        [
            case.expect(
                pace.seconds(36),
                f'ALERTS{{alertname="{BURN}",tier="fast-page"}} * 0 + 1',
                {
                    '{alertname="LLMErrorBudgetBurn",alertstate="firing",class="siso",model="org/m",severity="page",slo="ttft",'
                    'tier="fast-page",window="%s"}' % ("1h" if per_tenant.period > 86400 else "1m"): 1
                },
            )
        ]
    )


def test_a_tenant_needs_events_and_bad_events_enough(promtool: Promtool, per_tenant: SloFile) -> None:
    pace = Pace(per_tenant)
    hour = pace.scrapes(12)
    series = pace.slo_events((12, 40 / hour, 1), tenant="small") | pace.slo_events((12, 100, 0), tenant="big")
    promtool.test([Case(per_tenant, series, pace.step).expect_silent(pace.seconds(12), TENANT)])


def test_rules_per_tenant_are_made_only_where_the_file_asks_for_them() -> None:
    assert "tenant" not in render(load(ROOT / "alerts/slos.yaml")).lower()
