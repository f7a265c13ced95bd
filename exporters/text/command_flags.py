"""Declares flags as fields of a dataclass, and the flags that several commands have."""

import argparse
from collections.abc import Callable, Collection, Iterable
from dataclasses import MISSING, fields
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple, get_type_hints

from exporters.text.errors import UsageError, parse_flag
from exporters.text.units import parse_moment
from exporters.text.yaml_keys import field_docstrings
from exporters.text.yaml_reader import nearest


class Option(NamedTuple):
    """The `Annotated` metadata of a field that a flag sets: how its value is written and parsed."""

    metavar: str | None
    parse: Callable[[str], Any] = str
    choices: Collection[str] | None = None


def add_fields(parser: argparse._ActionsContainer, cls: type) -> None:
    """Declare the flags of a dataclass: --max-open of `max_open`, whose docstring is the help.

    A field without a default is a required flag, and one whose default is False is a switch.
    """
    annotated, docstrings = get_type_hints(cls, include_extras=True), field_docstrings(cls)
    for field in fields(cls):
        options: dict[str, Any] = {"action": "store_true"}
        if field.default is not False:
            metavar, parse, choices = annotated[field.name].__metadata__[0]
            given = {"required": True} if field.default is MISSING else {"default": field.default}
            options = {"metavar": metavar, "type": parse, "choices": choices, **given}
        parser.add_argument(f"--{field.name.replace('_', '-')}", help=docstrings[field.name], **options)


def add_format(parser: argparse.ArgumentParser, *others: str) -> None:
    """Declare --format of printed results: text, json, and those that only this command has."""
    parser.add_argument(
        "--format", choices=("text", "json", *others), default="text", help="output format (default: %(default)s)"
    )


def add_request_logs(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """Declare --request-log of the commands that read logs."""
    parser.add_argument(
        "--request-log",
        action="extend",
        nargs="+",
        required=required,
        metavar="FILE",
        help="request logs of the sidecar, each with its rotated files; also compressed by gzip"
        + ("; - is standard input" if required else ""),
    )


def add_classes(parser: argparse.ArgumentParser, text: str) -> None:
    """Declare --class."""
    parser.add_argument("--class", action="extend", nargs="+", metavar="NAME", help=text)


def check_classes(names: Iterable[str], known: Collection[str]) -> None:
    """Check the names of --class; raises UsageError for one that is not `known`."""
    for name in names:
        if name not in known:
            raise UsageError(f"--class: no request has class {name!r}; {nearest(name, known)}")


def add_since_and_until(parser: argparse.ArgumentParser, what: str, default: str = "") -> None:
    """Declare --since and --until; `what` has a time of its own, such as requests that ended."""
    note = f" (default: {default})" if default else ""
    parser.add_argument(
        "--since",
        metavar="TIME",
        help=f"{what} at or after this: a duration before now, RFC 3339 or unix seconds{note}",
    )
    parser.add_argument("--until", metavar="TIME", help=f"{what} before this, as for --since")


def moment(flag: str, text: str, now: float) -> datetime:
    """The time of a flag: a duration before `now`, RFC 3339 or unix seconds; raises UsageError if it is neither."""
    seconds = parse_flag(flag, text, partial(parse_moment, now=now))
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(f"{flag}: {text!r} is out of range") from error
