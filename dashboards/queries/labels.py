"""Expressions with labels that their series do not have."""

from alerts.promql.build import Series, call
from alerts.promql.expression import Call, Expression


def with_label(of: Expression | Series, label: str, value: str) -> Call:
    """Sets a label on every series."""
    return call("label_replace", of, label, value, "", "")


def join_labels(of: Expression | Series, label: str, separator: str, *labels: str) -> Call:
    """Sets a label to the values of others."""
    return call("label_join", of, label, separator, *labels)


def constant(value: Expression | float, label: str, text: str) -> Call:
    """One series with one label."""
    return with_label(call("vector", value), label, text)
