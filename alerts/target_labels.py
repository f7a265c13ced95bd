"""Adds the labels of `group_by` to rules, so that each group of targets has its own series, alerts and texts.

Rules are written without these labels. Every aggregation and every vector matching gets them, except a matching with
constants (objectives, `vector(...)`), which have no labels of targets.
"""

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from alerts.alert_names import AlertName
from alerts.burn_text import MODEL, short_model
from alerts.rule_groups import Alert, Recording, RuleGroup
from exporters import signals

CONSTANTS = frozenset(
    each.name
    for each in (
        *(signals.SLO_OBJECTIVE, signals.SLO_THRESHOLD, signals.GOODPUT_OBJECTIVE),
        *(signals.WINDOW_SECONDS, signals.STEP_TIME),
    )
)
"""Recorded series without labels of targets."""

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

_QUERY = re.compile(r"query \(printf `([^`]*)`((?: [^ ()]+)*)\)")
_VERB = re.compile(r"%[a-z]")
_LONGEST = 14
"""Of the model and of the group in a title: both fit into 120 characters with the longest text."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str


def with_target_labels(groups: Iterable[RuleGroup], labels: Sequence[str]) -> tuple[RuleGroup, ...]:
    """The rules for each combination of values of these labels; without labels, the rules as they are."""
    if not labels:
        return tuple(groups)
    return tuple(replace(group, rules=tuple(_rule(rule, labels) for rule in group.rules)) for group in groups)


def expression(promql: str, labels: Sequence[str]) -> str:
    """Adds the labels to aggregations and matchings."""
    tokens = _tokens(promql)
    return "".join(
        _clause(token.text, labels) if _needs_labels(tokens, index) else token.text
        for index, token in enumerate(tokens)
    )


def template(text: str, labels: Sequence[str]) -> str:
    """Adds matchers for the labels of the alert to the queries in an annotation."""
    return _QUERY.sub(lambda match: _query(match[1], match[2].split(), labels), text)


def with_matchers(promql: str, matchers: str, without: Iterable[str] = ()) -> str:
    """Adds the matchers to every selector, except those of constants and of the series in `without`."""
    return "".join(text for text, _, _ in _narrowed(promql, matchers, {*CONSTANTS, *without}))


def place(labels: Sequence[str]) -> str:
    """The group of an alert, such as `eu-1/prod`, shortened for a title."""
    values = " ".join(f"$labels.{label}" for label in labels)
    verbs = "/".join("%s" for _ in labels)
    return f'{{{{ printf "{verbs}" {values} | reReplaceAll "^(.{{{_LONGEST - 1}}}).{{2,}}$" "$1…" }}}}'


def _rule(rule: Recording | Alert, labels: Sequence[str]) -> Recording | Alert:
    changed = replace(rule, expr=expression(rule.expr, labels))
    if isinstance(changed, Recording) or changed.name == AlertName.WATCHDOG:
        return changed
    annotations = {name: template(text, labels) for name, text in changed.annotations.items()}
    return replace(changed, annotations={**annotations, "summary": _title(annotations["summary"], labels)})


def _title(summary: str, labels: Sequence[str]) -> str:
    """Names the group after the model of a burn alert, which is followed by its effect; at the end of other titles."""
    if MODEL in summary:
        return summary.replace(MODEL, f"{short_model(_LONGEST)} in {place(labels)}")
    return f"{summary} ({place(labels)})"


def _tokens(promql: str) -> list[_Token]:
    return [_Token(match.lastgroup or "", match[0]) for match in _TOKEN.finditer(promql)]


def _needs_labels(tokens: list[_Token], index: int) -> bool:
    token = tokens[index]
    if token.kind != "clause":
        return False
    keyword = token.text.partition("(")[0].strip()
    return keyword == "by" or (keyword == "on" and not _matches_constants(tokens, index))


def _clause(clause: str, labels: Sequence[str]) -> str:
    keyword, _, named = clause.rstrip(")").partition("(")
    names = [name.strip() for name in named.split(",") if name.strip()]
    return f"{keyword.strip()} ({', '.join(dict.fromkeys((*labels, *names)))})"


def _matches_constants(tokens: list[_Token], index: int) -> bool:
    """Whether the right side of a matching is constant; it ends at the next set operator or comparison."""
    depth = 0
    for at in range(index + 1, len(tokens)):
        text = tokens[at].text
        depth += {"(": 1, ")": -1}.get(text, 0)
        if depth < 0 or (depth == 0 and text in _SET_OPERATORS | _COMPARISONS):
            return True
        if _is_series(tokens, at) and text not in CONSTANTS:
            return False
    return True


def _is_series(tokens: list[_Token], index: int) -> bool:
    """Whether a selector starts here: a name that is no function, or matchers without a name."""
    token = tokens[index]
    if token.kind == "matchers":
        return index == 0 or tokens[index - 1].kind != "name"
    if token.kind != "name" or token.text.lower() in _SET_OPERATORS | _OTHER_WORDS:
        return False
    following = next((each for each in tokens[index + 1 :] if each.kind != "space"), _Token("end", ""))
    return following.text != "(" and not following.text.startswith(("by", "without"))


def _query(promql: str, values: list[str], labels: Sequence[str]) -> str:
    """`query (printf ...)` with the matchers, and their values in the order of the verbs."""
    added, parts, arguments, left = [f"$labels.{label}" for label in labels], [], [], iter(values)
    for text, verbs, is_narrowed in _narrowed(promql, ",".join(f"{label}=%q" for label in labels), CONSTANTS):
        parts.append(text)
        arguments += [*(added if is_narrowed else ()), *(next(left) for _ in range(verbs))]
    changed = expression("".join(parts), labels)
    return f"query (printf `{changed}` {' '.join(arguments)})" if arguments else f"query (printf `{changed}`)"


def _narrowed(promql: str, matchers: str, without: Container[str]) -> Iterator[tuple[str, int, bool]]:
    """Each token, with the matchers if it selects series; its verbs; and whether it got the matchers."""
    tokens = _tokens(promql)
    for index, token in enumerate(tokens):
        before = tokens[index - 1] if index else _Token("", "")
        after = tokens[index + 1] if index + 1 < len(tokens) else _Token("", "")
        text, verbs = token.text, len(_VERB.findall(token.text))
        if token.kind == "matchers" and before.text not in without:
            inner = text[1:-1]
            yield f"{{{matchers}{',' if inner else ''}{inner}}}", verbs, True
        elif _is_series(tokens, index) and text not in without and after.kind != "matchers":
            yield f"{text}{{{matchers}}}", verbs, True
        else:
            yield text, verbs, False
