"""Errors of the user's making: the command line prints their text and exits with 2, without a traceback."""

from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


class UsageError(Exception):
    """A wrong flag, file or environment: the command line prints the text and exits with 2."""


class InvalidValueError(ArgumentTypeError, ValueError):
    """A text that is no value of its type; argparse shows the message of an `ArgumentTypeError` unchanged."""


def parse_flag(flag: str, text: str, parse: Callable[[str], _T]) -> _T:
    """The value of a flag.

    Raises:
        UsageError: `parse` raises InvalidValueError; the message begins with the flag.
    """
    try:
        return parse(text)
    except InvalidValueError as error:
        raise UsageError(f"{flag}: {error}") from error


def system_reason(error: OSError) -> str:
    """The operating system's reason, to be part of a message."""
    return (error.strerror or str(error)).lower()
