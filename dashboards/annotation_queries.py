"""What happened, drawn across every panel: flips, alerts, restarts and load tests."""

from grafana_foundation_sdk.builders import dashboard

from alerts.tiers import Severity
from dashboards.style import DATASOURCE, EVENT_COLOURS, query
from exporters import signals
from exporters.quantities import spell_duration
from exporters.signals import FIRING, Label
from exporters.slos import SloFile


def events(spec: SloFile) -> tuple[dashboard.AnnotationQuery, ...]:
    """The annotations that every dashboard carries; the step is the scrape interval, so that none is missed."""
    step = spell_duration(spec.scrape_interval)
    return (
        _at(flip_query(), "Config flips", "{{setting}}: {{old}} → {{new}}", "on {{engine}}", step),
        _at(f"{signals.ENGINE_START_TIME.name} * 1000", "Engine starts", "engine started", "{{engine}}", step),
        _while(_firing(Severity.PAGE), "Pages", "{{alertname}}", "page", step),
        _while(_firing(Severity.TICKET), "Tickets", "{{alertname}}", "ticket", step).enable(False),
        _while(signals.LOAD_RUN.name, "Load tests", "load test: {{scenario}}", "run {{run}}", step),
    )


def flip_query() -> str:
    """When settings of the engine changed, in unix milliseconds: the time of each flip annotation."""
    return f"{signals.ENGINE_CONFIG_CHANGE.name} * 1000"


def _firing(severity: Severity) -> str:
    """One region an alert, whatever the SLOs and classes: in an incident a dozen of them would cover the curves."""
    return f'max by (alertname) ({FIRING}{{alertstate="firing",{Label.SEVERITY}="{severity}"}})'


def _at(expression: str, name: str, title: str, text: str, step: str) -> dashboard.AnnotationQuery:
    """Marks at the times that the query's values are, in milliseconds: exact, whenever it was scraped."""
    return _annotation(expression, name, title, text, step).use_value_for_time(True)


def _while(expression: str, name: str, title: str, text: str, step: str) -> dashboard.AnnotationQuery:
    """Regions for as long as the query has a value above 0."""
    return _annotation(expression, name, title, text, step)


def _annotation(expression: str, name: str, title: str, text: str, step: str) -> dashboard.AnnotationQuery:
    return (
        dashboard.AnnotationQuery()
        .name(name)
        .datasource(DATASOURCE)
        .enable(True)
        .icon_color(EVENT_COLOURS[name])
        .target(query(expression, "").ref_id("Anno"))
        .expr(expression)  # older releases read the query here, newer ones in `target`
        .step(step)
        .title_format(title)
        .text_format(text)
    )
