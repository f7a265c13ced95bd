"""The annotations of the dashboards: config changes, states and starts of engines, alerts and load tests."""

from grafana_foundation_sdk.builders import dashboard

from alerts.labels import severity_value
from alerts.promql.build import call, equal, max_by, on, select
from alerts.promql.expression import Expression, Matcher
from alerts.tiers import Severity
from dashboards.grafana.style import ANNOTATION_COLOURS, DATASOURCE, query
from dashboards.queries.labels import join_labels, with_label
from dashboards.queries.rates import ENGINE_LABELS
from exporters.text.units import spell_duration
from exporters.vocabulary import signals
from exporters.vocabulary.signals import FIRING, Label
from exporters.vocabulary.slo_file import SloFile, Source

_RESTART = 120
"""Seconds between a config change and the start of the engine that it restarts."""


def annotations(spec: SloFile, *, load_tests: bool = False) -> tuple[dashboard.AnnotationQuery, ...]:
    """The annotations of a dashboard; the step is the scrape interval, so that no sample is skipped.

    A value that is a time lasts as long as the sidecar, so its step is longer: a fleet has many such series.
    """
    step, step_of_times = spell_duration(spec.scrape_interval), "1m"
    # Grafana shows the name of a label that is missing
    named = join_labels(signals.LOAD_RUN, "title", " ", Label.SCENARIO, Label.CONFIGURATION)
    tests = _annotation("Load tests", named, "load test: {{title}}", "run {{run}}", step)
    # the values of this query and the next one are the times in milliseconds, independent of the scrape
    changes = _annotation(
        "Config changes", config_change_query(), "{{setting}}: {{old}} → {{new}}", "on {{engine}}", step_of_times
    ).use_value_for_time(True)
    states = _annotation(
        "Engine states", state_change_query(), "{{engine}}: {{state}}", "{{instance}}", step_of_times
    ).use_value_for_time(True)
    return (
        *([changes] if spec.source is Source.SIDECAR else []),
        _annotation(
            "Engine starts", _engine_starts(), "engine started", "{{engine}}", step_of_times
        ).use_value_for_time(True),
        *([states] if spec.source is Source.SIDECAR else []),
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


def config_change_query() -> Expression:
    """The time of each config change, in unix milliseconds."""
    return select(signals.ENGINE_CONFIG_CHANGE) * 1000


def state_change_query() -> Expression:
    """The time of the last change of each engine's state, in unix milliseconds, with the state."""
    state, changed = select(signals.ENGINE_STATE).binary("==", 1), select(signals.ENGINE_STATE_CHANGED) * 1000
    return state.binary("*", changed, on(*ENGINE_LABELS, left=()))


def _engine_starts() -> Expression:
    """Starts of engines, without those that follow a config change, whose mark they would cover."""
    same, start = on(*ENGINE_LABELS), select(signals.ENGINE_START_TIME)
    near = call("abs", start.binary("-", max_by(signals.ENGINE_CONFIG_CHANGE, ENGINE_LABELS), same)) < _RESTART
    return (start * 1000).unless(near, same)


def _marks(severity: str) -> Expression:
    """A mark where an alert starts to fire, and one where it ends: regions tint the panels during an incident."""
    # the step that Grafana uses, which is longer than the scrape interval over a long time range
    now, before = (
        max_by(
            select(FIRING, Matcher("alertstate", "=", "firing"), equal(Label.SEVERITY, severity), offset=offset),
            [Label.ALERTNAME],
        )
        for offset in ("", "$__interval")
    )
    begins, ends = with_label(now.unless(before), "alertstate", "fires"), before.unless(now)
    return begins.or_(with_label(ends, "alertstate", "ended"))


def _annotation(name: str, expression: Expression, title: str, text: str, step: str) -> dashboard.AnnotationQuery:
    """An event while the query has a value above 0."""
    return (
        dashboard.AnnotationQuery()
        .name(name)
        .datasource(DATASOURCE)
        .enable(True)
        .icon_color(ANNOTATION_COLOURS[name])
        .target(query(expression, "").ref_id("Anno"))
        # older releases of Grafana read the query here, newer ones in `target`
        .expr(expression)  # type: ignore[arg-type] # printed with the dashboard
        .step(step)
        .title_format(title)
        .text_format(text)
    )
