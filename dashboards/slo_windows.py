"""Selects recorded windows by their part in the rules, so that the queries are the same for every SLO file."""

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as model

from dashboards.label_selectors import select_model_class
from dashboards.layout import Variable, query_variable
from exporters import signals
from exporters.signals import Label, Recorded

_LENGTH = signals.WINDOW_SECONDS.name
PERIOD = f"scalar(max({_LENGTH}))"
"""The period in seconds."""

_PAGE_WINDOWS = 720
"""Long windows of the fast page tier in a period."""

BURN_WINDOW = "$burn_window"


def in_period(series: Recorded) -> str:
    return f"({select_model_class(series)} and on ({Label.WINDOW}) topk(1, {_LENGTH}))"


def in_shortest_window(series: Recorded) -> str:
    return f"({select_model_class(series)} and on ({Label.WINDOW}) bottomk(1, {_LENGTH}))"


def in_page_window(series: Recorded) -> str:
    """The long window of the fast page tier; durations are rounded to milliseconds."""
    return f"({select_model_class(series)} and on ({Label.WINDOW}) bottomk(1, {_distance_to_page_window()}))"


def burn_window_variable() -> Variable:
    """One window; the first option is the long window of the fast page tier."""
    expression = f"sort({_distance_to_page_window()})"
    return (
        query_variable(BURN_WINDOW.removeprefix("$"), f"query_result({expression})")
        .label("Window")
        .regex(rf'/{Label.WINDOW}="(?<value>[^"]*)"/')
        .sort(model.VariableSort.DISABLED)
    )


def class_order_variable(names: tuple[str, ...]) -> Variable:
    """A hidden constant: the place of each class in the SLO file."""
    places = (f'label_replace(vector({index}), "{Label.CLASS}", "{name}", "", "")' for index, name in enumerate(names))
    value = " or ".join(places)
    builder = dashboard.ConstantVariable("class_order").value(value)
    # the builder has no methods for these; a link must not contain the classes of an older SLO file
    variable = builder.build()
    variable.current, variable.skip_url_sync = model.VariableOption(selected=True, text=value, value=value), True
    return builder


def class_order() -> str:
    """The place of each class in the SLO file, by which tables sort their rows."""
    classes = f"group by ({Label.CLASS}) ({select_model_class(signals.IN_FLIGHT)})"
    return f"{classes} * on ({Label.CLASS}) ($class_order)"


def _distance_to_page_window() -> str:
    return f"abs({_LENGTH} - scalar(max({_LENGTH})) / {_PAGE_WINDOWS})"
