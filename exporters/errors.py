"""User errors: the command line prints their text and exits with 2, without a traceback."""

from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


class UsageError(Exception):
    """An invalid flag, file or environment variable."""


class InvalidValueError(ArgumentTypeError, ValueError):
    """A text that is not a valid value; argparse shows the message of an `ArgumentTypeError` unchanged."""


def parse_flag(flag: str, text: str, parse: Callable[[str], _T]) -> _T:
    """Parse the value of a flag.

    Raises:
        UsageError: the text is invalid; the message starts with the flag.
    """
    try:
        return parse(text)
    except InvalidValueError as error:
        raise UsageError(f"{flag}: {error}") from error


def system_reason(error: OSError) -> str:
    """The operating system's reason, for use in a message."""
    return (error.strerror or str(error)).lower()
