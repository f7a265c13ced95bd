"""Variables that select a config change and two equal windows, before and after it; the restart between is left out.

PromQL accepts only a literal number after `@`, so the windows are variables of the dashboard, each the result of a
query that refers to earlier ones.
"""

from collections.abc import Callable
from dataclasses import dataclass

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as model

from alerts.promql import max_by
from dashboards.style import DATASOURCE
from exporters import signals
from exporters.signals import Label

SETTLE = 30
"""Seconds for which an engine must be up before it counts as settled; the window after a config change begins then."""

_LONGEST_START = 3600
_LONGEST_OUTAGE = 86400
"""Seconds after and before a config change in which its restart is searched."""

_WINDOWS = {"5m": 300, "10m": 600, "30m": 1800, "1h": 3600, "6h": 21600}
_CONFIG_CHANGES = signals.ENGINE_CONFIG_CHANGE.name
_CHANGES_IN_RANGE = f"last_over_time({_CONFIG_CHANGES}[$__range]) > (time() - $__range_s)"


@dataclass(frozen=True, slots=True)
class Window:
    """One of the windows as PromQL modifiers: of its start, its end, and its whole length."""

    start: str
    end: str

    @property
    def whole(self) -> str:
        return f"[${{length}}s] {self.end}"


BEFORE = Window("@ $before offset ${length}s", "@ $before")
AFTER = Window("@ $after", "@ $after offset -${length}s")


def selected_change() -> str:
    """Every setting that changed in the selected config change, and its time in unix milliseconds."""
    changed = max_by(f"last_over_time({_CONFIG_CHANGES}[$__range])", [Label.SETTING, Label.OLD, Label.NEW])
    return f"({changed} == $change) * 1000"


def _change_variable() -> dashboard.QueryVariable:
    """The newest first; without one, the end of the time range, so that all queries stay valid."""
    labelled = f'label_join({_CHANGES_IN_RANGE}, "{Label.NEW}", " → ", "{Label.OLD}", "{Label.NEW}")'
    labelled = f'label_join({labelled}, "{Label.SETTING}", ": ", "{Label.SETTING}", "{Label.NEW}")'
    no_change = f'label_replace(vector(time()), "{Label.SETTING}", "none in the time shown", "", "")'
    return (
        _query_result_variable("change", f"sort_desc(max by ({Label.SETTING}) ({labelled})) or on () {no_change}")
        .label("Config change")
        .regex(rf'/{Label.SETTING}="(?<text>.*)"\}} (?<value>\S+)/')
    )


def _window_variable() -> dashboard.CustomVariable:
    return (
        dashboard.CustomVariable("span")
        .label("Window")
        .values(",".join(f"{text} : {seconds}" for text, seconds in _WINDOWS.items()))
        .current(model.VariableOption(selected=True, text="10m", value=str(_WINDOWS["10m"])))
    )


def _before_variable() -> dashboard.QueryVariable:
    """When an engine was last up before the config change: a restart begins before the new process does."""
    answers = f"vector(time()) and max({signals.ENGINE_UP.name}) == 1"
    return _scalar_variable("before", f"max_over_time(({answers})[{_LONGEST_OUTAGE}s:5s] @ $change) or vector($change)")


def _after_variable() -> dashboard.QueryVariable:
    """When an engine had been up for `SETTLE` after the config change."""
    settled = f"vector(time()) and max(min_over_time({signals.ENGINE_UP.name}[{SETTLE}s])) == 1"
    window = f"[{_LONGEST_START}s:5s] @ $change offset -{_LONGEST_START + SETTLE}s"
    return _scalar_variable("after", f"min_over_time(({settled}){window}) or vector($change + {SETTLE})")


def _length_variable() -> dashboard.QueryVariable:
    """The selected length, cut to what the records, the time shown and other config changes leave on both sides."""
    scraped = f"(vector(time()) and count({signals.ENGINE_UP.name}))[${{span}}s5000ms:5s]"  # 5 s are one step
    room = "vector($span)"
    for limit in (
        f"$before - scalar(min_over_time({scraped} @ $before) or vector($before))",
        f"$before - scalar(max({_CONFIG_CHANGES} @ $change < $before) or vector(0)) - {SETTLE}",
        f"scalar(min({_CONFIG_CHANGES} > $after) or vector(time())) - $after",
    ):
        room = f"clamp_max({room}, {limit})"
    return _scalar_variable("length", f"floor(clamp_min({room}, 1))")


VARIABLES: tuple[Callable[[], dashboard.QueryVariable | dashboard.CustomVariable], ...] = (
    _change_variable,
    _window_variable,
    _before_variable,
    _after_variable,
    _length_variable,
)


def _scalar_variable(name: str, expression: str) -> dashboard.QueryVariable:
    return _query_result_variable(name, f"scalar({expression})").hide(model.VariableHide.HIDE_VARIABLE)


def _query_result_variable(name: str, expression: str) -> dashboard.QueryVariable:
    """A variable over the result of a query, which replaces the value in the file."""
    query = f"query_result({expression})"
    return (
        dashboard.QueryVariable(name)
        .datasource(DATASOURCE)
        .query({"qryType": 5, "query": query, "refId": f"Variable-{name}"})  # 5: a classic query, as text
        .definition(query)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.DISABLED)
        .current(model.VariableOption(selected=True, text="1", value="1"))
    )
