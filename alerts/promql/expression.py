"""PromQL expressions: trees of frozen values that print as PromQL.

`==` compares two trees; PromQL's own comparisons are `>`, `<`, `>=`, `<=` and `Expression.binary`. A time or duration
is a text such as `5m`, or a variable of Grafana such as `$__rate_interval`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Literal

from exporters.text.units import number

_ORDER = {1: "or", 2: "and unless", 3: "== != <= < >= >", 4: "+ -", 5: "* / % atan2", 7: "^"}
_PRECEDENCE = {operator: precedence for precedence, operators in _ORDER.items() for operator in operators.split()}
_SIGN, _ATOM = 6, 9


def quote(text: str) -> str:
    """A string literal in double quotes."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


@dataclass(frozen=True, slots=True)
class AlertLabel:
    """The value that a label of the alert has, in a query of an annotation; prints as the verb `%q` of its template."""

    name: str

    def __str__(self) -> str:
        return "%q"


@dataclass(frozen=True, slots=True)
class Matcher:
    """A label matcher; the value may contain variables of Grafana, and is escaped when it is printed."""

    label: str
    operator: Literal["=", "!=", "=~", "!~"]
    value: str | AlertLabel

    def __str__(self) -> str:
        value = quote(self.value) if isinstance(self.value, str) else str(self.value)
        return f"{self.label}{self.operator}{value}"


def _infix(operator: str) -> Callable[[Expression, Expression | float], Binary]:
    return lambda left, right: Binary(operator, left, _operand(right))


def _reflected(operator: str) -> Callable[[Expression, float], Binary]:
    return lambda right, left: Binary(operator, Number(left), right)


class Expression:
    """The base of all expressions: operators, and functions over the tree."""

    __slots__ = ()

    @property
    def precedence(self) -> int:
        return _ATOM

    def binary(self, operator: str, other: Expression | float, matching: Matching | None = None) -> Binary:
        """Any binary operator; only this one and the set operators take a vector matching."""
        return Binary(operator, self, _operand(other), matching)

    __add__ = _infix("+")
    __sub__ = _infix("-")
    __mul__ = _infix("*")
    __truediv__ = _infix("/")
    __mod__ = _infix("%")
    __gt__ = _infix(">")
    __ge__ = _infix(">=")
    __lt__ = _infix("<")
    __le__ = _infix("<=")
    __radd__ = _reflected("+")
    __rsub__ = _reflected("-")
    __rmul__ = _reflected("*")
    __rtruediv__ = _reflected("/")

    def __neg__(self) -> Negative:
        return Negative(self)

    def __bool__(self) -> bool:
        raise TypeError(f"a PromQL expression has no truth value: {self}")

    def and_(self, other: Expression, matching: Matching | None = None) -> Binary:
        return self.binary("and", other, matching)

    def or_(self, other: Expression, matching: Matching | None = None) -> Binary:
        return self.binary("or", other, matching)

    def unless(self, other: Expression, matching: Matching | None = None) -> Binary:
        return self.binary("unless", other, matching)

    def map(self, change: Callable[[Expression], Expression]) -> Expression:
        """This tree with `change` applied to every node, from the leaves to the root."""

        def changed(value: object) -> object:
            if isinstance(value, Expression):
                return value.map(change)
            return tuple(map(changed, value)) if isinstance(value, tuple) else value

        named = {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]
        different = {name: new for name, old in named.items() if (new := changed(old)) != old}
        return change(replace(self, **different) if different else self)  # type: ignore[type-var]

    def walk(self) -> Iterator[Expression]:
        """Every node in the order in which it is printed."""
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            for each in value if isinstance(value, tuple) else (value,):
                if isinstance(each, Expression):
                    yield from each.walk()
        yield self

    def inside(self, precedence: int) -> str:
        """The text as an operand, in parentheses if it binds less tightly than that."""
        return f"({self})" if self.precedence < precedence else str(self)


def _operand(value: Expression | float) -> Expression:
    return value if isinstance(value, Expression) else Number(value)


