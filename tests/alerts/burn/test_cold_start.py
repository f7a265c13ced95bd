"""Pages of a starting engine wait; the error budget is still charged."""

from dataclasses import replace

import pytest

from alerts.plan import Plan
from exporters.text.units import spell_duration
from exporters.vocabulary.slo_file import SloFile, load
from tests.alerts.firing import firing
from tests.support.promtool import ROOT, Case, Late, Pace, Promtool, constant, counter

BURN, DOWN, RESTARTS = "LLMErrorBudgetBurn", "LLMEngineDown", "LLMEngineRestarts"
WARM_UP = 30
"""Scrapes after which an engine that was up from the start counts as warm, in both files."""


def up(instance: str = "s:1") -> str:
    return f'llm_engine_up{{job="vllm-slo-sidecar",instance="{instance}",engine="{instance}-engine"}}'


def away(spec: SloFile, seconds: float) -> str:
    return constant(0, round(seconds / spec.scrape_interval) - 1)


def paged(case: Case, at: float, *, held: bool) -> Case:
    """At `at`, the page fires and no ticket; if `held`, only the ticket."""
    fires = firing(BURN, "severity", slo="availability")
    return case.expect(at, fires, {f'{{severity="{"ticket" if held else "page"}"}}': 1})


def test_an_engine_that_stays_down_pages_after_the_cold_start(promtool: Promtool, pace: Pace) -> None:
    scrape, gone = pace.spec.scrape_interval, Plan.of(pace.spec).warm_up + 20 * pace.spec.scrape_interval
    series = {up(): f"{constant(1, WARM_UP)} {away(pace.spec, gone)} {constant(1, 200)}"}
    at = (WARM_UP + 1) * scrape
    over = at + Plan.of(pace.spec).warm_up + 2 * scrape
    case = Case(pace.spec, series, scrape).expect_silent(at + Plan.of(pace.spec).warm_up - 2 * scrape, DOWN)
    case.expect_firing(over, DOWN)
    promtool.test([case.expect_silent(at + gone + pace.step + 5 * scrape, DOWN)])


def test_an_engine_that_never_came_up_pages_after_the_cold_start(promtool: Promtool, pace: Pace) -> None:
    scrape = pace.spec.scrape_interval
    case = Case(pace.spec, {up(): constant(0, 200)}, scrape)
    case.expect_silent(Plan.of(pace.spec).warm_up - scrape, DOWN)
    promtool.test([case.expect_firing(Plan.of(pace.spec).warm_up + 2 * scrape, DOWN)])


def test_a_second_exit_that_fails_requests_pages_at_once(promtool: Promtool, pace: Pace) -> None:
    scrape = pace.spec.scrape_interval
    assert 40 * scrape < Plan.of(pace.spec).second_start
    requests = 'instance="s:1",model="org/m",class="siso",tenant="other",outcome="upstream_unreachable"'
    series = {
        up(): f"{constant(1, WARM_UP)} 0x3 1x20 {constant(0, 100)}",
        f"llm_requests_total{{{requests}}}": counter((0, WARM_UP), (2, 4), (0, 21), (2, 100)),
    }
    begun = (WARM_UP + 1 + 4 + 21) * scrape + Plan.of(pace.spec).down_after
    case = Case(pace.spec, series, scrape).expect_silent(begun - scrape, DOWN)
    promtool.test([case.expect_firing(begun + 3 * scrape, DOWN)])


def restarted(pace: Pace, steps: float, instance: str = "s:1") -> dict[str, str]:
    """An engine that goes down at `steps` and is up one step later."""
    before, gone = pace.scrapes(steps), pace.scrapes(1)
    return {up(instance): f"{constant(1, before - 1)} {constant(0, gone - 1)} {constant(1, 1000)}"}


def failing(pace: Pace, steps: float, instance: str = "s:1", until: float = 20) -> dict[str, str]:
    """Availability of 100 % for `steps`, then 0 % for `until` steps."""
    return pace.slo_events(
        (steps, 100, 0), (until, 100, 1), (20, 100, 0), slo="availability", more=f',instance="{instance}"'
    )


def test_a_burn_that_outlasts_the_cold_start_pages(promtool: Promtool, pace: Pace) -> None:
    case = Case(pace.spec, {**failing(pace, 24), **restarted(pace, 24)}, pace.step / 5)
    # One step down, the cold start, and one step in which the short window still has bad events.
    held = 1 + (Plan.of(pace.spec).warm_up + pace.step) / pace.step
    # Prometheus 3 excludes the start of each range.
    for fifth in range(6, round(5 * held) - 2):
        paged(case, pace.seconds(24 + fifth / 5), held=True)
    page = firing(BURN, "severity", slo="availability", severity="page")
    case.expect(pace.seconds(24 + held + 0.6), page, {'{severity="page"}': 1})
    # The ticket keeps firing for a step.
    promtool.test([paged(case, pace.seconds(24 + held + 2), held=False)])


