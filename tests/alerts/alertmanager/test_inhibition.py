"""Which alerts inhibit which, on a real Alertmanager."""

import re
from collections.abc import Iterator
from itertools import chain

import pytest

from alerts.alertmanager.configuration import INHIBITIONS, Inhibition
from alerts.rule_file import rules
from alerts.rules.groups import Alert
from compose.programs.tools import Tools
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.signals import RECORDED, SIGNALS, Label
from exporters.vocabulary.slo_file import loads
from tests.alerts.alertmanager.live_alertmanager import PER_TENANT, WEBHOOKS, Alertmanager, Labels, running
from tests.support.waiting import wait_until

HERE = {"instance": "s:1"}
ENGINE = {**HERE, "engine": "e:1"}
SLO = {"slo": "ttft", "class": "siso", "model": "org/m"}
PAGE, TICKET = {"severity": "page"}, {"severity": "ticket"}


def alert(name: str, *labels: Labels) -> dict[str, str]:
    return {"alertname": name, **dict(chain.from_iterable(each.items() for each in labels))}


WATCHDOG = alert("VLLMSLOWatchdog", {"severity": "none"}, SLO, ENGINE)
BURN_TICKET = alert("LLMErrorBudgetBurn", TICKET, SLO)
RESTARTS = alert("LLMEngineRestarts", TICKET, ENGINE)
STALLED = alert("LLMEngineWedged", PAGE, ENGINE)
DOWN = alert("LLMEngineDown", PAGE, ENGINE, {"job": "vllm-slo-sidecar"})


@pytest.fixture(scope="module")
def alertmanager(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alertmanager]:
    with running(tmp_path_factory.mktemp("alertmanager"), tools, *WEBHOOKS, "--keep-apart", "cluster") as server:
        yield server


@pytest.mark.parametrize(
    "source, inhibited, active",
    [
        pytest.param(
            alert("LLMErrorBudgetBurn", PAGE, SLO),
            [],
            [
                BURN_TICKET,
                alert("LLMErrorBudgetLowTraffic", TICKET, SLO, {"window": "3d"}),
                alert("LLMTenantErrorBudgetBurn", PAGE, SLO, {"tenant": "a"}),
                alert("LLMBusyButUseless", TICKET, {"class": "siso", "model": "org/m"}),
                DOWN | {"model": "org/m"},
            ],
            id="a burn inhibits nothing, as the rules exclude its tickets",
        ),
        pytest.param(
            alert("LLMCertificateExpiry", PAGE, HERE),
            [alert("LLMCertificateExpiry", TICKET, HERE)],
            [alert("LLMCertificateExpiry", TICKET, {"instance": "s:2"})],
            id="a certificate that expires tomorrow",
        ),
        pytest.param(
            DOWN,
            [
                DOWN | {"severity": "ticket"},
                alert("LLMEngineRestarts", TICKET, ENGINE),
                alert("LLMQueueSaturated", TICKET, ENGINE),
                alert("LLMKVCacheFull", TICKET, ENGINE, {"rank": "0"}),
                alert("LLMPrefixCacheCollapse", TICKET, ENGINE, {"model": "org/m"}),
            ],
            [
                STALLED,
                RESTARTS | {"engine": "e:2"},
                RESTARTS | {"instance": "s:2"},
                RESTARTS | {"cluster": "west"},
                alert("LLMEngineWedged", PAGE, HERE),
                alert("LLMErrorBudgetBurn", PAGE, SLO),
                alert("LLMSidecarLostRequests", TICKET, HERE, {"process": "relay-0"}),
                DOWN | {"engine": "e:3"},
            ],
            id="an engine that is down inhibits its own tickets",
        ),
        pytest.param(
            alert("LLMSidecarDown", PAGE, HERE, {"job": "vllm-slo-sidecar"}),
            [
                alert("LLMSidecarDown", TICKET, HERE, {"job": "vllm-slo-sidecar"}),
                RESTARTS,
                alert("LLMSidecarLostRequests", TICKET, HERE, {"process": "relay-0"}),
                alert("LLMSidecarDroppingRecords", TICKET, HERE),
                alert("LLMSidecarDroppingLogLines", TICKET, HERE, {"reason": "no_space"}),
                alert("LLMSidecarConfigReloadFailed", TICKET, HERE),
            ],
            [
                DOWN,
                STALLED,
                alert("LLMSidecarDown", TICKET, {"instance": "s:4"}),
                alert("LLMEngineWedged", PAGE, HERE),
                RESTARTS | {"instance": "s:2"},
                alert("LLMErrorBudgetBurn", PAGE, SLO),
                alert("LLMClientErrorSurge", PAGE, HERE, {"class": "siso"}),
                alert("LLMSidecarDown", PAGE, {"instance": "s:3"}),
                alert("ForeignAlert", PAGE, HERE),
            ],
            id="a sidecar that is down inhibits its own and its engines' tickets",
        ),
    ],
)
def test_an_alert_inhibits_exactly_those_that_it_explains(
    alertmanager: Alertmanager, source: Labels, inhibited: list[Labels], active: list[Labels]
) -> None:
    alerts = [source, *inhibited, *active, WATCHDOG]
    alertmanager.post(alerts)
    try:
        expected = {frozenset(each.items()): "suppressed" if each in inhibited else "active" for each in alerts}

        def states() -> dict[frozenset[tuple[str, str]], str]:
            return {frozenset(labels.items()): state for labels, state in alertmanager.states()}

        assert wait_until(lambda: states() == expected), states()
    finally:
        alertmanager.post(alerts, firing=False)
        assert wait_until(lambda: not alertmanager.states())


