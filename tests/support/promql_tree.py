"""Reads PromQL with promql-parser, as nested tuples without parentheses, so that two texts can be compared."""

from functools import cache
from typing import Any

import promql_parser as parser

Tree = tuple[object, ...]

Selected = tuple[str, tuple[tuple[str, str], ...]]
"""The name of the series of a selector, `__name__` without one, and the labels that it requires to be equal."""


def tree(promql: str) -> Tree:
    """The syntax tree. Its matchers are sorted, as their order has no meaning.

    Raises:
        ValueError: the text is not PromQL.
    """
    return _tree(parser.parse(promql))


@cache
def selected(promql: str) -> frozenset[Selected]:
    """The selectors of a query."""
    found = set[Selected]()

    def visit(node: Any) -> None:
        if isinstance(node, parser.VectorSelector):
            equal = sorted(
                (each.name, each.value) for each in node.matchers.matchers if each.op == parser.MatchOp.Equal
            )
            found.add((node.name or "__name__", tuple(equal)))

    parser.walk(parser.parse(promql), visit)
    return frozenset(found)


def _tree(node: Any) -> Tree:
    match node:
        case parser.ParenExpr():
            return _tree(node.expr)
        case parser.NumberLiteral() | parser.StringLiteral():
            return (node.val,)
        case parser.UnaryExpr():
            inner = _tree(node.expr)
            # As the parser does for a number without parentheses.
            return (-inner[0],) if isinstance(inner[0], float) else ("-", inner)
        case parser.VectorSelector():
            matchers = sorted((each.name, str(each.op), each.value) for each in node.matchers.matchers)
            return (node.name, *matchers, node.offset, _at(node.at))
        case parser.MatrixSelector():
            return ("range", _tree(node.vector_selector), node.range)
        case parser.SubqueryExpr():
            return ("subquery", _tree(node.expr), node.range, node.step, node.offset, _at(node.at))
        case parser.Call():
            return (node.func.name, *map(_tree, node.args))
        case parser.AggregateExpr():
            parameter = None if node.param is None else _tree(node.param)
            by = None if node.modifier is None else (str(node.modifier.type), *node.modifier.labels)
            return (str(node.op), by, parameter, _tree(node.expr))
        case parser.BinaryExpr():
            return (str(node.op), _modifier(node.modifier), _tree(node.lhs), _tree(node.rhs))
        case _:
            raise TypeError(f"no node of PromQL: {node!r}")


def _at(at: Any) -> Tree | None:
    return None if at is None else (str(at.type), at.at)


def _modifier(modifier: Any) -> Tree | None:
    if modifier is None:
        return None
    matching = modifier.matching
    on = None if matching is None else (str(matching.type), *matching.labels)
    return (str(modifier.card), on, modifier.return_bool, *(modifier.group_labels or ()))
