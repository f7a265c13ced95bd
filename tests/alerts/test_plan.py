"""Tiers and windows are derived from the period, and every tier can fire."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.plan import Plan
from alerts.rules.wording import rescaled
from alerts.tiers import Severity, fit, tiers
from exporters.vocabulary.slo_file import Availability, Slo, load, loads
from tests.support.promtool import ROOT

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


@pytest.mark.parametrize(
    "name,severity,long,short,factor",
    [
        pytest.param("fast-page", Severity.PAGE, HOUR, 5 * MINUTE, 14.4, id="2 % in an hour"),
        pytest.param("slow-page", Severity.PAGE, 6 * HOUR, 30 * MINUTE, 6, id="5 % in six hours"),
        pytest.param("fast-ticket", Severity.TICKET, DAY, 2 * HOUR, 3, id="10 % in a day"),
        pytest.param("slow-ticket", Severity.TICKET, 3 * DAY, 6 * HOUR, 1, id="10 % in three days"),
    ],
)
def test_thirty_days_give_the_published_table(
    name: str, severity: Severity, long: float, short: float, factor: float
) -> None:
    tier = next(each for each in tiers(30 * DAY) if each.name == name)
    assert (tier.severity, tier.long, tier.short, tier.factor) == (severity, long, short, factor)


@given(st.floats(12 * HOUR, 400 * DAY))
def test_factors_do_not_depend_on_the_period(period: float) -> None:
    assert [round(tier.factor, 6) for tier in tiers(period)] == [14.4, 6, 3, 1]


@given(st.floats(0.01, 0.9999))
def test_an_outage_can_reach_every_tier_of_every_objective(objective: float) -> None:
    slo = Slo(name="x", classes=("any",), sli=Availability(), objective=objective)
    for tier in tiers(30 * DAY):
        fitted = fit(tier, slo)
        assert fitted.bad_ratio(slo) < 1
        assert fitted.factor <= tier.factor
        assert (fitted == tier) == (tier.bad_ratio(slo) < 1)


def test_the_labs_file_pages_on_sixty_and_five_seconds() -> None:
    lengths = Plan.of(load(ROOT / "compose/slos.yaml"))
    assert lengths.direct == (5, 30, 60)
    assert lengths.of_steps == (120, 360)
    assert lengths.of_dozens == (1440, 4320, 43200)
    assert lengths.step == 5


def test_the_note_of_a_rescaled_tier_states_both_burn_rates_with_two_decimals() -> None:
    text = (ROOT / "alerts/slos.yaml").read_text()
    strict, loose = (loads(each).slos[0] for each in (text, text.replace("objective: 95%", "objective: 86%", 1)))
    assert not [*rescaled(strict, 30 * DAY)]
    (note,) = rescaled(loose, 30 * DAY)
    assert note == (
        "slo ttft, tier fast-page: a burn rate of 14.4 would need 201.6 % bad events, which is impossible; "
        "rescaled to 6.43, which needs 90 %"
    )
