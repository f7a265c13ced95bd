"""Extracts series, labels, windows and call arguments from the text of a dashboard's query."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from exporters.signals import ACTIVE_SINCE, FIRING, RECORDED, SIGNALS, Kind, Label

_SERIES = r"(?<![\w:.$])[A-Za-z_:][\w:]*"
_KEYWORDS = {
    "and",
    "or",
    "unless",
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
    "offset",
    "bool",
    "nan",
}
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right) ?\(([^)]*)\)")


@dataclass(frozen=True, slots=True)
class Series:
    labels: frozenset[str]
    is_counter: bool
    """Also true for the series of histograms."""


def _series_by_name() -> Iterator[tuple[str, Series]]:
    scraped = {str(Label.INSTANCE), "job"}
    for signal in SIGNALS:
        labels = frozenset(map(str, signal.labels)) | scraped
        if signal.kind is Kind.HISTOGRAM:
            yield signal.bucket, Series(labels | {"le"}, is_counter=True)
            yield signal.sum, Series(labels, is_counter=True)
            yield signal.count, Series(labels, is_counter=True)
        else:
            yield signal.name, Series(labels, is_counter=signal.kind is Kind.COUNTER)
    for recorded in RECORDED:
        yield recorded.name, Series(frozenset(map(str, recorded.labels)), is_counter=False)
    of_alerts = {"alertname", "alertstate", *map(str, (Label.SEVERITY, Label.MODEL, Label.CLASS, Label.SLO))}
    for name in (FIRING, ACTIVE_SINCE):
        yield name, Series(frozenset(of_alerts) | scraped, is_counter=False)
    for name in ("up", "scrape_duration_seconds", "scrape_samples_scraped", "scrape_series_added"):  # of each scrape
        yield name, Series(frozenset(scraped), is_counter=False)


SERIES = dict(_series_by_name())


def series_in(expression: str) -> list[str]:
    """All names except keywords and functions."""
    bare = _GROUPING.sub("", re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", _without_strings(expression)))
    return [word for word in re.findall(rf"{_SERIES}\b(?!\s*\()", bare) if word not in _KEYWORDS]


def labels_in(expression: str) -> set[str]:
    """The labels that the expression groups or joins by."""
    return {label for group in _GROUPING.findall(expression) for label in re.findall(r"\w+", group)}


def labels_made_in(expression: str) -> set[str]:
    """The labels that the expression itself adds."""
    return set(re.findall(r'\bcount_values(?: by \([^)]*\))? ?\("(\w+)"', expression))


def matchers_in(expression: str) -> list[tuple[str, str, str]]:
    """Series, label and value of each matcher."""
    return [
        (name, label, value)
        for name, within in re.findall(rf'({_SERIES})\{{((?:[^}}"]|"[^"]*")*)\}}', expression)
        for label, value in re.findall(r'(\w+)(?:=~|!~|!=|=)"([^"]*)"', within)
    ]


def windows_in(expression: str) -> list[str]:
    return re.findall(r"\[([^\]]*)\]", _without_strings(expression))


def call_arguments(expression: str, calls: str) -> Iterator[str]:
    """The arguments of each function or aggregation whose name matches the pattern `calls`."""
    text = _without_strings(expression)
    for call in re.finditer(rf"\b(?:{calls})(?: (?:by|without) \([^)]*\))? ?\(", text):
        depth, end = 1, call.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        yield text[call.end() : end - 1]


def _without_strings(expression: str) -> str:
    return re.sub(r'"[^"]*"', '""', expression)
