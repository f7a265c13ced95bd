"""Tickets on the metering and on KV transfers: each fires above its limit, and is silent below it and after it."""

import pytest

from tests.alerts.firing import firing
from tests.support.promtool import Case, Pace, Promtool, constant, counter

BEGUN = "llm_sidecar_begun_requests_total"
CONNECTIONS, LIMIT = "llm_sidecar_client_connections", "llm_sidecar_client_connections_limit"
COUNTERS = [
    pytest.param("LLMSidecarUnmeteredRequests", "llm_sidecar_unmetered_requests_total", 2, 0.5, id="unmetered"),
    pytest.param("LLMSidecarRestarts", "llm_sidecar_restarts_total", 0.05, 0.005, id="restarts"),
    pytest.param("LLMSidecarTaskErrors", "llm_sidecar_task_errors_total", 0.5, 0.02, id="task errors"),
    pytest.param("LLMSidecarDroppingSpans", "llm_sidecar_dropped_spans_total", 0.5, 0.02, id="spans"),
    pytest.param("LLMKVTransferFailures", "llm_engine_kv_transfer_failures_total", 0.5, 0.02, id="KV transfers"),
]


@pytest.mark.parametrize("alert,name,above,below", COUNTERS)
def test_a_counter_raises_a_ticket_above_its_limit(
    promtool: Promtool, pace: Pace, alert: str, name: str, above: float, below: float
) -> None:
    steps = pace.scrapes(14)
    series = {f'{BEGUN}{{instance="{each}"}}': counter((100, 3 * steps)) for each in ("above", "below")}
    series[f'{name}{{instance="above"}}'] = counter((above, steps), (0, 2 * steps))
    series[f'{name}{{instance="below"}}'] = counter((below, 3 * steps))
    case = Case(pace.spec, series, pace.step)

    case.expect(pace.seconds(13), firing(alert, "instance, severity"), {'{instance="above",severity="ticket"}': 1})
    case.expect_silent(pace.seconds(14 + 14), alert)

    promtool.test([case])


GAUGES = [
    pytest.param("LLMSidecarConnectionsNearLimit", CONNECTIONS, 850, 700, id="connections"),
    pytest.param("LLMSidecarFollowLag", "llm_sidecar_follow_lag_bytes", 2_000_000, 500_000, id="lag"),
]


@pytest.mark.parametrize("alert,name,above,below", GAUGES)
def test_a_gauge_raises_a_ticket_above_its_limit(
    promtool: Promtool, pace: Pace, alert: str, name: str, above: float, below: float
) -> None:
    steps = pace.scrapes(8)
    series = {f'{LIMIT}{{instance="{each}"}}': constant(1000, 2 * steps) for each in ("above", "below")}
    series[f'{name}{{instance="above"}}'] = f"{constant(above, steps)} {constant(0, steps)}"
    series[f'{name}{{instance="below"}}'] = constant(below, 2 * steps)
    case = Case(pace.spec, series, pace.step)

    case.expect(pace.seconds(7), firing(alert, "instance, severity"), {'{instance="above",severity="ticket"}': 1})
    case.expect_silent(pace.seconds(14), alert)

    promtool.test([case])


def test_a_followed_log_that_cannot_be_read_raises_a_ticket(promtool: Promtool, pace: Pace) -> None:
    """A log that is rotated is missing for a moment only."""
    steps, up, lag = pace.scrapes(8), "llm_sidecar_follow_up", "llm_sidecar_follow_lag_bytes"
    series = {
        f'{up}{{instance="missing"}}': f"{constant(0, steps)} {constant(1, steps)}",
        f'{up}{{instance="rotated"}}': f"{constant(1, steps - 2)} 0 {constant(1, steps + 1)}",
        **{f'{lag}{{instance="{each}"}}': constant(0, 2 * steps) for each in ("missing", "rotated")},
    }
    case, alert = Case(pace.spec, series, pace.step), "LLMSidecarFollowLag"

    case.expect(pace.seconds(7), firing(alert, "instance, severity"), {'{instance="missing",severity="ticket"}': 1})
    case.expect_silent(pace.seconds(14), alert)

    promtool.test([case])
