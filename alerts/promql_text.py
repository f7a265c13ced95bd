"""Joins PromQL from text, for dashboards until they use `alerts.promql`."""

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass

from alerts.target_labels import CONSTANTS
from exporters.signals import ENGINE_MODEL, Label, Recorded, Signal


def select(series: Signal | Recorded | str, where: Mapping[Label, str] | None = None, *, regex: bool = False) -> str:
    """A selector such as `llm_requests_total{class="siso"}`; with `regex` the values are patterns (`=~`)."""
    name = series if isinstance(series, str) else series.name
    sign = "=~" if regex else "="
    matchers = ",".join(f'{label}{sign}"{escape(value)}"' for label, value in (where or {}).items())
    return f"{name}{{{matchers}}}" if matchers else name


def in_window(series: Recorded, window: str) -> str:
    """A recorded series of all SLOs in one window."""
    return select(series, {Label.WINDOW: window})


def within(series: Recorded, slo: str, window: str) -> str:
    """A recorded series of one SLO in one window."""
    return select(series, {Label.SLO: slo, Label.WINDOW: window})


def escape(value: str) -> str:
    """A label value, escaped for double quotes in PromQL."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def sum_by(expression: str, labels: Iterable[Label | str]) -> str:
    return f"sum by ({', '.join(labels)}) ({expression})"


def max_by(expression: str, labels: Iterable[Label | str]) -> str:
    return f"max by ({', '.join(labels)}) ({expression})"


def ratio(part: str, whole: str) -> str:
    """Absent instead of NaN if the whole is 0."""
    return f"{part} / ({whole} > 0)"


def rate(selector: str, window: str) -> str:
    return f"rate({selector}[{window}])"


def increase(selector: str, window: str) -> str:
    return f"increase({selector}[{window}])"


def quantile(q: float, histogram: Signal, window: str, by: Iterable[Label], where: Mapping[Label, str]) -> str:
    """The `q` quantile of a classic histogram over `window`; `where` values are patterns."""
    buckets = sum_by(rate(select(histogram.bucket, where, regex=True), window), [*by, "le"])
    return f"histogram_quantile({q:g}, {buckets})"


def with_model(expression: str) -> str:
    """Adds the models of each engine; an engine whose model is not known keeps its labels."""
    on_engine = "on (instance, engine)"
    return f"{ENGINE_MODEL.name} * {on_engine} group_left () (\n{expression}\n)\nor {on_engine} (\n{expression}\n)"


_TEXT = r'"(?:\\.|[^"\\])*"|' + r"'(?:\\.|[^'\\])*'|`[^`]*`"
_TOKEN = re.compile(
    rf"(?P<text>{_TEXT})"
    rf"|(?P<matchers>\{{(?:{_TEXT}|[^}}\"'`])*\}})"
    r"|(?P<range>\[[^\]]*\])"
    r"|(?P<clause>(?:by|on|without|ignoring|group_left|group_right)\s*\([^)]*\))"
    r"|(?P<name>[a-zA-Z_:][\w:]*)"
    r"|(?P<number>\d[\w.]*)"
    r"|(?P<verb>%[a-z])"
    # of Grafana
    r"|(?P<variable>\$\w+|\$\{[^}]*\}\w*)"
    r"|(?P<space>\s+)"
    r"|(?P<symbol>==|!=|<=|>=|.)",
    re.DOTALL,
)
_SET_OPERATORS, _COMPARISONS = {"and", "or", "unless"}, {"==", "!=", "<", ">", "<=", ">="}
_OTHER_WORDS = {"offset", "bool", "inf", "nan"}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str


def with_matchers(promql: str, matchers: str, without: Iterable[str] = ()) -> str:
    """Adds the matchers to every selector, except those of constants and of the series in `without`."""
    return "".join(text for text in _narrowed(promql, matchers, {*CONSTANTS, *without}))


def _tokens(promql: str) -> list[_Token]:
    return [_Token(match.lastgroup or "", match[0]) for match in _TOKEN.finditer(promql)]


def _is_series(tokens: list[_Token], index: int) -> bool:
    """Whether a selector starts here: a name that is no function, or matchers without a name."""
    token = tokens[index]
    if token.kind == "matchers":
        return index == 0 or tokens[index - 1].kind != "name"
    if token.kind != "name" or token.text.lower() in _SET_OPERATORS | _OTHER_WORDS:
        return False
    following = next((each for each in tokens[index + 1 :] if each.kind != "space"), _Token("end", ""))
    return following.text != "(" and not following.text.startswith(("by", "without"))


def _narrowed(promql: str, matchers: str, without: Container[str]) -> Iterator[str]:
    """Each token, with the matchers if it selects series."""
    tokens = _tokens(promql)
    for index, token in enumerate(tokens):
        before = tokens[index - 1] if index else _Token("", "")
        after = tokens[index + 1] if index + 1 < len(tokens) else _Token("", "")
        text = token.text
        if token.kind == "matchers" and before.text not in without:
            inner = text[1:-1]
            yield f"{{{matchers}{',' if inner else ''}{inner}}}"
        elif _is_series(tokens, index) and text not in without and after.kind != "matchers":
            yield f"{text}{{{matchers}}}"
        else:
            yield text
