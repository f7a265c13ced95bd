"""The flags that filter requests, and the conditions that they stand for."""

import argparse
import math
import operator
import re
from collections.abc import Iterable, Iterator

from exporters.analysis.requests import conditions
from exporters.analysis.requests.conditions import Condition
from exporters.analysis.requests.log_fields import NUMBERS, check_field
from exporters.text.command_flags import add_since_and_until, moment
from exporters.text.errors import InvalidValueError, UsageError, parse_flag
from exporters.text.yaml_reader import nearest
from exporters.vocabulary.signals import Outcome, Verdict

_BY_VALUE = {
    "class": "class of the request",
    "model": "model name in the request",
    "tenant": "tenant",
    "route": "path of the request",
    "outcome": "outcome of the request",
    "request_id": "request id",
    "trace_id": "trace id",
}
"""Fields with a flag, each with its help text."""

_STATUS = re.compile(r"[1-5](\d\d|xx)")


def add_flags(parser: argparse.ArgumentParser) -> None:
    for name, text in _BY_VALUE.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            action="extend",
            nargs="+",
            metavar="VALUE",
            help=f"{text}; several are alternatives",
        )
    parser.add_argument(
        "--status", action="append", metavar="CODE", help="HTTP status, such as 503 or 5xx; several are alternatives"
    )
    parser.add_argument(
        "--slo",
        action="append",
        metavar="NAME=VERDICT",
        help="verdict of an SLO: good, bad or abandoned; all of several must apply",
    )
    parser.add_argument(
        "--goodput",
        choices=[Verdict.GOOD.value, Verdict.BAD.value],
        help="good: all SLOs that judged the request are good; bad: at least one of them is bad",
    )
    parser.add_argument("--stream", action="store_true", help="only streams")
    parser.add_argument("--unary", action="store_true", help="only unary requests")
    add_since_and_until(parser, "arrival")
    parser.add_argument(
        "--min",
        action="append",
        metavar="FIELD=NUMBER",
        help="lowest value of a field, such as ttft_ms=500; all of several must apply",
    )
    parser.add_argument("--max", action="append", metavar="FIELD=NUMBER", help="highest value of a field, as for --min")


def wanted(arguments: argparse.Namespace, now: float) -> Iterator[Condition]:
    """The conditions of the flags; durations are counted back from `now`.

    Raises:
        UsageError: the value of a flag is invalid.
    """
    values = vars(arguments)
    for name in arguments.outcome or ():
        _check("--outcome", name, Outcome)
    for name in _BY_VALUE:
        if values[name]:
            yield conditions.one_of(name, values[name])
    if arguments.status:
        yield conditions.status([parse_flag("--status", code, _status) for code in arguments.status])
    for text in arguments.slo or ():
        name, verdict = _pair("--slo", text, "ttft=bad")
        yield conditions.verdict(name, _check("--slo", verdict, Verdict))
    if arguments.goodput:
        yield conditions.goodput(good=arguments.goodput == Verdict.GOOD)
    if arguments.stream and arguments.unary:
        raise UsageError("--stream and --unary exclude each other")
    if arguments.stream or arguments.unary:
        yield conditions.flag("stream", value=arguments.stream)
    if arguments.since:
        yield conditions.bounded("time", operator.ge, moment("--since", arguments.since, now))
    if arguments.until:
        yield conditions.bounded("time", operator.lt, moment("--until", arguments.until, now))
    for bound, compare in (("min", operator.ge), ("max", operator.le)):
        for text in values[bound] or ():
            name, number = _pair(f"--{bound}", text, "ttft_ms=500")
            field = check_field(f"--{bound}", name, NUMBERS)
            yield conditions.bounded(field, compare, parse_flag(f"--{bound}", number, _number))


def _check(flag: str, value: str, known: Iterable[str]) -> str:
    if value not in [*known]:
        raise UsageError(f"{flag}: {value!r} is unknown; {nearest(value, known)}")
    return value


def _pair(flag: str, text: str, example: str) -> tuple[str, str]:
    name, separator, value = text.rpartition("=")
    if not separator or not name:
        raise UsageError(f"{flag}: {text!r} has no name and value; write for example {example}")
    return name, value


def _status(text: str) -> str:
    if not _STATUS.fullmatch(text):
        raise InvalidValueError(f"{text!r} is not an HTTP status; write for example 503 or 5xx")
    return text


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InvalidValueError(f"{text!r} is not a number")
    return number
