"""The scenarios of docs/design/sloth.md: Sloth's rules and ours in one promtool run.

Sloth's rules follow its documentation and the rules that it generates from its examples: ratios of rates in seven
windows, a mean of the 5-minute ratios over the period, and two alerts of two tiers each.
"""

import re
from collections.abc import Iterator

import pytest

from alerts.links import DashboardUid, PanelTitle
from alerts.promql.build import equal, select
from alerts.promql.expression import Variable
from alerts.rules.groups import Alert, Recording, RuleGroup
from exporters.text.units import number
from exporters.vocabulary.signals import SLO_BAD, SLO_EVENTS, Label, Recorded
from exporters.vocabulary.slo_file import SloFile, loads
from tests.alerts.firing import firing
from tests.support.promtool import ROOT, Case, Pace, Promtool, counter

SHIPPED = (ROOT / "alerts/slos.yaml").read_text()
OURS, TICKET, TENANT = "LLMErrorBudgetBurn", "LLMErrorBudgetLowTraffic", "LLMTenantErrorBudgetBurn"
SLOTH = "Sloth"
PANEL = (DashboardUid.OVERVIEW, PanelTitle.BURN_RATE)
WINDOWS = ("5m", "30m", "1h", "2h", "6h", "1d", "3d")
TIERS = {"page": ((14.4, "5m", "1h"), (6, "30m", "6h")), "ticket": ((3, "2h", "1d"), (1, "6h", "3d"))}
ENDED = "llm_requests_total"


def sloth(objective: float, bad: str, events: str, *, optimized: bool = True) -> tuple[RuleGroup, ...]:
    """Rules of one SLO, from selectors of bad events and all events; not `optimized`: --disable-optimized-rules."""
    budget = number(round(1 - objective / 100, 12))

    def ratio(window: str) -> Recorded:
        return Recorded(f"slo:sli_error:ratio_rate{window}", "", ())

    def both(factor: float, short: str, long: str) -> str:
        exceeded = (f"max without (sloth_window) ({ratio(each).name} > {factor} * {budget})" for each in (short, long))
        return f"({' and '.join(exceeded)})"

    def recorded() -> Iterator[Recording]:
        for window in WINDOWS if optimized else (*WINDOWS, "30d"):
            rates = (f"sum(rate({each}[{window}]))" for each in (bad, events))
            yield Recording(ratio(window), Variable(" / ".join(rates)), {"sloth_window": window})
        if optimized:
            mean = " / ".join(f"{of}_over_time({ratio('5m').name}[30d])" for of in ("sum", "count"))
            yield Recording(ratio("30d"), Variable(mean), {"sloth_window": "30d"})
        left = f"1 - {ratio('30d').name} / {budget}"
        yield Recording(Recorded("slo:period_error_budget_remaining:ratio", "", ()), Variable(left))

    alerts = (
        Alert(SLOTH, Variable(" or ".join(both(*tier) for tier in tiers)), {"severity": severity}, {}, PANEL)
        for severity, tiers in TIERS.items()
    )
    return RuleGroup("sloth-recordings", 60, tuple(recorded())), RuleGroup("sloth-alerts", 60, tuple(alerts))


def on_our_counts(objective: float, slo: str = "ttft", *, optimized: bool = True) -> tuple[RuleGroup, ...]:
    """Sloth's rules on the verdicts of the sidecar, as ours."""
    bad, events = (str(select(each, equal(Label.SLO, slo))) for each in (SLO_BAD, SLO_EVENTS))
    return sloth(objective, bad, events, optimized=optimized)


def with_objective(percent: float) -> SloFile:
    return loads(SHIPPED.replace("objective: 95%", f"objective: {percent}%", 1))


def page(case: Case, at: float, *, ours: bool, sloths: bool) -> Case:
    """Whether our rules and Sloth's page at that time."""
    for alert, pages in ((OURS, ours), (SLOTH, sloths)):
        query = f'count(ALERTS{{alertname="{alert}",alertstate="firing",severity="page"}}) > bool 0'
        case.expect(at, query, {"{}": 1} if pages else {})
    return case


