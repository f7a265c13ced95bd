"""Adds the labels of the SLO file to alerts, and replaces their severities by its values."""

from collections.abc import Iterable
from dataclasses import replace

from alerts.rule_groups import Alert, Recording, RuleGroup
from alerts.tiers import Severity
from exporters.signals import Label
from exporters.slos import Severities, SloFile


def with_alert_labels(groups: Iterable[RuleGroup], spec: SloFile) -> tuple[RuleGroup, ...]:
    """The labels of the file on all alerts, and those of an SLO on its alerts."""
    return tuple(replace(group, rules=tuple(_rule(rule, spec) for rule in group.rules)) for group in groups)


def severity_value(severities: Severities, severity: Severity) -> str:
    """The value of the label `severity`."""
    match severity:
        case Severity.PAGE:
            return severities.page
        case Severity.TICKET:
            return severities.ticket
        case Severity.NONE:
            return str(severity)


def _rule(rule: Recording | Alert, spec: SloFile) -> Recording | Alert:
    if isinstance(rule, Recording):
        return rule
    of_slo = (slo.labels for slo in spec.slos if slo.name == rule.labels.get(Label.SLO))
    severity = severity_value(spec.alerting.severities, Severity(rule.labels[Label.SEVERITY]))
    return replace(rule, labels={**rule.labels, Label.SEVERITY: severity, **dict(spec.labels), **dict(*of_slo)})
