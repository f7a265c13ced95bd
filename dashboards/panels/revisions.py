"""Panels on configurations: what each revision of the engine's settings did for the SLOs."""

from grafana_foundation_sdk.builders import table
from grafana_foundation_sdk.models import units

from alerts.promql.build import aggregate, call, count_by, increase, max_by, min_by, on, over, ratio, sum_by
from alerts.promql.expression import Expression
from dashboards.grafana import style, tables
from dashboards.grafana.style import BAD, GOOD, NO_TRAFFIC
from dashboards.queries.labels import join_labels
from dashboards.queries.rates import RANGE, RATE
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label, Signal
from exporters.vocabulary.slo_file import Slo, SloFile


def attainment(spec: SloFile) -> table.Panel:
    text = (
        "Share of good events under each configuration: a row per revision, the newest first, and a column per SLO "
        "and class. Times without an engine, and times in which a sidecar saw two revisions, are "
        "excluded. Good: at or above the objective (green). From the sidecars' counters."
    )
    panel = style.table_panel("Attainment by revision", text, units.PercentUnit, 24, 7, may_be_empty=NO_TRAFFIC)
    for column, slo in _columns(spec).items():
        panel.override_by_name(column, tables.threshold_colours(BAD, (slo.objective, GOOD)))
    bad, all_events = (_while_active(counter) for counter in (signals.SLO_BAD, signals.SLO_EVENTS))
    return _by_revision(panel.decimals(1), 1 - ratio(bad, all_events), spec)


def events(spec: SloFile) -> table.Panel:
    text = (
        "SLO events under each configuration, of which the other table shows the share of good ones. Good: hundreds; "
        "shares of few events vary by chance. From the sidecars' counters."
    )
    panel = style.table_panel("Events by revision", text, style.COUNT, 24, 7, may_be_empty=NO_TRAFFIC)
    return _by_revision(panel.decimals(0), _while_active(signals.SLO_EVENTS), spec)


def _by_revision(panel: table.Panel, values: Expression, spec: SloFile) -> table.Panel:
    joined = values.binary("*", _start_of_revision(), on(Label.REVISION, left=[Label.VALUE]))
    column_names = join_labels(joined, Label.CLASS, " ", Label.SLO, Label.CLASS)
    # a phone scrolls to the side
    return tables.pivot(
        panel.min_width(100),
        column_names,
        Label.REVISION,
        Label.CLASS,
        order=tuple(_columns(spec)),
        first_by=Label.VALUE,
    )


def _columns(spec: SloFile) -> dict[str, Slo]:
    return {f"{slo.name} {name}": slo for slo in spec.slos for name in slo.classes}


def _while_active(counter: Signal) -> Expression:
    """The increase over the time range by revision; counts intervals in which an engine was up with one revision."""
    same, sidecar = on(Label.INSTANCE), [Label.INSTANCE]
    reported = over("count_over_time", signals.ENGINE_CONFIG_INFO, RATE)
    revisions = aggregate("group", reported, by=[Label.INSTANCE, Label.REVISION])
    single = count_by(revisions, sidecar).binary("==", 1)
    up = max_by(over("min_over_time", signals.ENGINE_UP, RATE), sidecar).binary("==", 1)
    growth = sum_by(increase(counter, RATE), (Label.INSTANCE, Label.CLASS, Label.SLO))
    active = revisions.and_(single, same).and_(up, same)
    joined = growth.binary("*", active, on(Label.INSTANCE, left=[Label.REVISION]))
    return sum_by(over("sum_over_time", joined, RANGE, RATE), (Label.CLASS, Label.SLO, Label.REVISION))


def _start_of_revision() -> Expression:
    """Unix time as the label `value`, to sort by; the start of the range for an older revision."""
    start = over("min_over_time", call("timestamp", signals.ENGINE_CONFIG_INFO), RANGE, RATE)
    return aggregate("count_values", min_by(start, [Label.REVISION]), by=[Label.REVISION], parameter=Label.VALUE)
