"""A page for a group of targets, such as a cluster, that Prometheus no longer scrapes at all.

`up` is absent then, not 0: service discovery finds nothing, or a remote Prometheus sends nothing. Only the past shows
that the group existed.
"""

from alerts.alert_annotations import annotated_alert
from alerts.alert_names import AlertName
from alerts.links import Links
from alerts.recording_windows import down_after
from alerts.rule_groups import Alert, Recording
from alerts.scrape_jobs import jobs, targets_up
from alerts.tiers import Severity, tiers
from exporters.quantities import spell_duration
from exporters.signals import ENGINE_MODEL, TARGET_MODEL
from exporters.slos import SloFile


def remembered(spec: SloFile) -> float:
    """Seconds for which a group without targets pages; it counts as removed afterwards. 6 h of 30 d."""
    _, slow_page, *_ = tiers(spec.period)
    return slow_page.long


def target_models(spec: SloFile) -> tuple[Recording, ...]:
    """Recorded as one series a group and model, because the past of all targets would be slow to read."""
    if not spec.group_by:
        return ()
    expr = f"group by (model) ({ENGINE_MODEL.name})\nor on () group by () ({targets_up(spec)})"
    return (Recording(TARGET_MODEL, expr),)


def missing_targets(spec: SloFile, links: Links) -> tuple[Alert, ...]:
    """Without `group_by`, the alerts on targets that are down include that there is none."""
    if not spec.group_by:
        return ()
    window, pending_for = spell_duration(remembered(spec)), down_after(spec)
    past = f"last_over_time({TARGET_MODEL.name}[{window}])"
    with_model = f'last_over_time({TARGET_MODEL.name}{{model!=""}}[{window}])'
    return (
        annotated_alert(
            AlertName.TARGETS_MISSING,
            Severity.PAGE,
            f"({with_model}\nor on () {past})\nunless on () {targets_up(spec)}",
            links,
            "Prometheus has lost every target{{ with $labels.model }} of {{ . }}{{ end }}",
            f"No target of the job {' or '.join(jobs(spec))} is left here, for {spell_duration(pending_for)} or more. "
            "Nothing here is measured and no other alert can fire. The page ends when a target is back, or "
            f"{window} after the last one, when the targets count as removed. Look first at whether clients still "
            "get responses, then at the Prometheus that scrapes them and at its service discovery.",
            pending_for=pending_for,
        ),
    )


def no_target(spec: SloFile, window: str = "") -> str:
    """Present if there is no target at all; with `group_by`, only if there was none in the past either."""
    up = targets_up(spec)
    if spec.group_by:
        past = f"last_over_time({TARGET_MODEL.name}[{spell_duration(remembered(spec))}])"
        return f"absent({up} or {past})"
    return f"absent_over_time({up}[{window}])" if window else f"absent({up})"
