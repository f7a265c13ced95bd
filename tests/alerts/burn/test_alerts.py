"""A burn alert fires on a real burn, stays silent on less, and ends soon after the burn."""

import pytest

from alerts.rules.wording import miss
from alerts.tiers import tiers
from exporters.text.units import spell_duration
from exporters.vocabulary.slo_file import Availability, Latency, Measure, Sli, Slo, ValidOutput, load
from tests.alerts.firing import firing, short_window
from tests.support.promtool import ROOT, Case, Pace, Promtool, constant

BURN, LOW = "LLMErrorBudgetBurn", "LLMErrorBudgetLowTraffic"
SHIPPED = load(ROOT / "alerts/slos.yaml")
TIERS = ("fast-page", "slow-page", "fast-ticket", "slow-ticket")
ANY_PAGE = 'ALERTS{alertstate="firing",severity="page"}'


# for the tickets, promtool evaluates days; test_explain has the times at which they fire in an outage
@pytest.mark.parametrize("name", [*TIERS[:2], *(pytest.param(each, marks=pytest.mark.long) for each in TIERS[2:])])
def test_a_tier_fires_above_its_factor_not_below_and_ends_with_its_short_window(
    promtool: Promtool, pace: Pace, name: str
) -> None:
    pace = pace.coarse
    tier = next(t for t in tiers(pace.spec.period) if t.name == name)
    limit = tier.bad_ratio(pace.spec.slos[0])
    long, short = tier.long / pace.step, tier.short / pace.step
    above = pace.slo_events((long, 10_000, round(1.06 * limit, 4)), (2 * short + 3, 10_000, 0), model="above")
    below = pace.slo_events((long, 10_000, round(0.94 * limit, 4)), model="below")
    window = spell_duration(tier.short)
    burns = f'count by (model, class, slo) (llm_slo:tier_bad_events:ratio{{window="{window}"}})'
    alert = firing(BURN, "model, class, slo", severity=tier.severity)
    labels = '{model="above",class="siso",slo="ttft"}'
    case = Case(pace.spec, above | below, pace.step)
    # Another tier may fire below this one's factor.
    fires = f"{alert} and on (model, class, slo) ({burns})"
    case.expect(pace.seconds(long), burns, {labels: 1}).expect(pace.seconds(long), fires, {labels: 1})
    promtool.test([case.expect(pace.seconds(long + short + 2), burns, {})])


def test_an_outage_pages_and_the_page_ends_with_it(promtool: Promtool, pace: Pace) -> None:
    begun, ended = 24, 36
    case = Case(pace.spec, pace.slo_events((24, 100, 0), (12, 100, 1), (8, 100, 0)), pace.step)
    case.expect_silent(pace.seconds(begun))
    expect_burning(case, pace.seconds(begun + 10), "fast-page", "fast-ticket", "slow-ticket")
    expect_burning(case, pace.seconds(ended), *TIERS)
    expect_burning(case, pace.seconds(ended + 3), "slow-page", "fast-ticket", "slow-ticket")
    expect_burning(case, pace.seconds(ended + 7), "fast-ticket", "slow-ticket")
    # Fast and slow are one page, and the page keeps firing for a step.
    page = firing(BURN, "severity", severity="page")
    for step in range(begun + 10, ended + 6):
        case.expect(pace.seconds(step), page, {'{severity="page"}': 1})
    promtool.test([case.expect_silent(pace.seconds(ended + 7))])


def expect_burning(case: Case, at: float, *names: str) -> None:
    """Expect that exactly these tiers burn."""
    query = "sum by (window) (llm_slo:tier_bad_events:ratio * 0 + 1)"
    case.expect(at, query, {f'{{window="{short_window(case.spec, name)}"}}': 1 for name in names})


def test_no_ticket_follows_a_page_until_its_short_window_is_past(promtool: Promtool, pace: Pace) -> None:
    """Five hours of outage also burn for the tickets, until 6 h later for the slow one."""
    pace = pace.coarse
    begun, ended = 200, 260
    case = Case(pace.spec, pace.slo_events((begun, 100, 0), (60, 100, 1), (100, 100, 0.06)), pace.step)
    expect_burning(case, pace.seconds(ended), *TIERS)
    expect_burning(case, pace.seconds(ended + 20), "fast-ticket", "slow-ticket")
    for step in range(begun, ended + 70, 2):
        case.expect_silent(pace.seconds(step), BURN, severity="ticket")
    # 6 % bad events are a slow burn of their own.
    fires = firing(BURN, "severity", slo="ttft")
    promtool.test([case.expect(pace.seconds(ended + 95), fires, {'{severity="ticket"}': 1})])


