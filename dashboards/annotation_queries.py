"""The annotations of every dashboard: config changes, engine starts, alerts and load tests."""

from grafana_foundation_sdk.builders import dashboard

from alerts.tiers import Severity
from dashboards.style import ANNOTATION_COLOURS, DATASOURCE, query
from exporters import signals
from exporters.quantities import spell_duration
from exporters.signals import FIRING, Label
from exporters.slos import SloFile


def annotations(spec: SloFile) -> tuple[dashboard.AnnotationQuery, ...]:
    """The annotations of every dashboard; the step is the scrape interval, so that no sample is skipped."""
    step = spell_duration(spec.scrape_interval)
    starts = f"{signals.ENGINE_START_TIME.name} * 1000"
    return (
        # the values of these two queries are the times in milliseconds, independent of the scrape
        _annotation(
            "Config changes", config_change_query(), "{{setting}}: {{old}} → {{new}}", "on {{engine}}", step
        ).use_value_for_time(True),
        _annotation("Engine starts", starts, "engine started", "{{engine}}", step).use_value_for_time(True),
        _annotation("Pages", _firing(Severity.PAGE), "{{alertname}}", "page", step),
        _annotation("Tickets", _firing(Severity.TICKET), "{{alertname}}", "ticket", step).enable(False),
        _annotation("Load tests", signals.LOAD_RUN.name, "load test: {{scenario}}", "run {{run}}", step),
    )


def config_change_query() -> str:
    """The time of each config change, in unix milliseconds."""
    return f"{signals.ENGINE_CONFIG_CHANGE.name} * 1000"


def _firing(severity: Severity) -> str:
    """One region per alert name: a region per SLO and class would cover the curves in an incident."""
    return f'max by (alertname) ({FIRING}{{alertstate="firing",{Label.SEVERITY}="{severity}"}})'


def _annotation(name: str, expression: str, title: str, text: str, step: str) -> dashboard.AnnotationQuery:
    """Regions while the query has a value above 0."""
    return (
        dashboard.AnnotationQuery()
        .name(name)
        .datasource(DATASOURCE)
        .enable(True)
        .icon_color(ANNOTATION_COLOURS[name])
        .target(query(expression, "").ref_id("Anno"))
        # older releases of Grafana read the query here, newer ones in `target`
        .expr(expression)
        .step(step)
        .title_format(title)
        .text_format(text)
    )
