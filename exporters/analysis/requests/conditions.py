"""Conditions on a request, each with texts of which a line must contain one to fulfil it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from exporters.analysis.requests.log_fields import SLO
from exporters.vocabulary.signals import Verdict

Row = Any
"""A decoded line, with an attribute for each field that is needed."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A test of a request."""

    fields: tuple[str, ...]
    """The fields that the test reads."""
    test: Callable[[Row], bool]
    texts: tuple[bytes, ...] = ()
    """A line without whitespace and escapes that has none of these does not fulfil the condition; () is unknown."""


def one_of(name: str, values: Iterable[str]) -> Condition:
    wanted = frozenset(values)
    encoded = [msgspec.json.encode(value) for value in sorted(wanted)]
    key = b":" if name == "route" else msgspec.json.encode(name) + b":"  # logs of 0.2.0 have another name for it
    return Condition((name,), lambda row: getattr(row, name) in wanted, tuple(key + value for value in encoded))


def flag(name: str, *, value: bool) -> Condition:
    text = msgspec.json.encode({name: value})[1:-1]
    return Condition((name,), lambda row: getattr(row, name) is value, (text,))


def verdict(slo: str, wanted: str) -> Condition:
    text = msgspec.json.encode({slo: wanted})[1:-1]
    return Condition((SLO,), lambda row: row.slo.get(slo) == wanted, (text,))


def goodput(*, good: bool) -> Condition:
    """All SLOs that judged the request are good, or at least one is bad; abandoned ones do not count."""

    def test(row: Row) -> bool:
        verdicts = row.slo.values()
        return (Verdict.GOOD in verdicts and Verdict.BAD not in verdicts) if good else Verdict.BAD in verdicts

    return Condition((SLO,), test, (b':"good"' if good else b':"bad"',))


def status(codes: Iterable[str]) -> Condition:
    """Codes such as `503` or `5xx`."""
    starts = tuple(code.removesuffix("xx") for code in codes)
    texts = tuple(f'"status":{start}'.encode() for start in starts)
    return Condition(("status",), lambda row: (code := str(row.status)).startswith(starts) and len(code) == 3, texts)


def bounded(name: str, compare: Callable[[Any, Any], bool], bound: Any) -> Condition:
    """The field has a value that compares with the bound."""
    return Condition((name,), lambda row: (value := getattr(row, name)) is not None and compare(value, bound))