@pytest.mark.parametrize("percent", [95.0, 99.9])
def test_objectives_that_the_published_factors_fit_page_at_the_same_time(promtool: Promtool, percent: float) -> None:
    pace = Pace(with_objective(percent)).coarse
    share = 1 if percent == 95.0 else 0.05
    # Steps of bad events until an hour has enough.
    needed = 14.4 * (1 - percent / 100) / share * 12
    # After six good hours.
    begun, burning = 74, int(needed) + 4
    case = Case(pace.spec, pace.slo_events((begun, 100, 0), (burning, 100, share), (4, 100, 0)), pace.step)
    page(case, pace.seconds(begun + needed - 1), ours=False, sloths=False)
    page(case, pace.seconds(begun + needed + 2), ours=True, sloths=True)
    promtool.test([case], more=on_our_counts(percent))


def test_an_outage_under_an_objective_of_90_percent(promtool: Promtool) -> None:
    """14.4 x 10 % is above 100 %; 6 x 10 % of 6 h is an outage of 3 h 36 m. Rescaled to 9, it is 54 m."""
    pace = Pace(with_objective(90)).coarse
    case = Case(pace.spec, pace.slo_events((74, 100, 0), (50, 100, 1)), pace.step)
    page(case, pace.seconds(74 + 10), ours=False, sloths=False)
    page(case, pace.seconds(74 + 12), ours=True, sloths=False)
    page(case, pace.seconds(74 + 42), ours=True, sloths=False)
    page(case, pace.seconds(74 + 45), ours=True, sloths=True)
    promtool.test([case], more=on_our_counts(90))


def test_six_requests_a_day_of_which_one_is_bad(promtool: Promtool) -> None:
    pace = Pace(with_objective(99.9)).coarse
    gap = pace.scrapes(48) - 1
    events = [(0, gap), (1, 1)] * 6
    bad = [(0, gap), (0, 1)] * 5 + [(0, gap), (1, 1)]
    case = Case(pace.spec, pace.slo_event_runs([*events, (0, 12)], [*bad, (0, 12)]), pace.step)
    page(case, pace.seconds(6 * 48 - 1), ours=False, sloths=False)
    page(case, pace.seconds(6 * 48), ours=False, sloths=True)
    case.expect_silent(pace.seconds(6 * 48), TICKET)
    promtool.test([case], more=on_our_counts(99.9))


@pytest.mark.long
def test_six_requests_a_day_most_of_them_bad(promtool: Promtool) -> None:
    pace = Pace(with_objective(99.9)).coarse
    wait = (0, pace.scrapes(48) - 1)
    events, bad = [wait, (1, 1)] * 16, [wait, (1, 1)] * 4 + [wait, (0, 1)] * 2 + [wait, (1, 1)] * 10
    case = Case(pace.spec, pace.slo_event_runs([*events, (0, 12)], [*bad, (0, 12)]), pace.step)
    last = pace.seconds(16 * 48)
    page(case, last, ours=False, sloths=True)
    ticket = firing(TICKET, "slo", severity="ticket")
    case.expect(pace.seconds(6 * 48), ticket, {}).expect(last + 2 * pace.step, ticket, {'{slo="ttft"}': 1})
    promtool.test([case.expect_silent(last + 2 * pace.step, OURS)], more=on_our_counts(99.9))


@pytest.mark.parametrize("optimized", [True, False])
def test_an_hour_of_2_percent_of_the_traffic_with_half_of_it_bad(promtool: Promtool, optimized: bool) -> None:
    """0.98 % of the requests are bad. A mean of ratios gives both hours the same weight."""
    pace = Pace(with_objective(95)).coarse
    case = Case(pace.spec, pace.slo_events((12, 600, 0), (12, 12, 0.5)), pace.step)
    at, expected = pace.seconds(24), 0.5 * 12 / 612
    ours, sloths = 'llm_slo:bad_events:ratio{slo="ttft",window="30d"}', "slo:sli_error:ratio_rate30d"
    case.expect(at, f"count(abs({ours} / {expected} - 1) < 0.05)", {"{}": 1})
    case.expect(at, f"count(abs({sloths} / {0.25 if optimized else expected} - 1) < 0.1)", {"{}": 1})
    case.expect(at, f"count(abs(1 - llm_slo:error_budget:remaining_ratio - {expected / 0.05}) < 0.01)", {"{}": 1})
    case.expect(at, f"count(slo:period_error_budget_remaining:ratio {'< -3.5' if optimized else '> 0.79'})", {"{}": 1})
    promtool.test([case], more=on_our_counts(95, optimized=optimized))


