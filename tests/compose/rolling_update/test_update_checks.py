"""The checks of a rolling update: all pass for one without a loss, and each fails for its own reason."""

from dataclasses import replace
from typing import Any

import pytest

from compose.rolling_update.pod import Stop
from compose.rolling_update.update_checks import UpdateResult, checks

GOOD = UpdateResult(
    replicas=2,
    stops=(Stop("pod-1", 6.2, 8.0, 0, 0, 0), Stop("pod-2", 7.0, 9.14, 0, 0, 0)),
    offered=100,
    clients={"ok": 100},
    counted={"ok": 100.0, "client_abort": 0.0},
    alerts={"LLMErrorBudgetLowTraffic": "ticket"},
    bad_events={"ttft": 0.0},
    budget_before={"ttft": 1.0},
    budget_after={"ttft": 1.0},
)
CLAIMS = [
    "2 replicas stop with status 0",
    "no request fails",
    "Prometheus has read the count of every request",
    "no page fires",
    "the error budget is untouched",
]


def test_an_update_without_a_loss_passes() -> None:
    assert [(each.claim, each.result, each.passed) for each in checks(GOOD)] == [
        (CLAIMS[0], "pod-1: 8.0 s (drained after 6.2 s), pod-2: 9.1 s (drained after 7.0 s)", True),
        (CLAIMS[1], "100 of 100 requests ok", True),
        (CLAIMS[2], "100 of 100", True),
        (CLAIMS[3], "fired: LLMErrorBudgetLowTraffic (ticket)", True),
        (CLAIMS[4], "ttft: 0 bad events, 100.00% to 100.00% left", True),
    ]


@pytest.mark.parametrize(
    "change, claim, result",
    [
        pytest.param({"stops": ()}, 0, "none has stopped", id="no pod stopped"),
        pytest.param(
            {"stops": (Stop("pod-1", 75, 80, 1, 0, -9), GOOD.stops[1])},
            0,
            "pod-1: hook 1, engine 0, sidecar -9, pod-2: 9.1 s (drained after 7.0 s)",
            id="a failed hook and a killed sidecar",
        ),
        pytest.param(
            {"clients": {"ok": 97, "truncated": 1, "upstream_error": 2}},
            1,
            "97 of 100 requests ok, 1 truncated, 2 upstream_error",
            id="failed requests",
        ),
        pytest.param({"counted": {"ok": 99.0}}, 2, "99 of 100", id="a count that was not read"),
        pytest.param({"alerts": {"LLMEngineDown": "page"}}, 3, "fired: LLMEngineDown (page)", id="a page"),
        pytest.param({"bad_events": {"ttft": 2.0}}, 4, "ttft: 2 bad events, 100.00% to 100.00% left", id="a bad event"),
        pytest.param(
            {"budget_after": {"ttft": 0.5}}, 4, "ttft: 0 bad events, 100.00% to 50.00% left", id="less budget"
        ),
        pytest.param(
            {"budget_after": {"itl": 0.5, "ttft": 1.0}},
            4,
            "itl: 0 bad events, 100.00% to 50.00% left; ttft: 0 bad events, 100.00% to 100.00% left",
            id="a budget that was first recorded during the update",
        ),
        pytest.param({"budget_before": {}, "budget_after": {}}, 4, "not recorded", id="no budget"),
    ],
)
def test_one_check_fails(change: dict[str, Any], claim: int, result: str) -> None:
    failed = [each for each in checks(replace(GOOD, **change)) if not each.passed]
    assert [(each.claim, each.result) for each in failed] == [(CLAIMS[claim], result)]


def test_an_update_without_requests_proves_nothing() -> None:
    none = replace(GOOD, offered=0, clients={}, counted={})
    assert [each.passed for each in checks(none)] == [True, False, False, True, True]
