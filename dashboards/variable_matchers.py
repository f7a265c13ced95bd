"""The variables of every dashboard that are labels of series, and their matchers in its queries."""

import re
from typing import Any

from exporters import signals
from exporters.signals import UP, Label

VARIABLES = (Label.MODEL, Label.CLASS, Label.INSTANCE, Label.ENGINE)
"""In the order of the dashboard: the options of a variable follow variables before it."""

_LABELS = {
    **{
        name: signal.labels if signal in signals.LOAD_SIGNALS else (*signal.labels, Label.INSTANCE)
        for signal in signals.SIGNALS
        for name in (signal.name, signal.bucket, signal.sum, signal.count)
    },
    **{recorded.name: recorded.labels for recorded in signals.RECORDED},
    UP: (Label.INSTANCE,),
}
"""The labels of each series; a recorded series of all sidecars has no `instance`."""

_SELECTOR = re.compile(r'(?<!["$\w:])(?P<name>[a-zA-Z_][\w:]*)(?:\{(?P<matchers>(?:"(?:\\.|[^"\\])*"|[^}"])*)\})?')
_TEXT_OR_SELECTOR = re.compile(rf'"(?:\\.|[^"\\])*"|{_SELECTOR.pattern}')
_MATCHED = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")


def selected(node: Any, key: str = "") -> Any:
    """The JSON of a dashboard in which each query follows these variables as far as its series have the labels."""
    if isinstance(node, dict):
        return {name: selected(value, name) for name, value in node.items()}
    if isinstance(node, list):
        return [selected(each) for each in node]
    if isinstance(node, str) and (key == "expr" or node.startswith("query_result(")):
        return _TEXT_OR_SELECTOR.sub(_selector, node)
    return node


def _selector(match: re.Match[str]) -> str:
    labels = _LABELS.get(match["name"] or "", ())
    matchers = match["matchers"] or ""
    matched = _MATCHED.findall(re.sub(r'"(?:\\.|[^"\\])*"', "", matchers))
    added = [f'{label}=~"${label}"' for label in VARIABLES if label in labels and label not in matched]
    return f"{match['name']}{{{','.join([*filter(None, [matchers]), *added])}}}" if added else match[0]
