"""A burn alert fires on a real burn, stays silent on less, and ends soon after the burn."""

import pytest

from alerts.tiers import tiers
from exporters.quantities import spell_duration
from exporters.slos import SloFile, load
from tests.support.promtool import ROOT, Case, Pace, Promtool

BURN, LOW = "LLMErrorBudgetBurn", "LLMErrorBudgetLowTraffic"
SHIPPED = load(ROOT / "alerts/slos.yaml")
TIERS = ("fast-page", "slow-page", "fast-ticket", "slow-ticket")


@pytest.mark.parametrize("name", TIERS)
def test_a_tier_fires_above_its_factor_not_below_and_ends_with_its_short_window(
    promtool: Promtool, pace: Pace, name: str
) -> None:
    pace = pace.coarse
    tier = next(t for t in tiers(pace.spec.period) if t.name == name)
    limit = tier.bad_ratio(pace.spec.slos[0])
    long, short = tier.long / pace.step, tier.short / pace.step
    above = pace.slo_events((long, 10_000, round(1.06 * limit, 4)), (2 * short + 3, 10_000, 0), model="above")
    below = pace.slo_events((long, 10_000, round(0.94 * limit, 4)), model="below")
    fired, over = pace.seconds(long), pace.seconds(long + short + 2)
    firing = f'ALERTS{{alertname="{BURN}",alertstate="firing",tier="{name}"'
    whole = (
        f'{firing},severity="{tier.severity}",model="above",class="siso",slo="ttft",'
        f'window="{spell_duration(tier.long)}"}}'
    )
    promtool.test(
        [
            Case(pace.spec, above | below, pace.step)
            .expect(fired, f"{firing}}}", {whole: 1})
            .expect(over, f"{firing}}}", {}),
        ],
    )


def test_an_outage_pages_and_the_page_ends_with_it(promtool: Promtool, pace: Pace) -> None:
    series = pace.slo_events((24, 100, 0), (12, 100, 1), (8, 100, 0))
    begun, ended = 24, 36
    promtool.test(
        [
            Case(pace.spec, series, pace.step)
            .expect_silent(pace.seconds(begun))
            .expect_firing(pace.seconds(begun + 10), BURN, "fast-page", "fast-ticket", "slow-ticket")
            .expect_firing(pace.seconds(ended), BURN, *TIERS)
            .expect_firing(pace.seconds(ended + 3), BURN, "slow-page", "fast-ticket", "slow-ticket")
            .expect_firing(pace.seconds(ended + 7), BURN, "fast-ticket", "slow-ticket")
        ]
    )


def test_a_page_of_the_lab_is_over_within_a_minute_of_recovery(promtool: Promtool) -> None:
    pace = Pace(load(ROOT / "compose/slos.yaml"))
    series = pace.slo_events((60, 20, 0), (24, 20, 1), (30, 20, 0))
    page = 'ALERTS{alertstate="firing",severity="page"}'
    promtool.test([Case(pace.spec, series, 1.0).expect(pace.seconds(84) + 60, page, {})])


def test_requests_that_stop_coming_end_the_page_too(promtool: Promtool, pace: Pace) -> None:
    series = pace.slo_events((12, 100, 1), (16, 0, 0))
    page = 'ALERTS{alertstate="firing",severity="page"}'
    promtool.test([Case(pace.spec, series, pace.step).expect(pace.seconds(12 + 9), page, {})])


def test_an_alert_needs_events_and_bad_events_enough(promtool: Promtool, pace: Pace) -> None:
    at = pace.seconds(12)
    page = f'ALERTS{{alertname="{BURN}",alertstate="firing",severity="page"}}'
    hour = pace.scrapes(12)

    def availability(events: float, bad: float) -> Case:
        return Case(pace.spec, pace.slo_events((12, events / hour, bad / events), slo="availability"), pace.step)

    promtool.test(
        [
            availability(events=40, bad=40).expect(at, page, {}),
            availability(events=100, bad=8).expect(at, page, {}),
            availability(events=200, bad=16).expect(at, f"count({page})", {"{}": 2}),
        ]
    )


