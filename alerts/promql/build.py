"""Makes PromQL expressions from the series in `exporters.vocabulary.signals`.

A window is seconds, or a text such as `$__range`.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import reduce
from typing import Literal

from alerts.promql.expression import (
    Aggregation,
    AlertLabel,
    Binary,
    Call,
    Expression,
    Matcher,
    Matching,
    Number,
    Selector,
    Subquery,
    Text,
)
from exporters.text.units import spell_duration
from exporters.vocabulary.signals import ENGINE_MODEL, Label, Recorded, Signal

Series = Signal | Recorded
Window = float | str


def select(series: Series | str, *matchers: Matcher, window: Window = "", offset: Window = "") -> Selector:
    """A selector; the series of a histogram and those of other programs are given by name."""
    name = series if isinstance(series, str) else series.name
    return Selector(name, matchers, duration(window), duration(offset))


def equal(label: str, value: str | AlertLabel) -> Matcher:
    return Matcher(label, "=", value)


def not_equal(label: str, value: str | AlertLabel) -> Matcher:
    return Matcher(label, "!=", value)


def regex(label: str, pattern: str) -> Matcher:
    return Matcher(label, "=~", pattern)


def not_regex(label: str, pattern: str) -> Matcher:
    return Matcher(label, "!~", pattern)


def in_window(series: Recorded, window: Window, *matchers: Matcher) -> Selector:
    """A recorded series in one window."""
    return select(series, *matchers, equal(Label.WINDOW, duration(window)))


def within(series: Recorded, slo: str, window: Window) -> Selector:
    """A recorded series of one SLO in one window."""
    return in_window(series, window, equal(Label.SLO, slo))


def duration(window: Window) -> str:
    """The text of a duration in seconds."""
    return window if isinstance(window, str) else spell_duration(window)


def vector(of: Expression | Series) -> Expression:
    """A series as its selector; an expression as it is."""
    return of if isinstance(of, Expression) else select(of)


def call(function: str, *arguments: Expression | Series | float | str) -> Call:
    """A function; a text is a string literal, and a series its selector."""
    return Call(function, tuple(map(_argument, arguments)))


def _argument(value: Expression | Series | float | str) -> Expression:
    match value:
        case str():
            return Text(value)
        case int() | float():
            return Number(value)
        case _:
            return vector(value)


def ranged(of: Expression | Series, window: Window, step: Window = "", *, offset: Window = "") -> Selector | Subquery:
    """A range vector: the samples of a selector, or a subquery of another expression."""
    inner = vector(of)
    if isinstance(inner, Selector) and not step:
        return replace(inner, window=duration(window), offset=duration(offset) or inner.offset)
    return Subquery(inner, duration(window), duration(step), duration(offset))


def ago(of: Selector, offset: Window) -> Selector:
    """The selector with an offset."""
    return replace(of, offset=duration(offset))


def over(function: str, of: Expression | Series, window: Window, step: Window = "", *, offset: Window = "") -> Call:
    """A function of a range vector, such as `max_over_time` or `changes`."""
    return call(function, ranged(of, window, step, offset=offset))


def rate(of: Expression | Series, window: Window) -> Call:
    return over("rate", of, window)


def increase(of: Expression | Series, window: Window) -> Call:
    return over("increase", of, window)


def rises(of: Expression | Series, window: Window, step: Window) -> Call:
    """How often a gauge rose, by its values at each `step`.

    `changes()` of MetricsQL counts a first sample too; `resets()` counts alike in Prometheus and VictoriaMetrics.
    """
    return over("resets", -vector(of), window, step)


def aggregate(
    operator: str,
    of: Expression | Series,
    *,
    by: Iterable[str] | None = None,
    without: Iterable[str] | None = None,
    parameter: Expression | float | str | None = None,
) -> Aggregation:
    """An aggregation such as `sum`, or `topk` with its parameter; without a clause, one series of everything."""
    clause: Literal["by", "without", ""] = "by" if by is not None else "without" if without is not None else ""
    argument = None if parameter is None else _argument(parameter)
    return Aggregation(operator, argument, vector(of), clause, tuple(map(str, by or without or ())))


def sum_by(of: Expression | Series, labels: Iterable[str]) -> Aggregation:
    return aggregate("sum", of, by=labels)


def max_by(of: Expression | Series, labels: Iterable[str]) -> Aggregation:
    return aggregate("max", of, by=labels)


def min_by(of: Expression | Series, labels: Iterable[str]) -> Aggregation:
    return aggregate("min", of, by=labels)


def count_by(of: Expression | Series, labels: Iterable[str]) -> Aggregation:
    return aggregate("count", of, by=labels)


def on(*labels: str, left: Iterable[str] | None = None, right: Iterable[str] | None = None) -> Matching:
    """Matches on these labels. With `left` or `right`, that side may have many series, which take these labels."""
    group: Literal["left", "right", ""] = "left" if left is not None else "right" if right is not None else ""
    return Matching("on", tuple(map(str, labels)), group, tuple(map(str, left or right or ())))


def ignoring(*labels: str) -> Matching:
    return Matching("ignoring", tuple(map(str, labels)))


def either(expressions: Iterable[Expression], matching: Matching | None = None) -> Expression:
    """The expressions, joined by `or`."""
    return reduce(lambda left, right: Binary("or", left, right, matching), expressions)


def ratio(part: Expression | Series, whole: Expression | Series) -> Binary:
    """The ratio, absent instead of NaN if the whole is 0."""
    return vector(part) / (vector(whole) > 0)


def quantile(q: float, histogram: Signal, window: Window, by: Iterable[str], where: Iterable[Matcher] = ()) -> Call:
    """The `q` quantile of a classic histogram over `window`."""
    buckets = rate(select(histogram.bucket, *where), window)
    return call("histogram_quantile", q, sum_by(buckets, (*by, "le")))


def with_model(expression: Expression) -> Expression:
    """Adds the models of engines with the same labels; a series without such an engine keeps its labels."""
    labels = Label.INSTANCE, Label.ENGINE
    return select(ENGINE_MODEL).binary("*", expression, on(*labels, left=())).or_(expression, on(*labels))
