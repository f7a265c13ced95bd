"""What a rolling update has done, and whether it lost a request, paged, or spent error budget."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from alerts.tiers import Severity
from compose.demo.checks import Check
from compose.rolling_update.pod import Stop
from exporters.vocabulary.signals import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateResult:
    """`clients` has requests by outcome of the load generator, `counted` those of `llm_requests_total` over all pods.

    `alerts` has the severity of each alert that fired, by name; `bad_events` and the lowest remaining share of the
    error budget before and after the update are by SLO.
    """

    replicas: int
    stops: Sequence[Stop]
    offered: int
    clients: Mapping[str, int]
    counted: Mapping[str, float]
    alerts: Mapping[str, str]
    bad_events: Mapping[str, float]
    budget_before: Mapping[str, float]
    budget_after: Mapping[str, float]


def checks(result: UpdateResult) -> list[Check]:
    return [
        _replaced(result),
        _none_lost(result),
        _all_counted(result),
        _no_page(result),
        _budget_untouched(result),
    ]


def _replaced(result: UpdateResult) -> Check:
    times = ", ".join(
        f"{each.name}: {each.seconds:.1f} s (drained after {each.hook_seconds:.1f} s)"
        if each.orderly
        else f"{each.name}: hook {each.hook}, engine {each.engine}, sidecar {each.sidecar}"
        for each in result.stops
    )
    passed = len(result.stops) == result.replicas and all(each.orderly for each in result.stops)
    return Check(f"{result.replicas} replicas stop with status 0", times or "none has stopped", passed)


def _none_lost(result: UpdateResult) -> Check:
    ok = result.clients.get(Outcome.OK, 0)
    text = f"{ok} of {result.offered} requests ok{_others(result.clients)}"
    return Check("no request fails", text, ok == result.offered > 0)


def _all_counted(result: UpdateResult) -> Check:
    total = round(sum(result.counted.values()))
    text = f"{total} of {result.offered}{_others(result.counted)}"
    return Check("Prometheus has read the count of every request", text, total == result.offered > 0)


def _no_page(result: UpdateResult) -> Check:
    names = ", ".join(f"{name} ({severity})" for name, severity in sorted(result.alerts.items()))
    pages = Severity.PAGE in result.alerts.values()
    return Check("no page fires", f"fired: {names or 'none'}", not pages)


def _budget_untouched(result: UpdateResult) -> Check:
    bad, after = result.bad_events, result.budget_after
    before = dict.fromkeys(after, 1.0) | dict(result.budget_before)  # no budget is recorded before the first event
    parts = [
        f"{slo}: {bad.get(slo, 0):.0f} bad events, {left:.2%} to {after.get(slo, 0):.2%} left"
        for slo, left in sorted(before.items())
    ]
    untouched = all(after.get(slo, 0) >= left and not bad.get(slo, 0) for slo, left in before.items())
    return Check("the error budget is untouched", "; ".join(parts) or "not recorded", bool(parts) and untouched)


def _others(outcomes: Mapping[str, float]) -> str:
    """The outcomes that are not ok, for a result."""
    return "".join(
        f", {number:.0f} {name}" for name, number in sorted(outcomes.items()) if name != Outcome.OK and number
    )