def test_idle_is_no_alert(promtool: Promtool, pace: Pace) -> None:
    pace = pace.coarse
    never = pace.slo_events((320, 0, 0), start=0, model="never")
    no_longer = pace.slo_events((20, 100, 0), (300, 0, 0), model="no longer")
    promtool.test(
        [
            Case(pace.spec, never | no_longer, pace.step)
            .expect_silent(pace.seconds(30))
            .expect_silent(pace.seconds(320))
        ],
    )


def test_few_but_bad_requests_raise_a_ticket_and_nothing_else(promtool: Promtool) -> None:
    """Three days: 6 requests a day are 18."""
    pace, long = Pace(SHIPPED).coarse, 864

    def sparse(model: str, events: int, bad: int) -> dict[str, str]:
        """One event at a time, evenly over the longest window, the bad ones last."""
        gap = pace.scrapes(long) // events
        phases, quiet = [(0, gap - 1), (1, 1)], [(0, gap - 1), (0, 1)]
        return pace.slo_event_runs(phases * events, quiet * (events - bad) + phases * bad, model)

    series = {
        **sparse("6 a day, most of them bad", 18, 12),
        **sparse("6 a day, one in three bad", 18, 6),
        **sparse("20 a day, one in four bad", 60, 15),
        **sparse("20 a day, one in ten bad", 60, 6),
        **sparse("80 a day", 240, 40),
    }
    at = pace.seconds(long + 2)
    ticket = f'sum by (model) (ALERTS{{alertname="{LOW}",alertstate="firing",severity="ticket"}})'
    fires = {'{model="6 a day, most of them bad"}': 1.0, '{model="20 a day, one in four bad"}': 1.0}
    case = Case(pace.spec, series, pace.step).expect(at, ticket, fires)
    for model in ("6 a day, most of them bad", "6 a day, one in three bad", "20 a day, one in four bad"):
        case.expect_silent(at, BURN, model=model)
    promtool.test([case.expect_silent(at, BURN, model="20 a day, one in ten bad")])


def test_a_page_says_who_burns_how_fast_and_where_to_look(promtool: Promtool) -> None:
    pace = Pace(SHIPPED)
    fast_page_only = pace.slo_events((250, 100, 0), (12, 100, 1))
    promtool.test(
        [
            Case(pace.spec, fast_page_only, pace.step).expect_alert(
                pace.seconds(262),
                BURN,
                {
                    "severity": "page",
                    "tier": "fast-page",
                    "slo": "ttft",
                    "class": "siso",
                    "model": "org/m",
                    "window": "1h",
                },
                {
                    "summary": "siso requests to org/m burn the error budget of ttft 20.0 times too fast",
                    "description": "The objective is ttft within 5s for 95 %. Over the last 1h, siso requests to org/m "
                    "have missed it 20.0 times as often as a budget of 30d allows, and the last 5m are no better. A "
                    "page at 14.4 times: 72 % bad events where 5 % are allowed, 2 % of the budget gone in 1h. Needs 50 "
                    "events and 10 bad ones in 1h. Look first at the oldest wait, and at whether a config change is "
                    "drawn just before it began.",
                    "runbook_url": "alerts/runbooks/LLMErrorBudgetBurn.md",
                    "dashboard_url": "http://localhost:3000/d/vllm-slo-overview?viewPanel=28179&var-model=org%2Fm"
                    "&var-class=siso",
                },
            )
        ]
    )


def test_a_rescaled_tier_fires_in_an_outage_that_the_published_factor_would_sleep_through(
    promtool: Promtool, loose: SloFile
) -> None:
    pace = Pace(loose)
    at = pace.seconds(12)
    series = pace.slo_events((12, 100, 1.0))
    promtool.test([Case(loose, series, pace.step).expect_firing(at, BURN, *TIERS)])
