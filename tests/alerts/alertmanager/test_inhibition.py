"""What keeps quiet beside what, asked of a real Alertmanager."""

import re
from collections.abc import Iterator
from itertools import chain

import pytest

from alerts.alert_names import AlertName
from alerts.alertmanager import INHIBITIONS, Inhibition
from alerts.rule_file import rules
from alerts.rule_groups import Alert
from compose.prometheus_tools import Tools
from exporters.signals import RECORDED, SIGNALS, Label
from exporters.slos import loads
from tests.alerts.alertmanager.live_alertmanager import PER_TENANT, WEBHOOKS, Alertmanager, Labels, running, wait_until

pytestmark = pytest.mark.lab

HERE = {"instance": "s:1"}
ENGINE = {**HERE, "engine": "e:1"}
SLO = {"slo": "ttft", "class": "siso", "model": "org/m"}
PAGE, TICKET = {"severity": "page"}, {"severity": "ticket"}


def alert(name: str, *labels: Labels) -> dict[str, str]:
    return {"alertname": name, **dict(chain.from_iterable(each.items() for each in labels))}


WATCHDOG = alert("Watchdog", {"severity": "none"}, SLO, ENGINE)
BURN_TICKET = alert("LLMErrorBudgetBurn", TICKET, SLO, {"tier": "slow-ticket"})
STALLED = alert("LLMEngineStalled", PAGE, ENGINE)
DEAD = alert("LLMEngineDown", PAGE, ENGINE, {"job": "vllm-slo-sidecar"})


@pytest.fixture(scope="module")
def alertmanager(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alertmanager]:
    with running(tmp_path_factory.mktemp("alertmanager"), tools, *WEBHOOKS, "--keep-apart", "cluster") as server:
        yield server


@pytest.mark.parametrize(
    "source, quiet, active",
    [
        pytest.param(
            alert("LLMErrorBudgetBurn", PAGE, SLO, {"tier": "fast-page", "window": "1h"}),
            [
                BURN_TICKET,
                alert("LLMErrorBudgetLowTraffic", TICKET, SLO, {"window": "3d"}),
                alert("LLMPageHeldBack", TICKET, SLO, {"tier": "slow-page"}),
            ],
            [
                BURN_TICKET | {"class": "liso"},
                BURN_TICKET | {"model": "org/other"},
                BURN_TICKET | {"slo": "availability"},
                BURN_TICKET | {"cluster": "west"},
                alert("LLMErrorBudgetBurn", PAGE, SLO, {"tier": "slow-page"}),
                alert("LLMTenantErrorBudgetBurn", PAGE, SLO, {"tenant": "a"}),
                alert("LLMBusyButUseless", TICKET, {"class": "siso", "model": "org/m"}),
                alert("LLMPageHeldBack", TICKET, ENGINE),
                alert("SomebodyElses", TICKET, SLO),
            ],
            id="page over ticket, of the same SLO, class and model",
        ),
        pytest.param(
            alert("LLMTenantErrorBudgetBurn", PAGE, SLO, {"tenant": "a"}),
            [BURN_TICKET | {"tenant": "a"}],
            [BURN_TICKET, BURN_TICKET | {"tenant": "b"}],
            id="one tenant's page leaves the ticket for all alone",
        ),
        pytest.param(
            alert("LLMCertificateExpiry", PAGE, HERE),
            [alert("LLMCertificateExpiry", TICKET, HERE)],
            [alert("LLMCertificateExpiry", TICKET, {"instance": "s:2"})],
            id="a certificate that ends tomorrow",
        ),
        pytest.param(
            DEAD,
            [
                STALLED,
                alert("LLMEngineRestarts", TICKET, ENGINE),
                alert("LLMQueueSaturated", TICKET, ENGINE),
                alert("LLMKVCacheFull", TICKET, ENGINE, {"rank": "0"}),
                alert("LLMPrefixCacheCollapse", TICKET, ENGINE, {"model": "org/m"}),
                alert("LLMPageHeldBack", TICKET, ENGINE),
            ],
            [
                STALLED | {"engine": "e:2"},
                STALLED | {"instance": "s:2"},
                STALLED | {"cluster": "west"},
                alert("LLMEngineStalled", PAGE, HERE),
                alert("LLMErrorBudgetBurn", PAGE, SLO),
                alert("LLMSidecarLostRequests", TICKET, HERE, {"process": "relay-0"}),
                DEAD | {"engine": "e:3"},
            ],
            id="a dead engine over what is said of it, and of no other",
        ),
        pytest.param(
            alert("LLMSidecarDown", PAGE, HERE, {"job": "vllm-slo-sidecar"}),
            [
                DEAD,
                STALLED,
                alert("LLMEngineStalled", PAGE, HERE),
                alert("LLMSidecarLostRequests", TICKET, HERE, {"process": "relay-0"}),
                alert("LLMSidecarDroppingRecords", TICKET, HERE),
            ],
            [
                DEAD | {"instance": "s:2"},
                alert("LLMErrorBudgetBurn", PAGE, SLO),
                alert("LLMPageHeldBack", TICKET, SLO | {"class": "liso"}),
                alert("LLMClientErrorSurge", PAGE, HERE, {"class": "siso"}),
                alert("LLMSidecarDown", PAGE, {"instance": "s:3"}),
                alert("SomebodyElses", PAGE, HERE),
            ],
            id="a dead sidecar over its engines, and no other's",
        ),
    ],
)
def test_an_alert_keeps_quiet_beside_what_explains_it_and_beside_nothing_else(
    alertmanager: Alertmanager, source: Labels, quiet: list[Labels], active: list[Labels]
) -> None:
    alerts = [source, *quiet, *active, WATCHDOG]
    alertmanager.post(alerts)
    try:
        expected = {frozenset(each.items()): "suppressed" if each in quiet else "active" for each in alerts}

        def states() -> dict[frozenset[tuple[str, str]], str]:
            return {frozenset(labels.items()): state for labels, state in alertmanager.states()}

        assert wait_until(lambda: states() == expected), states()
    finally:
        alertmanager.post(alerts, firing=False)
        assert wait_until(lambda: not alertmanager.states())


