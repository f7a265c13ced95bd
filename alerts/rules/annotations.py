"""Builds an alert with its labels and annotations."""

from collections.abc import Mapping

from alerts.engine_only import CAVEAT
from alerts.labels import severity_value
from alerts.links import Panel, without_sidecar
from alerts.plan import Plan
from alerts.promql.expression import Expression
from alerts.rules.groups import Alert
from alerts.rules.target_labels import LONGEST_PLACE, place
from alerts.rules.wording import MODEL, short_model
from alerts.tiers import Severity
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.signals import Label
from exporters.vocabulary.slo_file import Slo

ALERT_SOURCE = "vllm-slo"
"""The value of `alert_source` on all alerts."""


def alert(
    plan: Plan,
    name: AlertName,
    panel: Panel,
    expr: Expression,
    summary: str,
    description: str,
    *,
    severity: Severity = Severity.TICKET,
    slo: Slo | None = None,
    pending_for: float = 0.0,
    keep_firing_for: float = 0.0,
    more: Mapping[str, str] | None = None,
) -> Alert:
    """An alert with all labels and annotations, `more` among them, and those of its SLO. Both durations are in seconds.

    Queries in the description are made by `target_labels.query`.
    """
    groups = plan.spec.group_by if name is not AlertName.WATCHDOG else ()
    panel = panel if plan.has_sidecar else without_sidecar(panel)
    return Alert(
        name,
        expr,
        {
            Label.SEVERITY: severity_value(plan.spec.alerting.severities, severity),
            Label.ALERT_SOURCE: ALERT_SOURCE,
            **({} if slo is None else {Label.SLO: slo.name}),
            **dict(plan.spec.labels),
            **({} if slo is None else dict(slo.labels)),
        },
        {
            "summary": _title(summary, groups) if groups else summary,
            "description": description,
            **plan.links.annotations(name, panel),
            **(more or {}),
            **_note(plan, name, slo),
        },
        panel,
        pending_for=pending_for,
        keep_firing_for=keep_firing_for,
    )


def _title(summary: str, groups: tuple[str, ...]) -> str:
    """Names the group after the model of a burn alert, which is followed by its effect; at the end of other titles."""
    if MODEL in summary:
        return summary.replace(MODEL, f"{short_model(LONGEST_PLACE)} in {place(groups)}")
    return f"{summary} ({place(groups)})"


def _note(plan: Plan, name: AlertName, slo: Slo | None) -> dict[str, str]:
    """How the SLOs of a burn alert are counted without a sidecar."""
    if plan.has_sidecar or name not in {AlertName.BURN, AlertName.LOW_TRAFFIC}:
        return {}
    counted = "".join(
        f"The SLO {each.slo.name} is judged by vLLM itself: {each.note}. "
        for each in plan.supported
        if slo and each.slo.name == slo.name
    )
    return {"note": f"{counted}{CAVEAT}"}
