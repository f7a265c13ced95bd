"""Kinds of keys of the SLO file that become labels: those of targets and of alerts, and severities."""

import re

from exporters.text.yaml_keys import TEXT, Kind, distinct_list_of, matched, text_of
from exporters.text.yaml_reader import Node
from exporters.vocabulary.signals import GPU_SIGNALS, Label

AlertLabels = tuple[tuple[str, str], ...]
"""Names and values."""

_NAME = r"[a-zA-Z][a-zA-Z0-9_]*"
# Labels of GPUs are on no series of a target, and `namespace` divides targets.
_OF_GPUS = {str(label) for signal in GPU_SIGNALS for label in signal.labels}
_OURS = frozenset({*map(str, Label), "alertstate", "finished_reason", "le", "model_name", "pid"}) - _OF_GPUS
_FREE_NAME = text_of(rf"(?!(?:{'|'.join(sorted(_OURS))})$){_NAME}")


def _is_free(name: str, node: Node, instead: str) -> bool:
    """Whether `name` is the name of a label, and of none of ours; otherwise the mistake is reported."""
    if not re.fullmatch(_NAME, name):
        node.problem(f"{name!r} is not a label name; use letters, digits and _, first a letter")
    elif name in _OURS:
        node.problem(f"{name!r} is a label of every target or of our series; {instead}")
    else:
        return True
    return False


def _target_label(node: Node) -> str | None:
    name = node.text()
    return name if name is not None and _is_free(name, node, "name one that divides the targets") else None


def _alert_labels(node: Node) -> AlertLabels | None:
    if not node.is_mapping:
        node.problem(f"expected a mapping, found {node.quoted()}; write names and values, such as {{team: ml}}")
        return None
    labels = []
    for name, value in node.mapping().items():
        if _is_free(name, value, "choose another name") and (text := value.text()) is not None:
            labels.append((name, text))
    return tuple(labels)


TARGET_LABELS = distinct_list_of(Kind(_target_label, _FREE_NAME))
ALERT_LABELS = Kind(
    _alert_labels,
    {"type": "object", "propertyNames": _FREE_NAME, "additionalProperties": TEXT.schema, "default": {}},
)
SEVERITY = matched(
    r"[a-zA-Z][a-zA-Z0-9_-]*", lambda match: match[0], "is not a valid severity; use letters, digits, - and _"
)