def test_no_sidecar_at_all_keeps_nothing_quiet(alertmanager: Alertmanager) -> None:
    """Its alert has no instance, and neither has a burn: what both lack would count as equal."""
    gone = alert("LLMSidecarDown", PAGE, {"job": "vllm-slo-sidecar"})
    beside = [alert("LLMPageHeldBack", TICKET, SLO), DEAD, WATCHDOG]
    alertmanager.post([gone, DEAD, *beside, STALLED])
    assert wait_until(lambda: len(alertmanager.states()) == 5)
    try:
        assert wait_until(lambda: (STALLED, "suppressed") in alertmanager.states())  # all have been looked at
        assert all((each, "active") in alertmanager.states() for each in beside)
    finally:
        alertmanager.post([gone, *beside, STALLED], firing=False)
        assert wait_until(lambda: not alertmanager.states())


def test_nothing_keeps_the_watchdog_or_itself_quiet() -> None:
    for each in INHIBITIONS:
        assert AlertName.WATCHDOG not in each.target
        assert each.ticket_of_page or not {*each.source} & {*each.target}


def carried(rule: Alert) -> set[str]:
    """Labels of an alert, by the first series of its expression and how it is summed up."""
    summed = re.match(r"\W*\w+ by \(([^)]*)\)", rule.expr)
    name = next(name for name in re.findall(r"\bllm_[\w:]+|\bup\b", rule.expr))
    recorded = {series.name: {*series.labels} for series in RECORDED}
    scraped = {signal.name: {*signal.labels, Label.INSTANCE} for signal in SIGNALS}
    of_series = {"up": {Label.INSTANCE}, **recorded, **scraped}[name]
    return {*rule.labels} | (set(summed[1].split(", ")) if summed else of_series)


@pytest.mark.parametrize("each", [pytest.param(each, id=f"{each.source[0]} over others") for each in INHIBITIONS])
def test_what_alerts_are_compared_by_is_on_them(each: Inhibition) -> None:
    alert_rules = [rule for group in rules(loads(PER_TENANT)) for rule in group.rules if isinstance(rule, Alert)]
    for name in (*each.source, *each.target):
        states = [carried(rule) for rule in alert_rules if rule.name == name]
        assert any({each.required_label, *each.equal} - {Label.TENANT} <= labels for labels in states), (name, states)
