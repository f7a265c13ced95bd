"""User errors: the command line prints their text and exits with their status, without a traceback."""

import traceback
from argparse import ArgumentTypeError
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TypeVar

_T = TypeVar("_T")


class UsageError(Exception):
    """An invalid flag, file or environment variable."""

    exit_status = 2


class NotReachableError(UsageError):
    """A server does not respond."""

    exit_status = 3


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


def one_of(options: Collection[str]) -> Callable[[str], str]:
    """A parser of texts that raises InvalidValueError for any other than `options`."""

    def parse(text: str) -> str:
        if text not in options:
            raise InvalidValueError(f"{text!r} is unknown; use {alternatives(options)}")
        return text

    return parse


def alternatives(words: Collection[str]) -> str:
    """`a, b or c`."""
    *others, last = words
    return f"{', '.join(others)} or {last}"


def read_text(path: str, flag: str) -> str:
    """Read the UTF-8 file of a flag.

    Raises:
        UsageError: the file cannot be read or is not UTF-8 text; the message shows nothing of the file.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{flag}: {path} cannot be read: {system_reason(error)}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{flag}: {path} is not UTF-8 text") from error


def type_and_place(error: Exception) -> str:
    """The type of an exception and the line that raised it; its text may have content of a request."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {frame.filename}:{frame.lineno}"


def system_reason(error: OSError) -> str:
    """The operating system's reason, for use in a message."""
    return (error.strerror or str(error)).lower()
