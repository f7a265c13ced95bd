"""Selects recorded windows by their part in the rules, so that the queries are the same for every SLO file."""

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as model

from alerts.promql.build import aggregate, call, either, on, select
from alerts.promql.expression import Expression, Variable
from dashboards.grafana.layout import Variable as BoardVariable
from dashboards.grafana.layout import result_variable
from dashboards.queries.labels import constant
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label, Recorded

_LENGTH = select(signals.WINDOW_SECONDS)
PERIOD = call("scalar", aggregate("max", _LENGTH))
"""The period in seconds."""

_PAGE_WINDOWS = 720
"""Long windows of the fast page tier in a period."""

_DISTANCE_TO_PAGE_WINDOW = call("abs", _LENGTH - PERIOD / _PAGE_WINDOWS)
"""Durations are rounded to milliseconds."""

BURN_WINDOW = "$burn_window"


def in_period(series: Recorded) -> Expression:
    return _in(series, aggregate("topk", _LENGTH, parameter=1))


def in_shortest_window(series: Recorded) -> Expression:
    return _in(series, aggregate("bottomk", _LENGTH, parameter=1))


def in_page_window(series: Recorded) -> Expression:
    """The long window of the fast page tier."""
    return _in(series, aggregate("bottomk", _DISTANCE_TO_PAGE_WINDOW, parameter=1))


def _in(series: Recorded, window: Expression) -> Expression:
    return select(series).and_(window, on(Label.WINDOW))


def burn_window_variable() -> BoardVariable:
    """One window; the first option is the long window of the fast page tier."""
    return (
        result_variable(BURN_WINDOW.removeprefix("$"), call("sort", _DISTANCE_TO_PAGE_WINDOW))
        .label("Window")
        .regex(rf'/{Label.WINDOW}="(?<value>[^"]*)"/')
        .sort(model.VariableSort.DISABLED)
    )


def class_order_variable(names: tuple[str, ...]) -> BoardVariable:
    """A hidden constant: the place of each class in the SLO file."""
    return hidden_constant(
        "class_order", str(either(constant(index, Label.CLASS, name) for index, name in enumerate(names)))
    )


def hidden_constant(name: str, value: str) -> BoardVariable:
    """What a query needs from the SLO file, so that it is the same for every file."""
    builder = dashboard.ConstantVariable(name).value(value)
    # the builder has no methods for these; a link must not contain the value of an older SLO file
    variable = builder.build()
    variable.current, variable.skip_url_sync = model.VariableOption(selected=True, text=value, value=value), True
    return builder


def class_order() -> Expression:
    """The place of each class in the SLO file, by which tables sort their rows."""
    classes = aggregate("group", signals.IN_FLIGHT, by=[Label.CLASS])
    return classes.binary("*", Variable("($class_order)"), on(Label.CLASS))
