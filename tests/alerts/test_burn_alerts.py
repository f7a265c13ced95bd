"""A burn alert fires on a real burn, stays silent on less, and ends soon after the burn."""

import pytest

from alerts.tiers import tiers
from exporters.quantities import spell_duration
from exporters.slos import Measure, load, loads
from tests.alerts.firing import firing
from tests.support.promtool import ROOT, Case, Pace, Promtool

BURN, LOW = "LLMErrorBudgetBurn", "LLMErrorBudgetLowTraffic"
SHIPPED = load(ROOT / "alerts/slos.yaml")
TIERS = ("fast-page", "slow-page", "fast-ticket", "slow-ticket")
ANY_PAGE = 'ALERTS{alertstate="firing",severity="page"}'


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
    alerts = f'ALERTS{{alertname="{BURN}",alertstate="firing",tier="{name}"'
    labels = f'severity="{tier.severity}",model="above",class="siso",slo="ttft",window="{spell_duration(tier.long)}"'
    case = Case(pace.spec, above | below, pace.step)
    case.expect(pace.seconds(long), f"{alerts}}}", {f"{alerts},{labels}}}": 1})
    promtool.test([case.expect(pace.seconds(long + short + 2), f"{alerts}}}", {})])


def test_an_outage_pages_and_the_page_ends_with_it(promtool: Promtool, pace: Pace) -> None:
    begun, ended = 24, 36
    case = Case(pace.spec, pace.slo_events((24, 100, 0), (12, 100, 1), (8, 100, 0)), pace.step)
    case.expect_silent(pace.seconds(begun))
    case.expect_firing(pace.seconds(begun + 10), BURN, "fast-page", "fast-ticket", "slow-ticket")
    case.expect_firing(pace.seconds(ended), BURN, *TIERS)
    case.expect_firing(pace.seconds(ended + 3), BURN, "slow-page", "fast-ticket", "slow-ticket")
    promtool.test([case.expect_firing(pace.seconds(ended + 7), BURN, "fast-ticket", "slow-ticket")])


def test_an_slo_on_the_first_answer_token_pages_as_any_other(promtool: Promtool) -> None:
    text = (
        (ROOT / "alerts/slos.yaml")
        .read_text()
        .replace("signal: ttft, threshold: 5s", "signal: ttft_answer, threshold: 20s")
    )
    pace = Pace(loads(text))
    assert pace.spec.slos[0].measure is Measure.TTFT_ANSWER
    case = Case(pace.spec, pace.slo_events((24, 100, 0), (12, 100, 1)), pace.step).expect_silent(pace.seconds(24))
    promtool.test([case.expect_firing(pace.seconds(36), BURN, *TIERS)])


def test_a_page_of_the_lab_ends_within_a_minute_of_recovery(promtool: Promtool) -> None:
    pace = Pace(load(ROOT / "compose/slos.yaml"))
    case = Case(pace.spec, pace.slo_events((60, 20, 0), (24, 20, 1), (30, 20, 0)), 1.0)
    promtool.test([case.expect(pace.seconds(84) + 60, ANY_PAGE, {})])


def test_a_page_also_ends_when_traffic_stops(promtool: Promtool, pace: Pace) -> None:
    case = Case(pace.spec, pace.slo_events((12, 100, 1), (16, 0, 0)), pace.step)
    promtool.test([case.expect(pace.seconds(12 + 9), ANY_PAGE, {})])


def test_an_alert_needs_enough_events_and_enough_bad_events(promtool: Promtool, pace: Pace) -> None:
    at, hour = pace.seconds(12), pace.scrapes(12)
    page = firing(BURN, "slo", severity="page")

    def availability(events: float, bad: float) -> Case:
        return Case(pace.spec, pace.slo_events((12, events / hour, bad / events), slo="availability"), pace.step)

    promtool.test(
        [
            availability(events=40, bad=40).expect(at, page, {}),
            availability(events=100, bad=8).expect(at, page, {}),
            availability(events=200, bad=16).expect(at, page, {'{slo="availability"}': 2}),
        ]
    )


def test_no_traffic_raises_no_alert(promtool: Promtool, pace: Pace) -> None:
    pace = pace.coarse
    never = pace.slo_events((320, 0, 0), start=0, model="never")
    no_longer = pace.slo_events((20, 100, 0), (300, 0, 0), model="no longer")
    case = Case(pace.spec, never | no_longer, pace.step)
    promtool.test([case.expect_silent(pace.seconds(30)).expect_silent(pace.seconds(320))])


def test_few_requests_with_many_bad_ones_raise_only_a_ticket(promtool: Promtool) -> None:
    """Over three days: 6 requests a day are 18."""
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
    fires = {'{model="6 a day, most of them bad"}': 1.0, '{model="20 a day, one in four bad"}': 1.0}
    case = Case(pace.spec, series, pace.step).expect(at, firing(LOW, "model", severity="ticket"), fires)
    for model in ("6 a day, most of them bad", "6 a day, one in three bad", "20 a day, one in four bad"):
        case.expect_silent(at, BURN, model=model)
    promtool.test([case.expect_silent(at, BURN, model="20 a day, one in ten bad")])


def test_a_page_has_all_labels_and_annotations(promtool: Promtool) -> None:
    pace = Pace(SHIPPED)
    fast_page_only = pace.slo_events((250, 100, 0), (12, 100, 1))
    labels = {"severity": "page", "tier": "fast-page", "slo": "ttft", "class": "siso", "model": "org/m", "window": "1h"}
    annotations = {
        "summary": "siso requests to org/m burn the error budget of ttft 20.0 times too fast",
        "description": "The objective is ttft within 5s for 95 %. Over the last 1h, siso requests to org/m "
        "have missed it 20.0 times as often as a budget of 30d allows, and the last 5m are no better. A "
        "page at 14.4 times: 72 % bad events where 5 % are allowed, 2 % of the budget gone in 1h. Needs 50 "
        "events and 10 bad ones in 1h. Look first at the oldest wait, and at whether a config change is "
        "drawn just before it began.",
        "runbook_url": "https://git.example.org/vllm-slo/blob/main/alerts/runbooks/LLMErrorBudgetBurn.md",
    }
    case = Case(pace.spec, fast_page_only, pace.step)
    promtool.test([case.expect_alert(pace.seconds(262), BURN, labels, annotations)])
