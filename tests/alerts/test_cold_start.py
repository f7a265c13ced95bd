"""While an engine starts its pages wait, for a stated time and only its own; the budget is charged all the same."""

from alerts.cold_start import cold_start_limit, second_start_interval
from alerts.recording_windows import down_after
from exporters.quantities import spell_duration
from exporters.slos import SloFile
from tests.support.promtool import Case, Pace, Promtool, constant

BURN, DOWN, HELD = "LLMErrorBudgetBurn", "LLMEngineDown", "LLMPageHeldBack"
WARM_UP = 30
"""Scrapes after which an engine that has been there from the start counts as warm, in both files."""


def up(instance: str = "s:1") -> str:
    return f'llm_engine_up{{job="vllm-slo-sidecar",instance="{instance}",engine="{instance}-engine"}}'


def away(spec: SloFile, seconds: float) -> str:
    return constant(0, round(seconds / spec.scrape_interval) - 1)


def paged(case: Case, at: float, *, held: bool) -> Case:
    """Whether the fast page is out at `at`, or only a ticket that says it is held back."""
    labels = 'alertstate="firing",slo="availability",tier="fast-page"'
    case.expect(at, f'count(ALERTS{{alertname="{BURN}",severity="page",{labels}}})', {} if held else {"{}": 1})
    return case.expect(at, f'count(ALERTS{{alertname="{HELD}",severity="ticket",{labels}}})', {"{}": 1} if held else {})


def test_a_restart_raises_a_ticket_and_no_page(promtool: Promtool, pace: Pace) -> None:
    scrape = pace.spec.scrape_interval
    gone = max(down_after(pace.spec), 0.8 * cold_start_limit(pace.spec)) + scrape
    series = {up(): f"{constant(1, WARM_UP)} {away(pace.spec, gone)} {constant(1, 200)}"}
    at = (WARM_UP + 1) * scrape
    case = Case(pace.spec, series, scrape).expect_silent(at + down_after(pace.spec) - 2 * scrape)
    if gone > down_after(pace.spec) + 4 * scrape:  # in the lab, an engine is away when the mute is over
        case.expect_firing(at + down_after(pace.spec) + 2 * scrape, HELD)
        for passed in range(0, round(gone + pace.step), round(4 * scrape)):
            case.expect_silent(at + passed, DOWN)
    promtool.test([case.expect_silent(at + gone + down_after(pace.spec), HELD)])


def test_an_engine_that_does_not_come_back_pages_when_the_mute_is_over(promtool: Promtool, pace: Pace) -> None:
    scrape, gone = pace.spec.scrape_interval, cold_start_limit(pace.spec) + 20 * pace.spec.scrape_interval
    series = {up(): f"{constant(1, WARM_UP)} {away(pace.spec, gone)} {constant(1, 200)}"}
    at = (WARM_UP + 1) * scrape
    promtool.test(
        [
            Case(pace.spec, series, scrape)
            .expect_silent(at + cold_start_limit(pace.spec) - 2 * scrape, DOWN)
            .expect_firing(at + cold_start_limit(pace.spec) + 2 * scrape, DOWN)
            .expect_silent(at + cold_start_limit(pace.spec) + 2 * scrape, HELD)
            .expect_silent(at + gone + pace.step + 5 * scrape, DOWN)
        ]
    )


def test_an_engine_that_never_came_up_pages_when_the_mute_is_over(promtool: Promtool, pace: Pace) -> None:
    scrape = pace.spec.scrape_interval
    case = Case(pace.spec, {up(): constant(0, 200)}, scrape)
    case.expect_silent(cold_start_limit(pace.spec) - scrape, DOWN).expect_firing(
        cold_start_limit(pace.spec) + 2 * scrape, DOWN
    )
    promtool.test([case])


