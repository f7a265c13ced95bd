"""Labels of the SLO file are on the alerts; its severities replace ours in rules, routes and dashboards."""

import json
from pathlib import Path

import pytest
import yaml

from alerts.rule_file import rules
from alerts.rules.groups import Alert
from compose.cli import main
from dashboards.boards.annotations import annotations
from exporters.vocabulary.slo_file import Source, loads
from tests.support.promtool import ROOT

SHIPPED = (ROOT / "alerts/slos.yaml").read_text()
NAMED = SHIPPED.replace("alerting:\n", "alerting:\n  severities: {page: critical, ticket: warning}\n")


@pytest.mark.parametrize("source", Source)
def test_labels_of_the_file_are_on_all_alerts_and_those_of_an_slo_on_its_alerts(source: Source) -> None:
    text = SHIPPED.replace("objective: 95%}", "objective: 95%, labels: {team: chat, service: web}}", 1)
    spec = loads(f"labels: {{team: ml, env: 2}}\n{text}\nsource: {source}\n")
    alerts = [rule for group in rules(spec) for rule in group.rules if isinstance(rule, Alert)]
    assert {alert.labels["env"] for alert in alerts} == {"2"}
    of_ttft = [alert for alert in alerts if alert.labels.get("slo") == "ttft"]
    assert {alert.labels["severity"] for alert in of_ttft} == {"page", "ticket"}
    assert {(alert.labels["team"], alert.labels["service"]) for alert in of_ttft} == {("chat", "web")}
    others = [alert for alert in alerts if alert not in of_ttft]
    assert {(alert.labels["team"], "service" in alert.labels) for alert in others} == {("ml", False)}


def test_severities_are_named_as_in_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "slos.yaml"
    path.write_text(NAMED)
    ours, named = loads(SHIPPED), loads(NAMED)
    names = {"page": "critical", "ticket": "warning", "none": "none"}

    def severities(text: str) -> list[str]:
        spec = loads(text)
        return [rule.labels["severity"] for group in rules(spec) for rule in group.rules if isinstance(rule, Alert)]

    assert severities(NAMED) == [names[each] for each in severities(SHIPPED)]
    flags = ["--page", "webhook=http://h/page", "--ticket", "webhook=http://h/ticket", "--route"]
    flags += ["class=siso:ticket:webhook=http://h/siso", "--out", "-"]
    assert main(["alerts", "alertmanager", "--slos", str(path), *flags]) == 0
    config = yaml.safe_load(capsys.readouterr().out)
    matchers = [matcher for route in config["route"]["routes"] for matcher in route["matchers"]]
    rules_of = [rule[f"{side}_matchers"] for rule in config["inhibit_rules"] for side in ("source", "target")]
    matchers += [matcher for each in rules_of for matcher in each]
    assert {each for each in matchers if each.startswith("severity")} == {'severity="critical"', 'severity="warning"'}
    assert [route["receiver"] for route in config["route"]["routes"][1:]] == ["ticket-class-siso", "page"]
    queries = [str(each.build().expr) for each in annotations(named)]
    replaced = [str(each.build().expr).replace('"page"', '"critical"') for each in annotations(ours)]
    assert queries == [each.replace('"ticket"', '"warning"') for each in replaced]
    assert main(["alerts", "explain", "--slos", str(path), "--format", "json", "--rate", "1"]) == 0
    tiers = json.loads(capsys.readouterr().out)["slos"][0]["tiers"]
    assert [each["severity"] for each in tiers] == ["critical", "critical", "warning", "warning"]