def test_a_page_of_the_lab_ends_within_a_minute_of_recovery(promtool: Promtool) -> None:
    pace = Pace(load(ROOT / "compose/slos.yaml"))
    case = Case(pace.spec, pace.slo_events((60, 20, 0), (24, 20, 1), (30, 20, 0)), pace.step)
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
            availability(events=200, bad=16).expect(at, page, {'{slo="availability"}': 1}),
        ]
    )


def test_no_traffic_raises_no_alert(promtool: Promtool, pace: Pace) -> None:
    pace = pace.coarse
    never = pace.slo_events((100, 0, 0), start=0, model="never")
    no_longer = pace.slo_events((20, 100, 0), (80, 0, 0), model="no longer")
    case = Case(pace.spec, never | no_longer, pace.step)
    promtool.test([case.expect_silent(pace.seconds(30)).expect_silent(pace.seconds(100))])


@pytest.mark.long
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


def test_a_page_says_what_where_how_bad_until_when_and_after_which_change(promtool: Promtool) -> None:
    pace = Pace(SHIPPED)
    instances = [pace.slo_events((250, 90, 0), (12, 90, 0.8), more=',instance="a:9464"')]
    instances += [pace.slo_events((250, 10, 0), (12, 10, 1), more=',instance="b:9464"')]
    engine = 'instance="a:9464",engine="e:8000"'
    changed = f'llm_engine_config_change_timestamp_seconds{{{engine},setting="max_num_seqs",old="256",new="16"}}'
    series = instances[0] | instances[1] | {
        changed: constant(74_000, pace.scrapes(262)),
        f'llm_engine_requests_running{{{engine},model="org/m",rank="0"}}': constant(3, pace.scrapes(262)),
    }  # fmt: skip
    labels = {"severity": "page", "alert_source": "vllm-slo", "slo": "ttft", "class": "siso", "model": "org/m"}
    annotations = {
        "summary": "siso on m: 82 % of requests miss TTFT 5 s, budget gone in 11 h",
        "description": "82 % of siso (short in, short out) requests to m miss TTFT 5 s (objective 95 %). Budget "
        "left: 25 % of 30 d, gone "
        "in 11 h. Worst replicas: b:9464 100 %, a:9464 80 %. Last config change: max_num_seqs at 20:33 UTC. "
        "Tier fast-page: over 72 % in 1 h. Look first at the oldest wait.",
        "runbook": "vllm-slo alerts runbook LLMErrorBudgetBurn",
    }
    case = Case(pace.spec, series, pace.step)
    case.expect(pace.seconds(262), 'llm_engine:model:group{model!="org/m"}', {})
    case.expect(pace.seconds(262), "llm_slo:error_budget:remaining_ratio > 2", {})
    promtool.test([case.expect_alert(pace.seconds(262), BURN, labels, annotations)])


def test_an_overspent_budget_is_a_multiple_and_no_negative_share(promtool: Promtool) -> None:
    pace = Pace(SHIPPED)
    labels = {"severity": "page", "alert_source": "vllm-slo", "slo": "ttft", "class": "siso", "model": "org/m"}
    annotations = {
        "summary": "siso on m: 100 % of requests miss TTFT 5 s, budget spent",
        "description": "100 % of siso (short in, short out) requests to m miss TTFT 5 s (objective 95 %). The budget "
        "of 30 d is spent 8.9 times. Worst replicas: a:9464 100 %. Tier fast-page: over 72 % in 1 h. Tier slow-page: "
        "over 30 % in 6 h. Look first at the oldest wait.",
        "runbook": "vllm-slo alerts runbook LLMErrorBudgetBurn",
    }
    case = Case(pace.spec, pace.slo_events((30, 90, 0), (24, 90, 1), more=',instance="a:9464"'), pace.step)
    case.expect(pace.seconds(54), "llm_slo:error_budget:remaining_ratio > 2", {})
    case.expect(pace.seconds(54), "llm_engine:model:group", {})
    promtool.test([case.expect_alert(pace.seconds(54), BURN, labels, annotations)])


@pytest.mark.parametrize(
    "sli,words",
    [
        (Availability(), "fail"),
        (ValidOutput(), "return invalid output"),
        (Latency(Measure.TTFT, 5.0), "miss TTFT 5 s"),
        (Latency(Measure.E2E, 90.0), "miss E2E 1 m 30 s"),
    ],
)
def test_the_text_says_what_a_bad_request_did(sli: Sli, words: str) -> None:
    assert miss(Slo(name="it", classes=("a",), sli=sli, objective=0.95)) == words