@dataclass(frozen=True, slots=True)
class Number(Expression):
    value: float

    @property
    def precedence(self) -> int:
        return _SIGN if self.value < 0 else _ATOM

    def __str__(self) -> str:
        return number(self.value)


@dataclass(frozen=True, slots=True)
class Text(Expression):
    """A string literal, as an argument of a function."""

    value: str

    def __str__(self) -> str:
        return quote(self.value)


@dataclass(frozen=True, slots=True)
class Variable(Expression):
    """A variable of Grafana in place of a number or of an expression in parentheses, such as `$__range_s`."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class AlertValue(Expression):
    """The value of the alert, in a query of an annotation; prints as the verb `%f` of its template."""

    def __str__(self) -> str:
        return "%f"


@dataclass(frozen=True, slots=True)
class Selector(Expression):
    """An instant vector selector; with a `window`, a range vector selector."""

    name: str = ""
    matchers: tuple[Matcher, ...] = ()
    window: str = ""
    offset: str = ""
    at: str = ""

    def __str__(self) -> str:
        matchers = f"{{{','.join(map(str, self.matchers))}}}" if self.matchers else ""
        return f"{self.name}{matchers}{f'[{self.window}]' if self.window else ''}{_time(self)}"


@dataclass(frozen=True, slots=True)
class Subquery(Expression):
    """An expression over a range; without a `step`, at the evaluation interval of the server."""

    inner: Expression
    window: str
    step: str = ""
    offset: str = ""
    at: str = ""

    def __str__(self) -> str:
        return f"{self.inner.inside(_ATOM)}[{self.window}:{self.step}]{_time(self)}"


def _time(of: Selector | Subquery) -> str:
    return f"{f' offset {of.offset}' if of.offset else ''}{f' @ {of.at}' if of.at else ''}"


@dataclass(frozen=True, slots=True)
class Call(Expression):
    function: str
    arguments: tuple[Expression, ...] = ()

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(str, self.arguments))})"


@dataclass(frozen=True, slots=True)
class Aggregation(Expression):
    """An aggregation such as `sum by (model) (x)` or `topk(5, x)`; without a clause, over all labels."""

    operator: str
    parameter: Expression | None
    inner: Expression
    clause: Literal["by", "without", ""] = ""
    labels: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.head()}({self.before()}{self.inner})"

    def head(self) -> str:
        """What is before the parenthesis."""
        return f"{self.operator} {self.clause} ({', '.join(self.labels)}) " if self.clause else self.operator

    def before(self) -> str:
        """The parameter, before the aggregated expression."""
        return "" if self.parameter is None else f"{self.parameter}, "


@dataclass(frozen=True, slots=True)
class Matching:
    """A vector matching; `group` names the side with many series, and `included` the labels that it takes over."""

    clause: Literal["on", "ignoring"]
    labels: tuple[str, ...]
    group: Literal["left", "right", ""] = ""
    included: tuple[str, ...] = ()

    def __str__(self) -> str:
        group = f" group_{self.group} ({', '.join(self.included)})" if self.group else ""
        return f" {self.clause} ({', '.join(self.labels)}){group}"


@dataclass(frozen=True, slots=True)
class Binary(Expression):
    operator: str
    left: Expression
    right: Expression
    matching: Matching | None = None
    is_bool: bool = False

    @property
    def precedence(self) -> int:
        return _PRECEDENCE[self.operator]

    def __str__(self) -> str:
        left, right = self.least()
        return f"{self.left.inside(left)} {self.middle()} {self.right.inside(right)}"

    def middle(self) -> str:
        """The operator with its matching."""
        return f"{self.operator}{' bool' if self.is_bool else ''}{self.matching or ''}"

    def least(self) -> tuple[int, int]:
        """The least precedences without parentheses; equal operators group from the left, except `^`."""
        to_right = self.operator == "^"
        return self.precedence + to_right, self.precedence + (not to_right)


@dataclass(frozen=True, slots=True)
class Negative(Expression):
    inner: Expression

    @property
    def precedence(self) -> int:
        return _SIGN

    def __str__(self) -> str:
        return f"-{self.inner.inside(_SIGN)}"