def test_a_second_restart_is_a_fault_and_pages_at_once(promtool: Promtool, pace: Pace) -> None:
    scrape = pace.spec.scrape_interval
    assert 40 * scrape < second_start_interval(pace.spec)
    series = {up(): f"{constant(1, WARM_UP)} 0x3 1x20 {constant(0, 100)}"}
    again = (WARM_UP + 1 + 4 + 21) * scrape
    promtool.test(
        [
            Case(pace.spec, series, scrape)
            .expect_silent(again + down_after(pace.spec) - 3 * scrape, DOWN)
            .expect_firing(again + down_after(pace.spec) + 2 * scrape, DOWN)
        ]
    )


def restarted(pace: Pace, steps: float, instance: str = "s:1") -> dict[str, str]:
    """An engine that goes at `steps` and is back one step later."""
    before, gone = pace.scrapes(steps), pace.scrapes(1)
    return {up(instance): f"{constant(1, before - 1)} {constant(0, gone - 1)} {constant(1, 1000)}"}


def failing(pace: Pace, steps: float, instance: str = "s:1", until: float = 20) -> dict[str, str]:
    """An availability that is perfect until `steps` and then nothing, for `until` steps."""
    return pace.slo_events(
        (steps, 100, 0), (until, 100, 1), (20, 100, 0), slo="availability", more=f',instance="{instance}"'
    )


def test_a_burn_that_outlasts_the_start_pages_when_its_time_is_over(promtool: Promtool, pace: Pace) -> None:
    case = Case(pace.spec, {**failing(pace, 24), **restarted(pace, 24)}, pace.step / 5)
    for_it = (
        1 + (cold_start_limit(pace.spec) + pace.step) / pace.step
    )  # away one step, then cold, then what a window remembers
    for fifth in range(6, round(5 * for_it) - 2):  # Prometheus 3 leaves out the start of each range
        paged(case, pace.seconds(24 + fifth / 5), held=True)
    promtool.test([paged(case, pace.seconds(24 + for_it + 0.6), held=False)])


def test_the_budget_is_charged_while_the_page_waits(promtool: Promtool, pace: Pace) -> None:
    series = {**failing(pace, 24, until=1), **restarted(pace, 24)}
    period = spell_duration(pace.spec.period)
    left = f"abs(llm_slo:budget_remaining_ratio - (1 - {1 / 30 / 0.005})) < bool 0.3"
    promtool.test(
        [
            paged(Case(pace.spec, series, pace.step), pace.seconds(25), held=True)
            .expect(pace.seconds(30), left, {'{class="siso",model="org/m",slo="availability"}': 1})
            .expect(pace.seconds(30), f'count(llm_slo:burn_rate{{window="{period}"}})', {"{}": 1})
        ]
    )


def test_another_engine_that_fails_is_not_excused_by_one_that_starts(promtool: Promtool, pace: Pace) -> None:
    series = {
        **failing(pace, 24),
        **restarted(pace, 24),
        **failing(pace, 24, instance="s:2"),
        up("s:2"): constant(1, 1000),
    }
    case = Case(pace.spec, series, pace.step / 5)
    promtool.test([paged(case, pace.seconds(25.4), held=False)])


def test_a_restart_does_not_end_a_page_that_is_out(promtool: Promtool, pace: Pace) -> None:
    case = Case(pace.spec, {**failing(pace, 24), **restarted(pace, 28)}, pace.step / 5)
    for fifth in range(20):
        paged(case, pace.seconds(27 + fifth / 5), held=False)
    promtool.test([case])


def test_an_engine_that_starts_again_and_again_is_not_excused(promtool: Promtool, pace: Pace) -> None:
    """Each start within a scrape, so that only the start time tells."""
    third = pace.scrapes(1) // 2
    starts = " ".join(
        constant(seconds, third - 1) for seconds in range(0, round(pace.seconds(40)), round(pace.step / 2))
    )
    series = {
        **failing(pace, 24),
        up(): constant(1, 1000),
        'llm_engine_start_time_seconds{instance="s:1",engine="s:1-engine"}': starts,
    }
    promtool.test([paged(Case(pace.spec, series, pace.step / 5), pace.seconds(26), held=False)])
