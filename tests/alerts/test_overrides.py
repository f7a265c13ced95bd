"""The SLO file disables alerts, and sets their severity, `for` and labels; mistakes are reported together."""

import pytest

from alerts.rule_file import rules
from alerts.rules.groups import Alert
from exporters.text.yaml_reader import FileError
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.slo_file import SloFile, loads
from tests.support.slo_files import MINIMAL


def rendered(spec: SloFile) -> list[Alert]:
    return [rule for group in rules(spec) for rule in group.rules if isinstance(rule, Alert)]


def test_an_override_changes_every_rule_of_its_alert_and_no_other() -> None:
    text = "{LLMSidecarDown: {severity: ticket, for: 10m, labels: {team: ml}}, LLMQueueSaturated: {enabled: false}}"
    before = rendered(loads(MINIMAL))

    after = rendered(loads(f"{MINIMAL}alerting: {{severities: {{ticket: low}}, alerts: {text}}}\n"))

    changed = [alert for alert in after if alert.name == AlertName.SIDECAR_DOWN]
    assert [(each.labels["severity"], each.labels["team"], each.pending_for) for each in changed] == [
        ("low", "ml", 600.0)
    ]
    touched = {AlertName.SIDECAR_DOWN, AlertName.QUEUE}
    assert [each.name for each in after if each.name not in touched] == [
        each.name for each in before if each.name not in touched
    ]
    assert AlertName.QUEUE not in {each.name for each in after}


@pytest.mark.parametrize("name", AlertName)
def test_every_alert_can_be_disabled(name: AlertName) -> None:
    spec = loads(f"{MINIMAL}alerting: {{alerts: {{{name}: {{enabled: false}}}}}}\n")
    assert name not in {each.name for each in rendered(spec)}


def test_all_mistakes_are_reported_in_one_run() -> None:
    text = """alerting:
  min_serving: 5/3
  alerts:
    LLMSidecarDwn: {severity: warning}
    LLMEngineDown: {fore: 10m}
    LLMKVCacheFull: {for: 10, labels: {job: x}}
    VLLMSLOWatchdog: {severity: page}
"""
    with pytest.raises(FileError) as caught:
        loads(MINIMAL + text)
    assert [f"{each.path}: {each.text}" for each in caught.value.problems] == [
        f"alerting.{line}"
        for line in (
            "min_serving: '5/3' is not a share of replicas; write a fraction or a percentage, such as 2/3, 50% or 100%",
            "alerts.LLMSidecarDwn: 'LLMSidecarDwn' is not an alert; did you mean 'LLMSidecarDown'?",
            "alerts.LLMSidecarDwn.severity: 'warning' is unknown; known: page, ticket",
            "alerts.LLMEngineDown.fore: unknown key; did you mean 'for'?",
            (
                "alerts.LLMKVCacheFull.for: '10' is not a valid duration; write a number with a unit, such as 250ms, "
                "5s, 1m, 12h or 30d"
            ),
            "alerts.LLMKVCacheFull.labels.job: 'job' is a label of every target or of our series; choose another name",
            (
                "alerts.VLLMSLOWatchdog.severity: VLLMSLOWatchdog always fires, for a dead man's switch, so it cannot "
                "be a page; remove severity"
            ),
        )
    ]