def test_the_budget_is_charged_while_the_page_waits(promtool: Promtool, pace: Pace) -> None:
    series = {**failing(pace, 24, until=1), **restarted(pace, 24)}
    period = spell_duration(pace.spec.period)
    left = f"abs(llm_slo:error_budget:remaining_ratio - (1 - {1 / 30 / 0.005})) < bool 0.3"
    case = paged(Case(pace.spec, series, pace.step), pace.seconds(25), held=True)
    case.expect(pace.seconds(30), left, {'{class="siso",model="org/m",slo="availability"}': 1})
    promtool.test(
        [case.expect(pace.seconds(30), f'count(llm_slo:error_budget:burn_rate{{window="{period}"}})', {"{}": 1})]
    )


def test_a_starting_engine_does_not_hold_back_pages_of_another(promtool: Promtool, pace: Pace) -> None:
    # After five hours, so that a ticket by the longest windows comes later than the page.
    series = {
        **failing(pace, 60),
        **restarted(pace, 60),
        **failing(pace, 60, instance="s:2"),
        up("s:2"): constant(1, 2000),
    }
    case = Case(pace.spec, series, pace.step / 5)
    promtool.test([paged(case, pace.seconds(61.4), held=False)])


def test_a_restart_does_not_resolve_a_firing_page(promtool: Promtool, pace: Pace) -> None:
    case = Case(pace.spec, {**failing(pace, 24), **restarted(pace, 28)}, pace.step / 5)
    for fifth in range(20):
        paged(case, pace.seconds(27 + fifth / 5), held=False)
    promtool.test([case])


def test_repeated_restarts_hold_back_no_page(promtool: Promtool, pace: Pace) -> None:
    """Each restart is shorter than a scrape interval, so that only the start time shows it."""
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


def replaced(pace: Pace, steps: float, pods: int) -> dict[str, str]:
    """A healthy pod for `steps`, then pods that serve only bad events, each replaced after a cold start."""
    before, life = pace.scrapes(steps), round(Plan.of(pace.spec).warm_up / pace.spec.scrape_interval)
    labels = 'model="org/m",class="siso",slo="availability",tenant="other"'
    series: dict[str, str] = {}
    for pod in range(pods + 1):
        missing, alive = (before + (pod - 1) * life, life) if pod else (0, before)
        present = f"{' '.join('_' * missing)} {{}} stale".strip()
        here = f'{labels},instance="s:{pod}"'
        events = present.format(f"0+100x{alive - 1}")
        series[f"llm_slo_events_total{{{here}}}"] = events
        series[f"llm_slo_bad_events_total{{{here}}}"] = events if pod else present.format(constant(0, alive - 1))
        series[up(f"s:{pod}")] = present.format(f"0 {constant(1, alive - 2)}")
    return series


@pytest.mark.parametrize(
    "late",
    [
        pytest.param(None, id="in order"),
        pytest.param("groups", id="late groups", marks=pytest.mark.long),
        pytest.param("rules", id="late rules", marks=pytest.mark.long),
    ],
)
def test_pods_that_are_replaced_and_all_bad_page_after_a_limit(promtool: Promtool, pace: Pace, late: Late) -> None:
    """The fast tier takes 7.2 % of an hour, then the page is held for three warm-ups, or for a longer cold start."""
    held = max(3 * Plan.of(pace.spec).warm_up, Plan.of(pace.spec).cold_start)
    limit, interval = Plan.of(pace.spec).warm_up, Plan.of(pace.spec).direct_interval
    pods = round(1.5 * Plan.of(pace.spec).second_start / limit)
    case = Case(pace.spec, replaced(pace, 24, pods), interval)
    begun = pace.seconds(24)
    burns = begun + 0.072 * pace.spec.period / 720
    page = firing(BURN, "severity", slo="availability", severity="page")
    for at in range(round(begun), round(burns + held - 3 * interval), round(interval)):
        case.expect(float(at), page, {})
    fires = round(burns + held + 5 * interval)
    for at in range(fires, round(begun + pods * limit), round(interval)):
        case.expect(float(at), page, {'{severity="page"}': 1})
    promtool.test([case], most=7, late=late)


