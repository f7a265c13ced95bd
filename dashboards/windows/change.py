"""Variables that select a config change and two equal windows before and after it, without the restart between them.

A rolling change is one change: the window before ends before the first engine changes, the one after begins when the
last changed engine is up again.

PromQL accepts only a literal number after `@`, so each window is a variable over the result of a query.
"""

from dataclasses import dataclass, replace
from typing import TypeVar

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models import dashboard as model

from alerts.promql.build import aggregate, call, either, max_by, on, over, regex, select
from alerts.promql.expression import Expression, Selector, Subquery, Variable
from dashboards.grafana.layout import Variable as BoardVariable
from dashboards.grafana.layout import hidden_variable, result_variable
from dashboards.queries.labels import constant, join_labels
from dashboards.queries.rates import ENGINE_LABELS, RANGE
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label

Vector = TypeVar("Vector", Selector, Subquery)

SETTLE = 30
"""Seconds between the start of the engine and the start of the window after a config change."""

_LONGEST_START = 3600
_LONGEST_OUTAGE = 86400
"""Seconds after and before a config change in which to look for its restart."""

_USUAL_OUTAGE = 3600
"""Seconds before a config change in which the time of its restart is exact to 5 s; before, to a minute."""

_LONGEST_ROLLING = 3600
"""Seconds between the first and the last engine of one rolling change."""

_SAME_ENGINE = on(Label.INSTANCE, Label.ENGINE)
_CHANGED_UP = select(signals.ENGINE_UP, regex(Label.INSTANCE, "$changed"))
_WINDOWS = {"5m": 300, "10m": 600, "30m": 1800, "1h": 3600, "6h": 21600}
_CONFIG_CHANGES = select(signals.ENGINE_CONFIG_CHANGE)
_NOW = call("time")
_CHANGE, _FIRST, _BEFORE, _AFTER, _SPAN = map(Variable, ("$change", "$first", "$before", "$after", "$span"))


@dataclass(frozen=True, slots=True)
class Window:
    """One of the windows: its start and its end, each as a time and an offset."""

    start: tuple[str, str]
    end: tuple[str, str]

    def at_start(self, of: Selector) -> Selector:
        return at(of, *self.start)

    def at_end(self, of: Selector) -> Selector:
        return at(of, *self.end)

    def whole(self, of: Selector) -> Selector:
        return replace(self.at_end(of), window="${length}s")


def at(of: Vector, time: str, offset: str = "") -> Vector:
    """A vector at a time, which is a variable or a function such as `end()`."""
    return replace(of, at=time, offset=offset)


# the same for all engines, so that changed and unchanged ones are compared at the same time
BEFORE = Window(("$before", "${length}s"), ("$before", ""))
AFTER = Window(("$after", ""), ("$after", "-${length}s"))


def changed_engines() -> Expression:
    """The time at which each engine of the selected change got the new setting: a rolling change has several."""
    changes = call("last_over_time", at(replace(_CONFIG_CHANGES, window=RANGE), "end()"))
    same = changes.and_(changes.binary("==", _CHANGE), on(Label.SETTING, Label.OLD, Label.NEW))
    return max_by(same, ENGINE_LABELS) > _CHANGE - _LONGEST_ROLLING


def selected_change() -> Expression:
    """The settings that the selected config change has changed; the value is its time in unix milliseconds."""
    changed = max_by(over("last_over_time", _CONFIG_CHANGES, RANGE), [Label.SETTING, Label.OLD, Label.NEW])
    return changed.binary("==", _CHANGE) * 1000


def spelled(changes: Expression) -> Expression:
    """The label `setting` also has the old and the new value."""
    values = join_labels(changes, Label.NEW, " → ", Label.OLD, Label.NEW)
    return join_labels(values, Label.SETTING, ": ", Label.SETTING, Label.NEW)


