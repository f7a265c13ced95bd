"""Changes PromQL expressions: functions from tree to tree."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from alerts.promql.expression import Expression, Matcher, Selector


def map_selectors(expression: Expression, change: Callable[[Selector], Expression]) -> Expression:
    return expression.map(lambda node: change(node) if isinstance(node, Selector) else node)


def with_matchers(expression: Expression, matchers: Iterable[Matcher], without: Collection[str] = ()) -> Expression:
    """Adds the matchers to every selector, except those of the series named in `without`."""
    added = tuple(matchers)
    return map_selectors(
        expression, lambda of: of if of.name in without else replace(of, matchers=(*added, *of.matchers))
    )
