"""Reads request logs entry by entry, in bounded memory; bad lines are skipped and counted."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

import msgspec

from exporters.errors import UsageError, system_reason
from exporters.requestlog.log_entry import LogEntry

MAX_LINE = 1 << 20
"""Bytes; longer lines are bad. The sidecar writes lines below 10 KiB, with prompts and completions below 600 KiB."""

_decode = msgspec.json.Decoder(LogEntry).decode
_NO_ENTRY = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class BadLineError(Exception):
    """A line is not an entry."""


@dataclass(slots=True)
class BadLines:
    """The number of bad lines in a file, and the position and reason of the first."""

    count: int = 0
    first: str = ""


class LogReader:
    """Iterates over the entries of request logs.

    A line is bad if it is not a JSON object, lacks `time`, `class`, `stream`, `outcome` or `e2e_ms`, has a value of the
    wrong type, or is longer than MAX_LINE, for example after a crash or from another program. Bad lines are skipped and
    counted in `bad_lines`. Unknown fields are ignored; other absent fields have their defaults.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self.bad_lines = {path: BadLines() for path in paths}
        """By file, for the part that has been read."""

    def __iter__(self) -> Iterator[LogEntry]:
        """Read the files from the start.

        Raises:
            UsageError: a file cannot be read.
        """
        for path in self.bad_lines:
            bad = self.bad_lines[path] = BadLines()
            try:
                with path.open("rb") as file:
                    for number, line in enumerate(iter(partial(file.readline, MAX_LINE), b""), 1):
                        try:
                            yield _decode(line)
                        except _NO_ENTRY as error:
                            bad.count += 1
                            bad.first = bad.first or f"line {number}: {error}"
                            _skip_rest(line, file)
            except OSError as error:
                raise UsageError(f"{path}: cannot be read: {system_reason(error)}") from error


def parse_line(line: bytes) -> LogEntry:
    """Parse one line.

    Raises:
        BadLineError: the line is not an entry.
    """
    try:
        return _decode(line)
    except _NO_ENTRY as error:
        raise BadLineError(str(error)) from error


def _skip_rest(line: bytes, file: BinaryIO) -> None:
    """Skip the rest of a line after its first MAX_LINE bytes."""
    while len(line) == MAX_LINE and not line.endswith(b"\n"):
        line = file.readline(MAX_LINE)
