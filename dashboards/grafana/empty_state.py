"""What a panel without data says: the series that is missing, because the cause is not known."""

from grafana_foundation_sdk.models import dashboard as model

from alerts.promql.expression import Binary, Expression, Selector
from dashboards.grafana.style import absence
from dashboards.live.reader import MAY_BE_EMPTY

NO_VALUE = "no value"
"""The text of a stat or a bar, which are too narrow for the name of a series: the description has it."""

_ON_A_PHONE = 38
_LONGEST = {width: 4 * width - 1 for width in range(1, 10)}
"""The characters of the longest series that fits a panel of this width: Grafana clips longer words."""

_MAY_BE_WITHOUT_RESULT = frozenset({">", ">=", "<", "<=", "==", "!=", "and", "unless", "/"})
"""A comparison or a division may have no result although its series exist."""


def state_empty(panel: model.Panel) -> None:
    """Set the text of a panel without data; if the series to query does not fit, the description ends with it."""
    query = getattr(panel.targets[0], "expr", None) if panel.targets else None
    if not isinstance(query, Expression) or panel.field_config is None or panel.grid_pos is None:
        return
    series = _first_series(query)
    defaults = panel.field_config.defaults
    operators = {node.operator for node in query.walk() if isinstance(node, Binary)}
    what = "result" if operators & _MAY_BE_WITHOUT_RESULT else "series"
    scale = getattr(defaults.custom, "scale_distribution", None)
    if panel.type_val in {"stat", "bargauge"}:
        defaults.no_value = NO_VALUE
        others = [each for each in defaults.mappings or [] if not isinstance(each, model.SpecialValueMap)]
        defaults.mappings = [*others, absence(NO_VALUE)]
    elif scale is not None and scale.type_val != "linear":
        # Grafana 10 prints the text at each tick of a logarithmic axis without a label
        pass
    elif len(series) <= _LONGEST.get(panel.grid_pos.w, _ON_A_PHONE):
        defaults.no_value = f"no {'result from' if what == 'result' else what} {series} for this selection"
        return
    else:
        defaults.no_value = f"no {what} for this selection; the description has its series"
    text, separator, reason = (panel.description or "").partition(f" {MAY_BE_EMPTY}")
    panel.description = f"{text} Series: {series}.{separator}{reason}"


def _first_series(query: Expression) -> str:
    """The name of the series of the first selector."""
    first = next(node for node in query.walk() if isinstance(node, Selector))
    names = (str(each.value) for each in first.matchers if each.label == "__name__")
    return first.name or next(names).replace("[:_]", ":")