def test_counter_resets(promtool: Promtool) -> None:
    pace = Pace(with_objective(95)).coarse
    halves = [pace.slo_events((12, 40, 0.01), start=start) for start in (5000.0, 0.0)]
    series = {name: f"{values} {halves[1][name]}" for name, values in halves[0].items()}
    case = Case(pace.spec, series, pace.step)
    for step in range(11, 24):
        page(case, pace.seconds(step), ours=False, sloths=False)
    promtool.test([case], more=on_our_counts(95))


@pytest.mark.parametrize("source", ["engine", "sidecar"])
def test_an_outage_in_which_no_request_completes(promtool: Promtool, source: str) -> None:
    """Counters of ended requests do not grow in such an outage; on the sidecar's verdicts both page."""
    pace = Pace(with_objective(95)).coarse
    series = pace.slo_events((14, 100, 0), (12, 100, 1), slo="availability")
    labels = 'model="org/m",class="siso",tenant="other",stream="true",instance="s:1"'
    ended = counter((100, pace.scrapes(14)), (0, pace.scrapes(12)))
    series |= {f'{ENDED}{{{labels},outcome="ok"}}': ended, f'{ENDED}{{{labels},outcome="upstream_error"}}': "0x500"}
    by_engine = sloth(99.5, f'{ENDED}{{outcome="upstream_error"}}', f"{ENDED}")
    more = by_engine if source == "engine" else on_our_counts(99.5, "availability")
    case = Case(pace.spec, series, pace.step)
    promtool.test([page(case, pace.seconds(24), ours=True, sloths=source == "sidecar")], more=more)


@pytest.mark.parametrize("optimized", [True, False])
def test_no_traffic_after_some(promtool: Promtool, optimized: bool) -> None:
    """0 / 0 is NaN, and one NaN makes the mean NaN until it leaves the period."""
    pace = Pace(with_objective(95)).coarse
    case = Case(pace.spec, pace.slo_events((12, 100, 0.01), (12, 0, 0), (12, 100, 0.01)), pace.step)
    page(case, pace.seconds(24), ours=False, sloths=False)
    ours, sloths = "llm_slo:error_budget:remaining_ratio", "slo:period_error_budget_remaining:ratio"
    case.expect(pace.seconds(36), f"count({sloths} != {sloths})", {"{}": 1} if optimized else {})
    case.expect(pace.seconds(36), f"count(abs({ours} - 0.8) < 0.01)", {"{}": 1})
    promtool.test([case], more=on_our_counts(95, optimized=optimized))


@pytest.mark.parametrize("one_slo_each", [False, True])
def test_one_tenant_of_many_burns(promtool: Promtool, one_slo_each: bool) -> None:
    """All requests of a tenant are bad, and it sends one request in fifty."""
    text = SHIPPED.replace("per_tenant: false", "per_tenant: true").replace("allow: []", "allow: [a, b]")
    pace = Pace(loads(text)).coarse
    series = pace.slo_events((26, 98, 0), tenant="a") | pace.slo_events((12, 2, 0), (14, 2, 1), tenant="b")
    where = (equal(Label.SLO, "ttft"), *([equal(Label.TENANT, "b")] if one_slo_each else []))
    more = sloth(95, *(str(select(each, *where)) for each in (SLO_BAD, SLO_EVENTS)))
    case = page(Case(pace.spec, series, pace.step), pace.seconds(25), ours=False, sloths=one_slo_each)
    tenants = firing(TENANT, "tenant", severity="page")
    promtool.test([case.expect(pace.seconds(25), tenants, {'{tenant="b"}': 1})], more=more)


def test_the_docs_have_a_row_for_each_test() -> None:
    rows = re.findall(r"^\|.*\| `(test_\w+)` \|$", (ROOT / "docs/design/sloth.md").read_text(), re.MULTILINE)
    here = {name for name in globals() if name.startswith("test_")} - {"test_the_docs_have_a_row_for_each_test"}
    assert sorted(rows) == sorted(here)
