"""What is down is told apart: the sidecar, the engine, an engine that stalls, and nothing at all."""

import pytest

from alerts.windows import patience
from alerts.wording import AlertName
from tests.rules.promtool import ROOT, UP, Case, Pace, Promtool, constant, counter

SIDECAR, ENGINE, STALLED = "LLMSidecarDown", "LLMEngineDown", "LLMEngineStalled"
DROPPING, WATCHDOG = "LLMSidecarDroppingRecords", "Watchdog"
HERE = 'instance="s:1",job="vllm-slo-sidecar"'
ENGINE_UP = f'llm_engine_up{{{HERE},engine="e:8000"}}'
IN_FLIGHT = f'llm_requests_in_flight{{{HERE},model="org/m",class="siso",phase="waiting"}}'
GENERATED = f'llm_engine_generation_tokens_total{{{HERE},engine="e:8000",rank="0",model="org/m"}}'
PREFILLED = f'llm_engine_prompt_tokens_total{{{HERE},engine="e:8000",rank="0",model="org/m"}}'
DROPPED = f'llm_sidecar_dropped_records_total{{{HERE},process="relay-0"}}'


def every(pace: Pace) -> float:
    return pace.spec.scrape_interval


def test_a_sidecar_that_answers_no_scrape_pages_and_is_told_from_its_engine(promtool: Promtool, pace: Pace) -> None:
    wait = patience(pace.spec) / pace.spec.scrape_interval
    series = {UP: f"1x20 {constant(0, round(wait) + 20)} 1x20"}
    down = 21 * every(pace)
    back = (21 + round(wait) + 21) * every(pace)
    promtool.test(
        [
            Case(pace.spec, series, every(pace), sidecar_is_up=False)
            .silent(down + patience(pace.spec) - every(pace))
            .fires(down + patience(pace.spec) + 2 * every(pace), SIDECAR)
            .silent(down + patience(pace.spec) + 2 * every(pace), ENGINE)
            .silent(back + 5 * every(pace), SIDECAR)
        ]
    )


def test_a_sidecar_that_prometheus_does_not_know_pages_too(promtool: Promtool, pace: Pace) -> None:
    case = Case(pace.spec, {}, every(pace), sidecar_is_up=False)
    promtool.test([case.fires(patience(pace.spec) + 3 * every(pace), SIDECAR)])


def test_a_dead_engine_pages_and_a_quick_restart_does_not(promtool: Promtool, pace: Pace) -> None:
    n = round(patience(pace.spec) / every(pace)) + 6
    dead = {ENGINE_UP: f"1x10 {constant(0, 2 * n)} 1x{20 * n}"}
    restart = {ENGINE_UP: "1x10 0x1 1x200"}
    fired = 11 * every(pace) + patience(pace.spec) + 2 * every(pace)
    over = (11 + 2 * n + 1) * every(pace) + pace.step + 5 * every(pace)
    promtool.test(
        [
            Case(pace.spec, dead, every(pace)).fires(fired, ENGINE).silent(fired, SIDECAR).silent(over, ENGINE),
            Case(pace.spec, restart, every(pace)).silent(fired),
        ]
    )


@pytest.mark.parametrize("moving", [None, "generation", "prefill", "nothing in flight"])
def test_an_engine_with_work_that_moves_no_token_is_stalled(promtool: Promtool, pace: Pace, moving: str | None) -> None:
    n = 400
    tokens = {"generation": GENERATED, "prefill": PREFILLED}
    series = {
        ENGINE_UP: constant(1, n),
        IN_FLIGHT: constant(0 if moving == "nothing in flight" else 3, n),
        GENERATED: constant(500, n),
        PREFILLED: constant(900, n),
    }
    if moving in tokens:
        series[tokens[moving]] = counter((5, n), start=500)
    at = max(pace.step, 30) + 10 * every(pace)
    case = Case(pace.spec, series, every(pace))
    promtool.test([case.fires(at, STALLED) if moving is None else case.silent(at)])


def test_a_stall_is_over_when_tokens_move_again(promtool: Promtool, pace: Pace) -> None:
    n = round((max(pace.step, 30) + 10 * every(pace)) / every(pace)) + 5
    series = {
        ENGINE_UP: constant(1, 3 * n),
        IN_FLIGHT: constant(3, 3 * n),
        PREFILLED: constant(900, 3 * n),
        GENERATED: f"{constant(500, n)} {counter((5, n), start=500)}",
    }
    case = Case(pace.spec, series, every(pace))
    promtool.test([case.fires((n - 2) * every(pace), STALLED).silent((n + 8) * every(pace), STALLED)])


def test_dropped_records_raise_a_ticket_until_the_drops_end(promtool: Promtool, pace: Pace) -> None:
    tier = 6 * pace.step  # the window it looks back on
    series = {DROPPED: f"0x10 {counter((5, 4), start=0)} 20x{10 * pace.scrapes(6)}"}
    ticket = f'count(ALERTS{{alertname="{DROPPING}",alertstate="firing",severity="ticket"}})'
    promtool.test(
        [
            Case(pace.spec, series, every(pace))
            .silent(8 * every(pace))
            .gives(16 * every(pace), ticket, {"{}": 1})
            .silent(20 * every(pace) + tier, DROPPING)
        ]
    )


def test_the_watchdog_always_fires_and_reaches_nobody(promtool: Promtool, pace: Pace) -> None:
    mark = 'ALERTS{alertname="Watchdog",alertstate="firing",severity="none"}'
    promtool.test([Case(pace.spec, {}, every(pace)).gives(every(pace), f"count({mark})", {"{}": 1})])


def test_every_alert_has_its_runbook_and_every_runbook_its_alert() -> None:
    runbooks = {path.stem for path in (ROOT / "alerts/runbooks").glob("*.md")}
    assert runbooks == set(AlertName)
