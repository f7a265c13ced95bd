"""The checks of a rolling update: all pass for one without a loss, and each fails for its own reason."""

from dataclasses import replace
from typing import Any

from compose.rolling_update.pod import Stop
from compose.rolling_update.update_checks import UpdateResult, checks
from tests.compose.golden_texts import assert_golden

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
CHANGES: dict[str, dict[str, Any]] = {
    "no loss": {},
    "no pod stopped": {"stops": ()},
    "a failed hook and a killed sidecar": {"stops": (Stop("pod-1", 75, 80, 1, 0, -9), GOOD.stops[1])},
    "failed requests": {"clients": {"ok": 97, "truncated": 1, "upstream_error": 2}},
    "a count that was not read": {"counted": {"ok": 99.0}},
    "a page": {"alerts": {"LLMEngineDown": "page"}},
    "a bad event": {"bad_events": {"ttft": 2.0}},
    "less budget": {"budget_after": {"ttft": 0.5}},
    "a budget that was first recorded during the update": {"budget_after": {"itl": 0.5, "ttft": 1.0}},
    "no budget": {"budget_before": {}, "budget_after": {}},
}


def test_each_loss_fails_its_check() -> None:
    found, passing = {}, checks(GOOD)
    for name, change in CHANGES.items():
        for each in checks(replace(GOOD, **change)):
            if not change or each not in passing:
                found[f"{name}: {each.claim}"] = f"{each.passed}: {each.result}"
    assert_golden(__file__, "checks", found)


def test_an_update_without_requests_proves_nothing() -> None:
    none = replace(GOOD, offered=0, clients={}, counted={})
    assert [each.passed for each in checks(none)] == [True, False, False, True, True]
