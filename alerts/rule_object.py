"""Renders the rules as an object of Kubernetes, for prometheus-operator or the operator of VictoriaMetrics."""

import re
from collections.abc import Iterable, Mapping

from alerts.rules.groups import RuleGroup, document, dump, header
from exporters.text.errors import UsageError

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_LABEL_KEY = re.compile(rf"({_NAME.pattern}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?")


KINDS = {
    "prometheusrule": ("monitoring.coreos.com/v1", "PrometheusRule"),
    "vmrule": ("operator.victoriametrics.com/v1beta1", "VMRule"),
}
"""API version and kind by the value of `--format`."""


def rule_object(
    form: str, groups: Iterable[RuleGroup], name: str, labels: Mapping[str, str], remarks: Iterable[str] = ()
) -> str:
    """The groups of the plain rule file as an object with a name and the labels that the operator selects by."""
    version, kind = KINDS[form]
    metadata = {"name": name, **({"labels": dict(labels)} if labels else {})}
    return header(remarks) + dump(
        {
            "apiVersion": version,
            "kind": kind,
            "metadata": metadata,
            "spec": document(groups),
        }
    )


def checked_name(name: str) -> str:
    """The name, if it is a valid Kubernetes object name.

    Raises:
        UsageError: the name is not valid.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"--name: {name!r} is not a valid Kubernetes object name; use lower-case letters, digits, - and ., with a "
            "letter or digit first and last"
        )
    return name


def checked_labels(flags: Iterable[str]) -> dict[str, str]:
    """The labels of `KEY=VALUE` flags.

    Raises:
        UsageError: a flag is not a valid label.
    """
    labels: dict[str, str] = {}
    for flag in flags:
        key, equals, value = flag.partition("=")
        if not (equals and _LABEL_KEY.fullmatch(key) and _LABEL_VALUE.fullmatch(value)):
            raise UsageError(
                f"--label: {flag!r} is not a valid Kubernetes label; write KEY=VALUE, such as "
                "release=kube-prometheus-stack"
            )
        labels[key] = value
    return labels