def _change_variable() -> dashboard.QueryVariable:
    """The newest first; if there is none, the end of the time range, so that all queries stay valid."""
    in_range = over("last_over_time", _CONFIG_CHANGES, RANGE) > _NOW - Variable("$__range_s")
    newest = call("sort_desc", max_by(spelled(in_range), [Label.SETTING]))
    return (
        _number_variable("change", newest.or_(constant(_NOW, Label.SETTING, "none in the time shown"), on()))
        .label("Change")
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
    return _scalar_variable("first", aggregate("min", changed_engines()).or_(call("vector", _CHANGE)))


def _before_variable() -> dashboard.QueryVariable:
    """The time before the first change, by the longest time for which a changed engine was down before its change."""
    up = (_NOW * _CHANGED_UP.binary("==", 1)).and_(changed_engines() >= _NOW, _SAME_ENGINE)
    last_up = either(
        call("max_over_time", at(Subquery(up, f"{since}s", f"{step}s"), "$change"))
        for since, step in ((_USUAL_OUTAGE, 5), (_LONGEST_OUTAGE, 60))
    )
    down = aggregate("max", changed_engines().binary("-", last_up, _SAME_ENGINE))
    return _scalar_variable("before", call("vector", _FIRST) - _scalar(down, 0))


def _after_variable() -> dashboard.QueryVariable:
    """The time after the last change, by the longest time until a changed engine had been up for `SETTLE`."""
    up = _NOW * over("min_over_time", _CHANGED_UP, f"{SETTLE}s").binary("==", 1)
    up = up.and_(changed_engines() <= _NOW - SETTLE, _SAME_ENGINE)
    after = at(Subquery(up, f"{_LONGEST_START + _LONGEST_ROLLING}s", "5s"), "$change", f"-{_LONGEST_START + SETTLE}s")
    start = aggregate("max", call("min_over_time", after).binary("-", changed_engines(), _SAME_ENGINE))
    return _scalar_variable("after", call("vector", _CHANGE) + _scalar(start, SETTLE))


def _gap_variable(scrape_interval: float) -> dashboard.QueryVariable:
    """The seconds between the last scrape of the window before and the window after; 1 without a config change."""
    gap = call("ceil", _AFTER - _BEFORE + scrape_interval + 0 * aggregate("min", changed_engines()))
    return _scalar_variable("gap", gap.or_(call("vector", 1)))


def _changed_variable() -> dashboard.QueryVariable:
    """The sidecars of the changed engines."""
    sidecars = aggregate("group", changed_engines(), by=[Label.INSTANCE])
    return hidden_variable("changed", sidecars.or_(constant(0, Label.INSTANCE, "none"), on()), Label.INSTANCE)


def _length_variable() -> dashboard.QueryVariable:
    """The selected length, limited by the stored data, the time range and other config changes on both sides."""
    # the range is one step of 5 s longer than the window
    engines = call("vector", _NOW).and_(aggregate("count", signals.ENGINE_UP))
    scraped = call("min_over_time", at(Subquery(engines, "${span}s5000ms", "5s"), "$before"))
    length: Expression = call("vector", _SPAN)
    for limit in (
        _BEFORE - _scalar(scraped, _BEFORE),
        _BEFORE - _scalar(aggregate("max", at(_CONFIG_CHANGES, "$change") < _BEFORE), 0) - SETTLE,
        _scalar(aggregate("min", _CONFIG_CHANGES > _AFTER), _NOW) - _AFTER,
    ):
        length = call("clamp_max", length, limit)
    return _scalar_variable("length", call("floor", call("clamp_min", length, 1)))


def change_variables(scrape_interval: float) -> tuple[BoardVariable, ...]:
    """The variables, each after those that it depends on."""
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


def _scalar(of: Expression, default: Expression | float) -> Expression:
    """A number: the value of the only series, or the default."""
    return call("scalar", of.or_(call("vector", default)))


def _scalar_variable(name: str, expression: Expression) -> dashboard.QueryVariable:
    """VictoriaMetrics returns a scalar as a series without labels."""
    number = _number_variable(name, call("scalar", expression)).regex(r"/^(?:\{\} )?(?<value>\S+)/")
    return number.hide(model.VariableHide.HIDE_VARIABLE)


def _number_variable(name: str, expression: Expression) -> dashboard.QueryVariable:
    return (
        result_variable(name, expression)
        .sort(model.VariableSort.DISABLED)
        .current(model.VariableOption(selected=True, text="1", value="1"))
    )
