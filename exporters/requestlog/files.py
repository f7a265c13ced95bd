"""The files of request logs, plain or compressed: their names, and their contents in blocks of whole lines."""

import glob
import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

from exporters.requestlog.rotation import readable_files
from exporters.text.errors import UsageError, system_reason

STANDARD_INPUT = Path("-")

BLOCK = 1 << 18
"""Bytes that are read at once."""

MAX_LINE = 1 << 20
"""Bytes; longer lines are bad. The sidecar writes lines below 10 KiB, with prompts and completions below 600 KiB."""

_GZIP = b"\x1f\x8b"


class IncompleteError(Exception):
    """A compressed file ends early or is corrupt."""


def find_logs(names: Iterable[str]) -> list[Path]:
    """The named logs; a pattern stands for the files that match it.

    Raises:
        UsageError: there is neither a log of a name nor a rotated file of it.
    """
    paths = []
    for name in names:
        path = Path(name)
        found = [path] if exists(path) else [*map(Path, sorted(glob.glob(name)))]  # noqa: PTH207 - it may be absolute
        if not found:
            raise UsageError(f"{name}: no such file, and no rotated file of that name")
        paths += found
    return paths


def exists(path: Path) -> bool:
    """Whether there is a log of this name, or a rotated file of it."""
    try:
        return path == STANDARD_INPUT or path.exists() or bool(readable_files(path))
    except OSError:
        return False


def blocks(paths: Iterable[Path]) -> Iterator[tuple[str, Iterator[bytes]]]:
    """The name and the blocks of each log, after its rotated files; a file that several names stand for is read once.

    Each block consists of whole lines; the last line of a file may have no line break. Lines are cut after MAX_LINE
    bytes.

    Raises:
        UsageError: a file cannot be read.
        IncompleteError: a file ends early; the blocks before that are returned.
    """
    read: set[tuple[int, int]] = set()
    for path in paths:
        if path == STANDARD_INPUT:
            yield "standard input", _whole_lines(_chunks(cast("io.BufferedReader", sys.stdin.buffer)))
            continue
        try:
            for name, file in _parts(path, read):
                yield name, _whole_lines(_chunks(file))
        except OSError as error:
            raise UsageError(f"{path}: cannot be read: {system_reason(error)}") from error


def _parts(path: Path, read: set[tuple[int, int]]) -> Iterator[tuple[str, io.BufferedReader]]:
    """The rotated files, the oldest first, and then the log."""
    done: set[str] = set()

    def new() -> list[Path]:
        return [each for each in readable_files(path) if each.name.removesuffix(".gz") not in done]

    while True:
        for rotated in new():
            done.add(rotated.name.removesuffix(".gz"))
            yield from _unread(rotated, read)
        for name, file in _unread(path, read):
            if not new():  # else the log was rotated since the listing: those files are read first
                yield name, file
                return
            read.remove(_identity(file))
        if not new():
            return


def _unread(path: Path, read: set[tuple[int, int]]) -> Iterator[tuple[str, io.BufferedReader]]:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return  # rotated or deleted since the listing
    with file:
        if _identity(file) not in read:
            read.add(_identity(file))
            yield str(path), file


def _identity(file: io.BufferedReader) -> tuple[int, int]:
    state = os.fstat(file.fileno())
    return state.st_dev, state.st_ino


def _chunks(file: io.BufferedReader) -> Iterator[bytes]:
    if not file.peek(2).startswith(_GZIP):
        while chunk := file.read(BLOCK):
            yield chunk
        return
    with gzip.GzipFile(fileobj=file) as unzipped:
        try:
            while chunk := unzipped.read1(BLOCK):
                yield chunk
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise IncompleteError(str(error)) from error


def _whole_lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        first, end = chunk.find(b"\n"), chunk.rfind(b"\n") + 1
        if not end:
            rest += chunk if len(rest) < MAX_LINE else b""
            continue
        if len(rest) + first < MAX_LINE:
            yield b"".join((rest, memoryview(chunk)[:end]))
        else:
            yield rest[:MAX_LINE] + b"\n"
            yield chunk[first + 1 : end]
        rest = chunk[end:]
    yield rest[:MAX_LINE]
