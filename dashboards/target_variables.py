"""Variables for the labels of `group_by`: every query reads only the targets that they select."""

import re
from collections.abc import Sequence
from typing import Any

from alerts.promql_text import with_matchers
from exporters import signals

_LABEL_VALUES = re.compile(r"label_values\((.*), (\w+)\)")
_QUERY_RESULT = re.compile(r"query_result\((.*)\)", re.DOTALL)
_LOAD = frozenset(name for each in signals.LOAD_SIGNALS for name in (each.name, each.bucket, each.sum, each.count))
"""The load generator is in no cluster."""


def narrowed(node: Any, labels: Sequence[str], key: str = "") -> Any:
    """The JSON of a dashboard in which each query, variable and annotation follows these variables."""
    if isinstance(node, dict):
        return {name: narrowed(value, labels, name) for name, value in node.items()}
    if isinstance(node, list):
        return [narrowed(each, labels) for each in node]
    if not isinstance(node, str):
        return node
    if key == "expr":
        return with_matchers(node, _matchers(labels), _LOAD)
    if match := _QUERY_RESULT.fullmatch(node):
        return f"query_result({with_matchers(match[1], _matchers(labels), _LOAD)})"
    if match := _LABEL_VALUES.fullmatch(node):
        selector, label = match.groups()
        # the options of a variable follow the variables before it
        earlier = labels[: labels.index(label)] if label in labels else labels
        return f"label_values({with_matchers(selector, _matchers(earlier), _LOAD) if earlier else selector}, {label})"
    return node


def _matchers(labels: Sequence[str]) -> str:
    return ",".join(f'{label}=~"${label}"' for label in labels)
