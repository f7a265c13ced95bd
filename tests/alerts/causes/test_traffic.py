"""Client errors, rejections and throughput without goodput: each alert fires, stays silent on less, and ends."""

from collections.abc import Mapping

import pytest

from exporters.vocabulary.slo_file import load
from tests.alerts.firing import firing
from tests.support.promtool import ROOT, Case, Pace, Promtool, counter

CLIENT, REJECTED, BUSY = "LLMClientErrorSurge", "LLMRejectionSurge", "LLMBusyButUseless"
Phases = tuple[tuple[float, float, float], ...]


def ended(pace: Pace, outcome: str, phases: Phases, instance: str = "s:1", model: str = "org/m") -> dict[str, str]:
    """Requests that end as `ok` and as `outcome`; a phase is steps, requests per scrape, share of `outcome`.

    Fractions of requests add up with errors, which Prometheus would take for a reset of the counter.
    """
    labels = f'model="{model}",class="siso",tenant="other",stream="true",instance="{instance}"'
    runs = [(pace.scrapes(steps), each, share) for steps, each, share in phases]
    return {
        f'llm_requests_total{{{labels},outcome="ok"}}': counter(*((each * (1 - part), n) for n, each, part in runs)),
        f'llm_requests_total{{{labels},outcome="{outcome}"}}': counter(*((each * part, n) for n, each, part in runs)),
    }


@pytest.mark.parametrize(
    "alert,outcome,share,severity",
    [
        pytest.param(CLIENT, "client_error", 1.0, "page", id="a wrong served name"),
        pytest.param(CLIENT, "client_error", 0.15, "ticket", id="a smaller context"),
        pytest.param(CLIENT, "client_error", 0.08, None, id="some client errors"),
        pytest.param(REJECTED, "rejected", 0.6, "ticket", id="many rejections"),
        pytest.param(REJECTED, "rejected", 0.08, None, id="some rejections"),
    ],
)
def test_a_surge_fires_by_its_share_and_ends(
    promtool: Promtool, pace: Pace, alert: str, outcome: str, share: float, severity: str | None
) -> None:
    series = ended(pace, outcome, ((10, 100, 0), (4, 100, share), (4, 100, 0)))
    fires: Mapping[str, float] = {f'{{severity="{severity}"}}': 1} if severity else {}
    case = Case(pace.spec, series, pace.step).expect_silent(pace.seconds(10), alert)
    case.expect(pace.seconds(13.8), firing(alert, "severity"), fires)
    promtool.test([case.expect_silent(pace.seconds(15), alert)])


def test_one_client_in_a_retry_loop_raises_a_ticket_that_ends_with_it_and_no_page(
    promtool: Promtool, pace: Pace
) -> None:
    """Three invalid requests for each valid one; the valid ones of other clients go on."""
    series = ended(pace, "client_error", ((30, 10, 0),))
    loop = ended(pace, "client_error", ((14, 0, 1), (8, 30, 1), (8, 0, 1)))
    errors = next(name for name in loop if "client_error" in name)
    case = Case(pace.spec, series | {errors: loop[errors]}, pace.step)
    ticket = {'{instance="s:1",model="org/m",severity="ticket"}': 1.0}
    for step in (15, 18, 22):
        case.expect(pace.seconds(step), firing(CLIENT, "instance, model, severity"), ticket)
    for step in (23, 24, 29):
        case.expect_silent(pace.seconds(step), CLIENT)
    promtool.test([case])


def test_requests_for_an_unknown_model_name_count(promtool: Promtool, pace: Pace) -> None:
    series = ended(pace, "client_error", ((10, 10, 0), (6, 0, 0)))
    series |= ended(pace, "client_error", ((10, 0, 0), (6, 10, 1)), model="other")
    case = Case(pace.spec, series, pace.step)
    promtool.test([case.expect(pace.seconds(15), firing(CLIENT, "severity"), {'{severity="page"}': 1})])


def test_an_old_error_share_is_no_surge(promtool: Promtool) -> None:
    """A client sends with a wrong key all day; a new sidecar receives a part of it. A day later, no sidecar fires.

    A ticket: the other requests of the class are as many as before.
    """
    pace = Pace(load(ROOT / "compose/slos.yaml"))
    day = 288
    always = ended(pace, "client_error", ((day + 10, 10, 0.6),))
    begun = ended(pace, "client_error", ((2, 0, 0), (day + 8, 10, 0.6)), instance="s:2")
    late = ended(pace, "client_error", ((day, 0, 0), (10, 10, 0.6)), instance="s:3")
    case = Case(pace.spec, always | begun | late, pace.step)
    case.expect(pace.seconds(20), firing(CLIENT, "severity"), {'{severity="ticket"}': 2})
    promtool.test([case.expect_silent(pace.seconds(day + 9), CLIENT)])


def test_few_client_errors_are_no_surge(promtool: Promtool, pace: Pace) -> None:
    few = 30 / pace.scrapes(3)
    case = Case(pace.spec, ended(pace, "client_error", ((6, few, 1),)), pace.step)
    promtool.test([case.expect_silent(pace.seconds(6), CLIENT)])


def goodput(pace: Pace, model: str, phases: Phases, tokens: float) -> dict[str, str]:
    """Judged and good requests with `tokens` each; a phase is steps, requests per scrape, good share."""
    labels = f'model="{model}",class="siso",tenant="other",instance="s:1"'
    runs = [(pace.scrapes(steps), each, good) for steps, each, good in phases]
    return {
        f"llm_goodput_events_total{{{labels}}}": counter(*((each, n) for n, each, _ in runs)),
        f"llm_goodput_requests_total{{{labels}}}": counter(*((each * good, n) for n, each, good in runs)),
        f"llm_completion_tokens_total{{{labels}}}": counter(*((each * tokens, n) for n, each, _ in runs)),
    }


def test_more_tokens_than_usual_with_less_goodput_fire(promtool: Promtool) -> None:
    """Quiet nights do not count as usual: with them, any busy hour would be above the median."""
    pace = Pace(load(ROOT / "alerts/slos.yaml"))
    night, baseline = (150, 0, 0), (290, 20, 0.99)
    series = {
        **goodput(pace, "fires", (night, baseline, (13, 30, 0.6), (14, 30, 0.99)), 100),
        **goodput(pace, "good enough", (night, baseline, (27, 30, 0.92)), 100),
        **goodput(pace, "fewer tokens", (night, baseline, (27, 18, 0.6)), 100),
        **goodput(pace, "no baseline yet", ((190, 0, 0), (250, 20, 0.99), (27, 30, 0.6)), 100),
        **goodput(pace, "little traffic", ((150, 0, 0), (290, 0.2, 1), (27, 0.3, 0.1)), 100),
    }
    query = firing(BUSY, "model", severity="ticket")
    begun = 150 + 290
    case = Case(pace.spec, series, pace.step).expect(pace.seconds(begun), query, {})
    case.expect(pace.seconds(begun + 13), query, {'{model="fires"}': 1})
    promtool.test([case.expect(pace.seconds(begun + 27), query, {})])
