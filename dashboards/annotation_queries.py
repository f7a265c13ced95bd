"""The annotations of the dashboards: config changes, engine starts, alerts and load tests."""

from grafana_foundation_sdk.builders import dashboard

from alerts.alert_labels import severity_value
from alerts.promql_text import max_by
from alerts.tiers import Severity
from dashboards.style import ANNOTATION_COLOURS, DATASOURCE, query
from exporters import signals
from exporters.quantities import spell_duration
from exporters.signals import FIRING, Label
from exporters.slos import SloFile

_RESTART = 120
"""Seconds between a config change and the start of the engine that it restarts."""


def annotations(spec: SloFile, *, load_tests: bool = False) -> tuple[dashboard.AnnotationQuery, ...]:
    """The annotations of a dashboard; the step is the scrape interval, so that no sample is skipped.

    A value that is a time lasts as long as the sidecar, so its step is longer: a fleet has many such series.
    """
    step, step_of_times = spell_duration(spec.scrape_interval), "1m"
    # Grafana shows the name of a label that is missing
    named = f'label_join({signals.LOAD_RUN.name}, "title", " ", "{Label.SCENARIO}", "{Label.CONFIGURATION}")'
    tests = _annotation("Load tests", named, "load test: {{title}}", "run {{run}}", step)
    return (
        # the values of these two queries are the times in milliseconds, independent of the scrape
        _annotation(
            "Config changes", config_change_query(), "{{setting}}: {{old}} → {{new}}", "on {{engine}}", step_of_times
        ).use_value_for_time(True),
        _annotation(
            "Engine starts", _engine_starts(), "engine started", "{{engine}}", step_of_times
        ).use_value_for_time(True),
        _annotation(
            "Pages",
            _marks(severity_value(spec.alerting.severities, Severity.PAGE)),
            "{{alertname}} {{alertstate}}",
            "page",
            step,
        ),
        _annotation(
            "Tickets",
            _marks(severity_value(spec.alerting.severities, Severity.TICKET)),
            "{{alertname}} {{alertstate}}",
            "ticket",
            step,
        ).enable(False),
        *([tests] if load_tests else []),
    )


def config_change_query() -> str:
    """The time of each config change, in unix milliseconds."""
    return f"{signals.ENGINE_CONFIG_CHANGE.name} * 1000"


def _engine_starts() -> str:
    """Without those that follow a config change, whose mark they would cover."""
    engine = f"on ({Label.INSTANCE}, {Label.ENGINE})"
    change = max_by(signals.ENGINE_CONFIG_CHANGE.name, (Label.INSTANCE, Label.ENGINE))
    near = f"abs({signals.ENGINE_START_TIME.name} - {engine} {change}) < {_RESTART}"
    return f"{signals.ENGINE_START_TIME.name} * 1000 unless {engine} ({near})"


def _marks(severity: str) -> str:
    """A mark where an alert starts to fire, and one where it ends: regions tint the panels during an incident."""
    selector = f'{FIRING}{{alertstate="firing",{Label.SEVERITY}="{severity}"}}'
    # the step that Grafana uses, which is longer than the scrape interval over a long time range
    now, before = max_by(selector, [Label.ALERTNAME]), max_by(f"{selector} offset $__interval", [Label.ALERTNAME])
    return f"{_with_state(f'{now} unless {before}', 'fires')} or {_with_state(f'{before} unless {now}', 'ended')}"


def _with_state(expression: str, state: str) -> str:
    return f'label_replace({expression}, "alertstate", "{state}", "", "")'


def _annotation(name: str, expression: str, title: str, text: str, step: str) -> dashboard.AnnotationQuery:
    """An event while the query has a value above 0."""
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
