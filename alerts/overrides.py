"""Applies `alerting.alerts` of the SLO file: alerts that are disabled, or have another severity, `for` or labels."""

from collections.abc import Iterator
from dataclasses import replace

from alerts.labels import severity_value
from alerts.rules.groups import Alert, Recording, RuleGroup
from alerts.tiers import Severity
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.signals import Label
from exporters.vocabulary.slo_file import Alerting, AlertOverride

_NESTED = frozenset({AlertName.SIDECAR_DOWN, AlertName.ENGINE_DOWN, AlertName.ENGINE_WEDGED, AlertName.CERTIFICATE})
"""Their tickets fire beside their pages. With one severity, both rules would be one alert, so the page is left out."""


def with_overrides(groups: tuple[RuleGroup, ...], alerting: Alerting) -> tuple[RuleGroup, ...]:
    """The rules as the file changes them, without groups that have no rule left."""
    changed = (replace(group, rules=tuple(_rules(group.rules, alerting))) for group in groups)
    return tuple(group for group in changed if group.rules)


def _rules(rules: tuple[Recording | Alert, ...], alerting: Alerting) -> Iterator[Recording | Alert]:
    overrides = {str(name): override for name, override in alerting.alerts}
    for rule in rules:
        override = overrides.get(rule.name) if isinstance(rule, Alert) else None
        if not isinstance(rule, Alert) or override is None:
            yield rule
        elif override.enabled and not (override.severity and rule.name in _NESTED and _is_page(rule, alerting)):
            yield _changed(rule, override, alerting)


def _is_page(alert: Alert, alerting: Alerting) -> bool:
    return alert.labels[Label.SEVERITY] == alerting.severities.page


def _changed(alert: Alert, override: AlertOverride, alerting: Alerting) -> Alert:
    labels = {**alert.labels, **dict(override.labels)}
    if override.severity:
        labels[Label.SEVERITY] = severity_value(alerting.severities, Severity(override.severity))
    pending_for = alert.pending_for if override.pending_for is None else override.pending_for
    return replace(alert, labels=labels, pending_for=pending_for)
