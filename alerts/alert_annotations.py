"""Builds an alert with its severity and annotations, and writes an SLO and a share in words."""

from collections.abc import Mapping

from alerts.alert_names import AlertName
from alerts.links import Links
from alerts.rule_groups import Alert
from alerts.tiers import Severity
from exporters.quantities import number, spell_duration
from exporters.signals import Label
from exporters.slos import Latency, Slo

ALERT_SOURCE = "vllm-slo"
"""The value of `alert_source` on all alerts."""


def annotated_alert(
    name: AlertName,
    severity: Severity,
    expr: str,
    links: Links,
    summary: str,
    description: str,
    *,
    labels: Mapping[str, str] | None = None,
    pending_for: float = 0.0,
    keep_firing_for: float = 0.0,
    more: Mapping[str, str] | None = None,
) -> Alert:
    """An alert with all annotations and `more`; `labels` are added to the severity. Both durations are in seconds."""
    return Alert(
        name,
        expr,
        {Label.SEVERITY: severity, Label.ALERT_SOURCE: ALERT_SOURCE, **(labels or {})},
        {
            "summary": summary,
            "description": description,
            **links.annotations(name),
            **(more or {}),
        },
        pending_for=pending_for,
        keep_firing_for=keep_firing_for,
    )


def describe(slo: Slo) -> str:
    """The SLO in words: `ttft within 5s for 95 %`."""
    limit = f" within {spell_duration(slo.sli.threshold)}" if isinstance(slo.sli, Latency) else ""
    return f"{slo.measure}{limit} for {percent(slo.objective)}"


def percent(share: float) -> str:
    return f"{number(round(100 * share, 2))} %"
