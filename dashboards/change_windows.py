"""Variables that select a config change and two equal windows before and after it, without the restart between them.

A rolling change is one change: the window before ends before the first engine changes, the one after begins when the
last changed engine is up again.

PromQL accepts only a literal number after `@`, so each window is a variable over the result of a query.
"""

from dataclasses import dataclass

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as model

from alerts.promql_text import max_by, select
from dashboards.layout import Variable, query_variable
from exporters import signals
from exporters.signals import Label

SETTLE = 30
"""Seconds between the start of the engine and the start of the window after a config change."""

_LONGEST_START = 3600
_LONGEST_OUTAGE = 86400
"""Seconds after and before a config change in which to look for its restart."""

_USUAL_OUTAGE = 3600
"""Seconds before a config change in which the time of its restart is exact to 5 s; before, to a minute."""

_LONGEST_ROLLING = 3600
"""Seconds between the first and the last engine of one rolling change."""

_ON_ENGINE = f"on ({Label.INSTANCE}, {Label.ENGINE})"
_CHANGED_UP = select(signals.ENGINE_UP, {Label.INSTANCE: "$changed"}, regex=True)
_WINDOWS = {"5m": 300, "10m": 600, "30m": 1800, "1h": 3600, "6h": 21600}
_CONFIG_CHANGES = signals.ENGINE_CONFIG_CHANGE.name
_CHANGES_IN_RANGE = f"last_over_time({_CONFIG_CHANGES}[$__range]) > (time() - $__range_s)"


@dataclass(frozen=True, slots=True)
class Window:
    """One of the windows, as PromQL modifiers for its start, its end, and its whole length."""

    start: str
    end: str

    @property
    def whole(self) -> str:
        return f"[${{length}}s] {self.end}"


# the same for all engines, so that changed and unchanged ones are compared at the same time
BEFORE = Window("@ $before offset ${length}s", "@ $before")
AFTER = Window("@ $after", "@ $after offset -${length}s")


def changed_engines() -> str:
    """The time at which each engine of the selected change got the new setting: a rolling change has several."""
    changes = f"last_over_time({_CONFIG_CHANGES}[$__range] @ end())"
    same = f"{changes} and on ({Label.SETTING}, {Label.OLD}, {Label.NEW}) ({changes} == $change)"
    return f"(max by ({Label.INSTANCE}, {Label.ENGINE}) ({same}) > $change - {_LONGEST_ROLLING})"


def selected_change() -> str:
    """The settings that the selected config change has changed; the value is its time in unix milliseconds."""
    changed = max_by(f"last_over_time({_CONFIG_CHANGES}[$__range])", [Label.SETTING, Label.OLD, Label.NEW])
    return f"({changed} == $change) * 1000"


def _change_variable() -> dashboard.QueryVariable:
    """The newest first; if there is none, the end of the time range, so that all queries stay valid."""
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


def _first_variable() -> dashboard.QueryVariable:
    """The time at which the first engine changed; `change` is that of the last one."""
    return _scalar_variable("first", f"min({changed_engines()}) or vector($change)")


def _before_variable() -> dashboard.QueryVariable:
    """Before the first change, by the longest time for which a changed engine was down before its change."""
    up = f"time() * ({_CHANGED_UP} == 1) and {_ON_ENGINE} ({changed_engines()} >= time())"
    last_up = " or ".join(
        f"max_over_time(({up})[{since}s:{step}s] @ $change)"
        for since, step in ((_USUAL_OUTAGE, 5), (_LONGEST_OUTAGE, 60))
    )
    down = f"max({changed_engines()} - {_ON_ENGINE} ({last_up}))"
    return _scalar_variable("before", f"vector($first) - scalar({down} or vector(0))")


def _after_variable() -> dashboard.QueryVariable:
    """After the last change, by the longest time until a changed engine had been up for `SETTLE`."""
    up = f"time() * (min_over_time({_CHANGED_UP}[{SETTLE}s]) == 1)"
    up = f"{up} and {_ON_ENGINE} ({changed_engines()} <= time() - {SETTLE})"
    window = f"[{_LONGEST_START + _LONGEST_ROLLING}s:5s] @ $change offset -{_LONGEST_START + SETTLE}s"
    start = f"max(min_over_time(({up}){window}) - {_ON_ENGINE} {changed_engines()})"
    return _scalar_variable("after", f"vector($change) + scalar({start} or vector({SETTLE}))")


def _gap_variable(scrape_interval: float) -> dashboard.QueryVariable:
    """The seconds between the last scrape of the window before and the window after; 1 without a config change."""
    gap = f"ceil($after - $before + {scrape_interval:g} + 0 * min({changed_engines()}))"
    return _scalar_variable("gap", f"{gap} or vector(1)")


def _changed_variable() -> dashboard.QueryVariable:
    """The sidecars of the changed engines."""
    none = f'label_replace(vector(0), "{Label.INSTANCE}", "none", "", "")'
    return (
        query_variable("changed", f"query_result(group by ({Label.INSTANCE}) ({changed_engines()}) or on () {none})")
        .regex(rf'/{Label.INSTANCE}="(?<value>[^"]*)"/')
        .sort(model.VariableSort.NATURAL_ASC)
        .hide(model.VariableHide.HIDE_VARIABLE)
        .multi(True)
        .include_all(True)
        .current(model.VariableOption(selected=True, text=["All"], value=["$__all"]))
    )


def _length_variable() -> dashboard.QueryVariable:
    """The selected length, limited by the stored data, the time range and other config changes on both sides."""
    # the range is one step of 5 s longer than the window
    scraped = f"(vector(time()) and count({signals.ENGINE_UP.name}))[${{span}}s5000ms:5s]"
    length = "vector($span)"
    for limit in (
        f"$before - scalar(min_over_time({scraped} @ $before) or vector($before))",
        f"$before - scalar(max({_CONFIG_CHANGES} @ $change < $before) or vector(0)) - {SETTLE}",
        f"scalar(min({_CONFIG_CHANGES} > $after) or vector(time())) - $after",
    ):
        length = f"clamp_max({length}, {limit})"
    return _scalar_variable("length", f"floor(clamp_min({length}, 1))")


def change_variables(scrape_interval: float) -> tuple[Variable, ...]:
    """In the order of their dependence."""
    return (
        _change_variable(),
        _window_variable(),
        _first_variable(),
        _changed_variable(),
        _before_variable(),
        _after_variable(),
        _length_variable(),
        _gap_variable(scrape_interval),
    )


def _scalar_variable(name: str, expression: str) -> dashboard.QueryVariable:
    return _query_result_variable(name, f"scalar({expression})").hide(model.VariableHide.HIDE_VARIABLE)


def _query_result_variable(name: str, expression: str) -> dashboard.QueryVariable:
    return (
        query_variable(name, f"query_result({expression})")
        .sort(model.VariableSort.DISABLED)
        .current(model.VariableOption(selected=True, text="1", value="1"))
    )