def test_an_absent_scrape_job_inhibits_nothing(alertmanager: Alertmanager) -> None:
    """Neither its alert nor a burn has an instance, and two absent labels are equal."""
    gone = alert("LLMSidecarDown", PAGE, {"job": "vllm-slo-sidecar"})
    beside = [BURN_TICKET, DOWN, WATCHDOG]
    alertmanager.post([gone, DOWN, *beside, RESTARTS])
    assert wait_until(lambda: len(alertmanager.states()) == 5)
    try:
        # All are evaluated.
        assert wait_until(lambda: (RESTARTS, "suppressed") in alertmanager.states())
        assert all((each, "active") in alertmanager.states() for each in beside)
    finally:
        alertmanager.post([gone, *beside, RESTARTS], firing=False)
        assert wait_until(lambda: not alertmanager.states())


def test_nothing_inhibits_the_watchdog_or_itself() -> None:
    for each in INHIBITIONS:
        assert AlertName.WATCHDOG not in each.target
        assert each.ticket_of_page or not {*each.source} & {*each.target}


def labels_of(rule: Alert) -> set[str]:
    """The labels of an alert, from the first series of its expression and its aggregation."""
    summed = re.match(r"\W*\w+ by \(([^)]*)\)", str(rule.expr))
    name = next(name for name in re.findall(r"\bllm_[\w:]+|\bup\b", str(rule.expr)))
    recorded = {series.name: {*series.labels} for series in RECORDED}
    scraped = {signal.name: {*signal.labels, Label.INSTANCE} for signal in SIGNALS}
    of_series = {"up": {Label.INSTANCE}, **recorded, **scraped}[name]
    return {*rule.labels} | (set(summed[1].split(", ")) if summed else of_series)


@pytest.mark.parametrize("each", [pytest.param(each, id=f"{each.source[0]} inhibits") for each in INHIBITIONS])
def test_alerts_have_the_labels_that_inhibition_compares(each: Inhibition) -> None:
    alert_rules = [rule for group in rules(loads(PER_TENANT)) for rule in group.rules if isinstance(rule, Alert)]
    # A page and its ticket have the same labels, of which only the required one must exist.
    compared = {each.required_label} if each.ticket_of_page else {each.required_label, *each.equal} - {Label.TENANT}
    for name in (*each.source, *each.target):
        states = [labels_of(rule) for rule in alert_rules if rule.name == name]
        assert any(compared <= labels for labels in states), (name, states)
