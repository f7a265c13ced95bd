"""Flags that several commands have, each declared once."""

import argparse
from datetime import UTC, datetime

from exporters.text.errors import UsageError, parse_flag
from exporters.text.units import DURATION_UNITS, parse_duration, parse_time


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
    """The time of a flag: a duration before `now`, RFC 3339 or unix seconds.

    Raises:
        UsageError: it is neither.
    """
    if text.endswith(tuple(DURATION_UNITS)):
        seconds = now - parse_flag(flag, text, parse_duration)
    else:
        seconds = parse_flag(flag, text, parse_time)
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(f"{flag}: {text!r} is out of range") from error
