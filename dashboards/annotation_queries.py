"""The annotations of every dashboard: config changes, engine starts, alerts and load tests."""

from grafana_foundation_sdk.builders import dashboard

from alerts.tiers import Severity
from dashboards.style import ANNOTATION_COLOURS, DATASOURCE, query
from exporters import signals
from exporters.quantities import spell_duration
from exporters.signals import FIRING, Label
from exporters.slos import SloFile


def annotations(spec: SloFile) -> tuple[dashboard.AnnotationQuery, ...]:
    """The annotations that every dashboard carries; the step is the scrape interval, so that none is missed."""
    step = spell_duration(spec.scrape_interval)
    return (
        _point_annotation(
            config_change_query(), "Config changes", "{{setting}}: {{old}} → {{new}}", "on {{engine}}", step
        ),
        _point_annotation(
            f"{signals.ENGINE_START_TIME.name} * 1000", "Engine starts", "engine started", "{{engine}}", step
        ),
        _region_annotation(_firing(Severity.PAGE), "Pages", "{{alertname}}", "page", step),
        _region_annotation(_firing(Severity.TICKET), "Tickets", "{{alertname}}", "ticket", step).enable(False),
        _region_annotation(signals.LOAD_RUN.name, "Load tests", "load test: {{scenario}}", "run {{run}}", step),
    )


def config_change_query() -> str:
    """The time of each config change, in unix milliseconds."""
    return f"{signals.ENGINE_CONFIG_CHANGE.name} * 1000"


def _firing(severity: Severity) -> str:
    """One region an alert for all SLOs and classes: one region each would cover the curves in an incident."""
    return f'max by (alertname) ({FIRING}{{alertstate="firing",{Label.SEVERITY}="{severity}"}})'


def _point_annotation(expression: str, name: str, title: str, text: str, step: str) -> dashboard.AnnotationQuery:
    """Points at the values of the query, which are times in milliseconds, independent of the scrape."""
    return _annotation(expression, name, title, text, step).use_value_for_time(True)


def _region_annotation(expression: str, name: str, title: str, text: str, step: str) -> dashboard.AnnotationQuery:
    """Regions while the query has a value above 0."""
    return _annotation(expression, name, title, text, step)


def _annotation(expression: str, name: str, title: str, text: str, step: str) -> dashboard.AnnotationQuery:
    return (
        dashboard.AnnotationQuery()
        .name(name)
        .datasource(DATASOURCE)
        .enable(True)
        .icon_color(ANNOTATION_COLOURS[name])
        .target(query(expression, "").ref_id("Anno"))
        .expr(expression)  # older releases read the query here, newer ones in `target`
        .step(step)
        .title_format(title)
        .text_format(text)
    )
