"""The journal of a relay run: a small file with the requests that the relay has begun and the exporter has recorded.

Each process writes with system calls, so the kernel keeps what a killed process has written. A file that
is mapped into memory would do the same, but a program that truncates it would end the relay with SIGBUS.

Counts are by endpoint, in the order of `ENDPOINTS`. The relay counts requests that it begins, and requests whose record
it drops. The exporter counts requests that it has recorded, and lines that it has dropped, up to a record number.
Before it writes lines, it also stores which endpoints they have: the request log shows later which were written.
"""

import fcntl
import os
import struct
from pathlib import Path
from typing import TypeVar

import msgspec

from exporters.vocabulary.signals import Endpoint

ENDPOINTS = tuple(endpoint for endpoint in Endpoint if endpoint is not Endpoint.RESPONSES_BACKGROUND)
"""Endpoints of begun requests. Only the body says whether a response is generated in the background."""

_INDEX = {endpoint: n for n, endpoint in enumerate(ENDPOINTS)} | {
    Endpoint.RESPONSES_BACKGROUND: ENDPOINTS.index(Endpoint.RESPONSES)
}

NO_LINE = 255
"""The value in place of an endpoint: the record is not one of a request."""

PAGE = 4096
"""Bytes of a file. A killed process writes all bytes of one write to a page, or none."""

_BEGUN, _DROPPED, _RECORDED = 512, 1024, 1536
"""Offsets. The file begins with the names of the endpoints, because another release may read it."""

_COUNTER = 8
"""Bytes of a counter, little-endian."""

_NAMES = msgspec.msgpack.encode([*ENDPOINTS])

_COUNTERS = f"<{len(ENDPOINTS)}Q"


_T = TypeVar("_T")


def try_lock(file: int) -> bool:
    """Lock a file as long as the process lives; False if another process has locked it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write_value(file: int, value: msgspec.Struct, at: int = 0) -> None:
    """Replace the value at this offset of a page. Raises OSError."""
    data = msgspec.msgpack.encode(value)
    os.pwrite(file, len(data).to_bytes(_COUNTER, "little") + data, at)


def read_value(file: int, kind: type[_T], at: int = 0) -> _T | None:
    """The value at this offset of a page; None if there is none, or one of another form. Raises OSError."""
    data = os.pread(file, PAGE, at)
    size = int.from_bytes(data[:_COUNTER], "little")
    try:
        return msgspec.msgpack.decode(data[_COUNTER : _COUNTER + size], type=kind)
    except msgspec.MsgspecError:
        return None


def endpoint_index(endpoint: Endpoint) -> int:
    """The position of an endpoint in lists of counts."""
    return _INDEX[endpoint]


def no_counts() -> list[int]:
    return [0] * len(ENDPOINTS)


class Recorded(msgspec.Struct, array_like=True):
    """The exporter's part: what has become of the records up to the number `last`."""

    last: int
    recorded: list[int]
    dropped: dict[str, list[int]]
    """Lines by the reason why they were dropped."""
    next_lines: bytes = b""
    """Endpoints of the lines, from the number `last` + 1, that are being written; `NO_LINE` for other records."""


class RelayJournal:
    """The relay's side of its journal."""

    def __init__(self, folder: Path, run_id: str) -> None:
        """Create the file, and lock it as long as the process lives.

        Raises:
            OSError: the file cannot be created.
        """
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / run_id
        unlocked = folder / f".{run_id}"  # the exporter considers a file without a lock as that of a dead relay
        self._file = os.open(unlocked, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.posix_fallocate(self._file, 0, PAGE)  # so that a full disk stops no count
            os.pwrite(self._file, _NAMES, 0)
            unlocked.rename(path)
        except OSError:
            os.close(self._file)
            unlocked.unlink(missing_ok=True)
            raise
        self._begun = no_counts()
        self._dropped = no_counts()

    def begun(self, endpoint: Endpoint) -> None:
        """A request head was parsed; `write_begun` writes the count."""
        self._begun[_INDEX[endpoint]] += 1

    def write_begun(self) -> None:
        """Write the counts of begun requests. Raises OSError if they cannot be written."""
        os.pwrite(self._file, struct.pack(_COUNTERS, *self._begun), _BEGUN)

    def dropped(self, endpoint: Endpoint) -> None:
        """The record of a request was dropped. Raises OSError if the count cannot be written."""
        self._dropped[_INDEX[endpoint]] += 1
        os.pwrite(self._file, struct.pack(_COUNTERS, *self._dropped), _DROPPED)

    def close(self) -> None:
        os.close(self._file)


class JournalFile:
    """The exporter's side of the journal of a relay run."""

    def __init__(self, path: Path) -> None:
        """Open the file.

        Raises:
            OSError: the file cannot be opened.
        """
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._same_endpoints = os.pread(self._file, len(_NAMES), 0) == _NAMES

    def close(self) -> None:
        os.close(self._file)

    def relay_is_dead(self) -> bool:
        """Whether no process has the file locked; then it is locked by this one."""
        return try_lock(self._file)

    def begun(self) -> list[int]:
        return self._counts(_BEGUN)

    def dropped(self) -> list[int]:
        """Requests whose records the relay has dropped."""
        return self._counts(_DROPPED)

    def recorded(self) -> Recorded | None:
        """The exporter's part; None if it has written none, or in another form."""
        recorded = read_value(self._file, Recorded, _RECORDED)
        if recorded is None:
            return None
        return msgspec.structs.replace(
            recorded,
            recorded=self._by_endpoint(recorded.recorded),
            dropped={reason: self._by_endpoint(counts) for reason, counts in recorded.dropped.items()},
        )

    def write(self, recorded: Recorded) -> None:
        """Replace the exporter's part. Raises OSError."""
        write_value(self._file, recorded, _RECORDED)

    def _counts(self, offset: int) -> list[int]:
        data = os.pread(self._file, _DROPPED - _BEGUN, offset)
        counts = [int.from_bytes(data[n : n + _COUNTER], "little") for n in range(0, len(data), _COUNTER)]
        return self._by_endpoint(counts)

    def _by_endpoint(self, counts: list[int]) -> list[int]:
        """The counts by our endpoints; those of another release, which may have others, all as `other`."""
        if self._same_endpoints:
            return counts[: len(ENDPOINTS)]
        return [*no_counts()[:-1], sum(counts)]
