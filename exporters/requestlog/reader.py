"""Reads request logs entry by entry, in bounded memory; bad lines are skipped and counted."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import msgspec

from exporters.requestlog.entry import LogEntry
from exporters.requestlog.files import MAX_LINE, IncompleteError, blocks, exists
from exporters.text.errors import UsageError
from exporters.vocabulary.log_names import renamed

_decode = msgspec.json.Decoder(LogEntry).decode
_NO_ENTRY = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class BadLineError(Exception):
    """A line is not an entry."""


@dataclass(slots=True)
class BadLines:
    """The number of bad lines in a file, and the position and reason of the first."""

    count: int = 0
    first: str = ""

    def add(self, number: int, error: Exception) -> None:
        self.count += 1
        self.first = self.first or f"line {number}: {error}"


class LogReader:
    """Iterates over the entries of request logs, each log after its rotated files, plain or compressed by gzip.

    A line is bad if it is not a JSON object, lacks `time`, `class`, `stream`, `outcome` or `e2e_ms`, has a value of the
    wrong type, or is longer than MAX_LINE, for example after a crash or from another program. Bad lines are skipped and
    counted in `bad_lines`; the missing rest of a compressed file is one of them. Unknown fields are ignored; other
    absent fields have their defaults.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self._paths = tuple(paths)
        self.bad_lines: dict[Path, BadLines] = {}
        """Bad lines by file, of the part that has been read."""

    def __iter__(self) -> Iterator[LogEntry]:
        """Read the files from the start; raises UsageError if a file cannot be read."""
        self.bad_lines = {}
        for path in self._paths:
            if not exists(path):
                raise UsageError(f"{path}: cannot be read: no such file or directory")
        for name, file in blocks(self._paths):
            bad = self.bad_lines[Path(name)] = BadLines()
            number = 0
            try:
                for block in file:
                    for line in BytesIO(block):
                        number += 1
                        try:
                            yield _decode(renamed(line[:MAX_LINE]))
                        except _NO_ENTRY as error:
                            bad.add(number, error)
            except IncompleteError as error:
                bad.add(number + 1, error)

    def notes(self) -> list[str]:
        """A remark on each file with bad lines."""
        return [
            f"{path}: skipped lines that are not requests: {bad.count}; the first is {bad.first}."
            for path, bad in self.bad_lines.items()
            if bad.count
        ]


def parse_line(line: bytes) -> LogEntry:
    """Parse one line; raises BadLineError if the line is not an entry."""
    try:
        return _decode(renamed(line))
    except _NO_ENTRY as error:
        raise BadLineError(str(error)) from error
