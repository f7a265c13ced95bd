"""Prints long PromQL expressions on several lines, for readers of a rule file."""

from alerts.promql.expression import Aggregation, Binary, Call, Expression

_WIDTH = 100
_SHORT = 24
"""Longer right sides of comparisons and sums begin a line."""
_SET, _SUM = 2, 4
"""The precedence of `and` and of `+`."""


def multiline(expression: Expression, indent: int = 0) -> str:
    """The text, in lines of about 100 characters; the first line is not indented."""
    text, pad = str(expression), " " * indent
    if len(text) <= _WIDTH - indent:
        return text
    match expression:
        case Binary():
            left, right = (
                _operand(side, least, indent)
                for side, least in zip((expression.left, expression.right), expression.least(), strict=True)
            )
            begins = expression.precedence <= _SET or (expression.precedence <= _SUM and len(right) > _SHORT)
            return f"{left}{chr(10) + pad if begins else ' '}{expression.middle()} {right}"
        case Aggregation():
            return (
                f"{expression.head()}(\n{pad}  {expression.before()}{multiline(expression.inner, indent + 2)}\n{pad})"
            )
        case Call():
            arguments = f",\n{pad}  ".join(multiline(each, indent + 2) for each in expression.arguments)
            return f"{expression.function}(\n{pad}  {arguments}\n{pad})"
        case _:
            return text


def _operand(expression: Expression, precedence: int, indent: int) -> str:
    if expression.precedence >= precedence:
        return multiline(expression, indent)
    text = expression.inside(precedence)
    pad = " " * indent
    return text if len(text) <= _WIDTH - indent else f"(\n{pad}  {multiline(expression, indent + 2)}\n{pad})"
