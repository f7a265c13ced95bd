"""Adds the labels of `group_by` to expressions, so that each group of targets has its own series, alerts and texts.

Rules are written without these labels. Every aggregation and every vector matching gets them, except a matching with
constants (objectives, `vector(...)`), which have no labels of targets.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from alerts.promql.build import equal
from alerts.promql.change import with_matchers
from alerts.promql.expression import Aggregation, AlertLabel, AlertValue, Binary, Expression, Selector
from exporters.vocabulary import signals

CONSTANTS = frozenset(
    each.name
    for each in (
        *(signals.SLO_OBJECTIVE, signals.SLO_THRESHOLD, signals.GOODPUT_OBJECTIVE),
        *(signals.WINDOW_SECONDS, signals.STEP_TIME),
    )
)
"""Recorded series without labels of targets."""

LONGEST_PLACE = 14
"""Characters of the model and of the group in a title: both fit into 120 characters with the longest text."""


def with_target_labels(expression: Expression, labels: Sequence[str]) -> Expression:
    """Evaluates the expression for each combination of values of these labels."""

    def first(others: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*labels, *others)))

    def changed(node: Expression) -> Expression:
        match node:
            case Aggregation(clause="by"):
                return replace(node, labels=first(node.labels))
            case Binary(matching=matching) if matching and matching.clause == "on" and not _is_constant(node.right):
                return replace(node, matching=replace(matching, labels=first(matching.labels)))
            case _:
                return node

    return expression.map(changed) if labels else expression


def query(expression: Expression, labels: Sequence[str]) -> str:
    """A query in the template of an annotation; it reads the group of the alert."""
    matchers = [equal(label, AlertLabel(label)) for label in labels]
    narrowed = with_target_labels(with_matchers(expression, matchers, CONSTANTS), labels)
    return f"query ({' '.join(['printf', f'`{narrowed}`', *_values(narrowed)])})"


def if_found(expression: Expression, labels: Sequence[str], text: str) -> str:
    """A text about the result of a query, in the template of an annotation; empty without a result."""
    return f"{{{{ with {query(expression, labels)} }}}}{text}{{{{ end }}}}"


def listed(text: str) -> str:
    """A text about each sample of a result, with commas, in the template of an annotation."""
    return f"{{{{ range $i, $each := . }}}}{{{{ if $i }}}}, {{{{ end }}}}{text}{{{{ end }}}}"


def place(labels: Sequence[str]) -> str:
    """The group of an alert, such as `eu-1/prod`, shortened for a title."""
    values = " ".join(f"$labels.{label}" for label in labels)
    verbs = "/".join("%s" for _ in labels)
    return f'{{{{ printf "{verbs}" {values} | reReplaceAll "^(.{{{LONGEST_PLACE - 1}}}).{{2,}}$" "$1…" }}}}'


def _is_constant(expression: Expression) -> bool:
    return all(node.name in CONSTANTS for node in expression.walk() if isinstance(node, Selector))


def _values(expression: Expression) -> Iterator[str]:
    """The values of the verbs in a query, in their order."""
    for node in expression.walk():
        match node:
            case AlertValue():
                yield "$value"
            case Selector():
                for matcher in node.matchers:
                    if isinstance(matcher.value, AlertLabel):
                        yield f"$labels.{matcher.value.name}"
