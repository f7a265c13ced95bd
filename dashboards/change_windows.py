"""A flip to choose, and two equal windows on its sides; what lies between them is left out.

PromQL takes only a literal number after `@`, so the windows are variables of the dashboard: each is the answer to a
query that names those before it.
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
"""Seconds for which an engine has to answer before it counts as settled; what is compared after a flip begins then."""

_LONGEST_START = 3600
_LONGEST_OUTAGE = 86400
"""Seconds after and before a flip in which its restart is looked for."""

_SPANS = {"5m": 300, "10m": 600, "30m": 1800, "1h": 3600, "6h": 21600}
_FLIPS = signals.ENGINE_CONFIG_CHANGE.name
_IN_RANGE = f"last_over_time({_FLIPS}[$__range]) > (time() - $__range_s)"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the windows, as what follows a selector: its start, its end, and all of it."""

    start: str
    end: str

    @property
    def whole(self) -> str:
        return f"[${{length}}s] {self.end}"


BEFORE = Side("@ $before offset ${length}s", "@ $before")
AFTER = Side("@ $after", "@ $after offset -${length}s")


def chosen_flip() -> str:
    """Every setting that changed with the chosen flip: the time of it, in unix milliseconds."""
    changed = max_by(f"last_over_time({_FLIPS}[$__range])", [Label.SETTING, Label.OLD, Label.NEW])
    return f"({changed} == $flip) * 1000"


def _choose_flip() -> dashboard.QueryVariable:
    """The newest first; without one, the end of the time shown, so that no query is broken."""
    told = f'label_join({_IN_RANGE}, "{Label.NEW}", " → ", "{Label.OLD}", "{Label.NEW}")'
    told = f'label_join({told}, "{Label.SETTING}", ": ", "{Label.SETTING}", "{Label.NEW}")'
    none = f'label_replace(vector(time()), "{Label.SETTING}", "none in the time shown", "", "")'
    return (
        _answer("flip", f"sort_desc(max by ({Label.SETTING}) ({told})) or on () {none}")
        .label("Flip")
        .regex(rf'/{Label.SETTING}="(?<text>.*)"\}} (?<value>\S+)/')
    )


def _choose_span() -> dashboard.CustomVariable:
    return (
        dashboard.CustomVariable("span")
        .label("Window")
        .values(",".join(f"{text} : {seconds}" for text, seconds in _SPANS.items()))
        .current(model.VariableOption(selected=True, text="10m", value=str(_SPANS["10m"])))
    )


def _before() -> dashboard.QueryVariable:
    """When an engine last answered before the flip: a restart begins before the new process does."""
    answers = f"vector(time()) and max({signals.ENGINE_UP.name}) == 1"
    return _number("before", f"max_over_time(({answers})[{_LONGEST_OUTAGE}s:5s] @ $flip) or vector($flip)")


def _after() -> dashboard.QueryVariable:
    """When an engine first had answered for long enough after it."""
    settled = f"vector(time()) and max(min_over_time({signals.ENGINE_UP.name}[{SETTLE}s])) == 1"
    window = f"[{_LONGEST_START}s:5s] @ $flip offset -{_LONGEST_START + SETTLE}s"
    return _number("after", f"min_over_time(({settled}){window}) or vector($flip + {SETTLE})")


def _length() -> dashboard.QueryVariable:
    """As long as asked for, but as short as the records, the time shown, and other flips leave room on both sides."""
    scraped = f"(vector(time()) and count({signals.ENGINE_UP.name}))[${{span}}s5000ms:5s]"  # and 5 s: a step more
    room = "vector($span)"
    for limit in (
        f"$before - scalar(min_over_time({scraped} @ $before) or vector($before))",
        f"$before - scalar(max({_FLIPS} @ $flip < $before) or vector(0)) - {SETTLE}",
        f"scalar(min({_FLIPS} > $after) or vector(time())) - $after",
    ):
        room = f"clamp_max({room}, {limit})"
    return _number("length", f"floor(clamp_min({room}, 1))")


VARIABLES: tuple[Callable[[], dashboard.QueryVariable | dashboard.CustomVariable], ...] = (
    _choose_flip,
    _choose_span,
    _before,
    _after,
    _length,
)


def _number(name: str, expression: str) -> dashboard.QueryVariable:
    return _answer(name, f"scalar({expression})").hide(model.VariableHide.HIDE_VARIABLE)


def _answer(name: str, expression: str) -> dashboard.QueryVariable:
    """A variable over the answer to a query; the value in the file stands only until that has come."""
    asked = f"query_result({expression})"
    return (
        dashboard.QueryVariable(name)
        .datasource(DATASOURCE)
        .query({"qryType": 5, "query": asked, "refId": f"Variable-{name}"})  # 5: a classic query, kept as text
        .definition(asked)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.DISABLED)
        .current(model.VariableOption(selected=True, text="1", value="1"))
    )
