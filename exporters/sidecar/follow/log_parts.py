"""The files of a log, plain or compressed, and positions, which find a file again after it was renamed or copied."""

import gzip
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from stat import S_ISREG

import msgspec

_SUFFIX = re.compile(r"[.-]\d[\dTZ._:-]*(?P<gz>\.gz)?")
"""What rotation appends to the name: a number, a date or the sidecar's time stamp."""

_NUMBER = re.compile(r"[.-](\d{1,5})")
"""The number of a file as logrotate counts; longer numbers are dates."""

_TRIES = 5
"""Attempts to list the files while they are being renamed."""

TAIL = 4096
"""Bytes before the position that have to be the same: inodes are used again, and a log may be cut and grow again."""

Identity = tuple[int, int]
"""Device and inode of a file."""


@dataclass(frozen=True, slots=True)
class Part:
    """One file of the log when it was listed."""

    path: Path
    identity: Identity
    modified: int  # nanoseconds

    @property
    def compressed(self) -> bool:
        return self.path.name.endswith(".gz")


def list_parts(path: Path) -> list[Part]:
    """The rotated files of the log, the oldest first, then the log itself, as far as they exist."""
    parts = _list(path)
    for _ in range(_TRIES):
        again = _list(path)
        if [(part.path, part.identity) for part in again] == [(part.path, part.identity) for part in parts]:
            break
        parts = again
    return parts


def _list(path: Path) -> list[Part]:
    names = {name for name in _names(path.parent) if name.startswith(path.name)}
    suffixes = {name: match for name in names if (match := _SUFFIX.fullmatch(name[len(path.name) :]))}
    rotated = [name for name, match in suffixes.items() if not (match["gz"] and name.removesuffix(".gz") in names)]
    parts = []
    for name in (*sorted(rotated, key=lambda name: _age(name[len(path.name) :])), path.name):
        with suppress(OSError):
            state = path.with_name(name).stat()
            if S_ISREG(state.st_mode):  # reading a FIFO would block
                parts.append(Part(path.with_name(name), (state.st_dev, state.st_ino), state.st_mtime_ns))
    return parts


def _names(folder: Path) -> Iterator[str]:
    with suppress(OSError):
        yield from os.listdir(folder)  # noqa: PTH208 - only names; a Path for each takes longer


def _age(suffix: str) -> tuple[int, str]:
    """Sorts the oldest first: of numbers the largest, of dates the smallest."""
    text = suffix.removesuffix(".gz")
    number = _NUMBER.fullmatch(text)
    return (-int(number[1]), "") if number else (-1_000_000, text)


class PartFile:
    """An open file of the log; offsets are those of the text, also if it is compressed."""

    def __init__(self, part: Part) -> None:
        """Open it; raises OSError if it cannot be opened."""
        self._file = part.path.open("rb", buffering=0)
        self._gzip = gzip.GzipFile(fileobj=self._file) if part.compressed else None

    @property
    def compressed(self) -> bool:
        return self._gzip is not None

    def state(self) -> os.stat_result:
        return os.fstat(self._file.fileno())

    def read(self, offset: int, size: int) -> bytes:
        """The `size` bytes from the offset on; fewer at the end. Raises OSError if it cannot be read."""
        if self._gzip is None:
            return os.pread(self._file.fileno(), size, offset)
        data = b""
        try:
            self._gzip.seek(offset)
            while len(data) < size and (more := self._gzip.read(size - len(data))):
                data += more
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            self._file.seek(0)
            self._gzip = gzip.GzipFile(fileobj=self._file)  # else the next read would begin behind the damage
            if not data:
                raise OSError(str(error)) from error
        return data

    def close(self) -> None:
        self._file.close()


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """The position behind the last line that was read, in one file."""

    device: int
    inode: int
    offset: int
    known: int  # the offset, or behind the first bytes if none was read; 0 if the file was empty
    tail: bytes  # a digest of the bytes before `known`, because the state must not have text of the log
    modified: int  # nanoseconds; when the file was written last
    skipping: bool = False  # within a line that is too long

    def is_in(self, file: PartFile) -> bool:
        """Whether the file has the known bytes; raises OSError if it cannot be read."""
        return digest(tail_of(file, self.known)) == self.tail


def tail_of(file: PartFile, offset: int) -> bytes:
    size = min(offset, TAIL)
    return file.read(offset - size, size)


def digest(tail: bytes) -> bytes:
    return blake2b(tail, digest_size=16).digest()