def rolled_out(pace: Pace, times: int, failed: float) -> dict[str, str]:
    """An engine that is restarted every five cold starts; `failed` requests fail at each scrape while it is down."""
    scrape, limit = pace.spec.scrape_interval, Plan.of(pace.spec).warm_up
    gone, life = round(0.8 * limit / scrape), round(4.2 * limit / scrape)
    ups, starts, failures = [constant(1, WARM_UP - 1)], [constant(0, WARM_UP - 1)], [(0.0, WARM_UP)]
    for start in range(1, times + 1):
        ups += [constant(0, gone - 1), constant(1, life - 1)]
        starts += [" ".join("_" * gone), constant(start * 5 * limit, life - 1)]
        failures += [(failed, gone), (0.0, life)]
    requests = 'instance="s:1",model="org/m",class="siso",tenant="other"'
    return {
        up(): " ".join(ups),
        'llm_engine_start_time_seconds{instance="s:1",engine="s:1-engine"}': " ".join(starts),
        f'llm_requests_total{{{requests},outcome="ok"}}': counter((10, sum(scrapes for _, scrapes in failures))),
        f'llm_requests_total{{{requests},outcome="upstream_unreachable"}}': counter(*failures),
    }


def test_three_restarts_of_a_roll_out_without_failed_requests_raise_no_alert(promtool: Promtool, pace: Pace) -> None:
    case = Case(pace.spec, rolled_out(pace, times=3, failed=0), Plan.of(pace.spec).direct_interval)
    for tenth in range(150):
        case.expect_silent(WARM_UP * pace.spec.scrape_interval + tenth / 10 * Plan.of(pace.spec).warm_up)
    promtool.test([case])


def test_three_restarts_that_fail_requests_raise_a_ticket_and_pages(promtool: Promtool) -> None:
    """The second start within an hour pages as soon as the engine counts as down."""
    spec = load(ROOT / "alerts/slos.yaml")
    limit, begun = Plan.of(spec).warm_up, WARM_UP * spec.scrape_interval
    case = Case(spec, rolled_out(Pace(spec), times=3, failed=5), spec.scrape_interval)
    case.expect_silent(begun + 5 * limit - 2 * spec.scrape_interval, DOWN).expect_firing(begun + 5.8 * limit, DOWN)
    promtool.test([case.expect_silent(begun + 10 * limit, RESTARTS).expect_firing(begun + 11 * limit, RESTARTS)])


def engines(spec: SloFile, model: str | None, *ups: str) -> dict[str, str]:
    """Replicas of a model, which is known unless it is None; the last one serves the model throughout."""
    series = dict[str, str]()
    for number, values in enumerate(ups, 1):
        series[up(f"s:{number}")] = values
        if model is not None or number == len(ups):
            labels = f'instance="s:{number}",engine="s:{number}-engine",rank="0",model="{model or "org/m"}"'
            series[f"llm_engine_requests_running{{{labels}}}"] = "1x600"
    return series


@pytest.mark.parametrize("model", ["org/m", None], ids=["a model", "a new replica"])
def test_a_start_of_twenty_minutes_raises_no_alert_while_another_replica_serves(
    promtool: Promtool, model: str | None
) -> None:
    spec = load(ROOT / "alerts/slos.yaml")
    scrape = spec.scrape_interval
    loads = f"{constant(1, WARM_UP) if model else '0'} {away(spec, 1200)} 1x200"
    case = Case(spec, engines(spec, model, loads, "1x600"), scrape)
    for minute in range(WARM_UP // 4, 35):
        case.expect_silent(60.0 * minute)
    promtool.test([case])


def test_a_start_beyond_the_limit_is_a_ticket_while_enough_replicas_serve(promtool: Promtool) -> None:
    spec = load(ROOT / "alerts/slos.yaml")
    series = engines(spec, "org/m", f"{constant(1, WARM_UP)} 0x300", "1x600", "1x600")
    begun = (WARM_UP + 1) * spec.scrape_interval
    case = Case(spec, series, spec.scrape_interval).expect_silent(begun + 1790, DOWN)
    by_severity = firing(DOWN, "severity")
    promtool.test([case.expect(begun + 1890, by_severity, {'{severity="ticket"}': 1})])


def test_a_slow_model_may_have_a_longer_start(promtool: Promtool) -> None:
    spec = load(ROOT / "alerts/slos.yaml")
    slow = replace(spec, alerting=replace(spec.alerting, cold_start_of=(("org/m", 3600.0),)))
    series = engines(slow, "org/m", f"{constant(1, WARM_UP)} 0x300", "1x600")
    promtool.test([Case(slow, series, slow.scrape_interval).expect_silent(3600.0, DOWN)])
    assert (slow.start_limit(["org/m"]), slow.start_limit(["org/n"]), slow.start_limit()) == (3600.0, 1800.0, 3600.0)
