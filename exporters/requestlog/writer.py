"""Writes the request log: one JSON object per request, exactly once even if processes restart."""

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from io import FileIO
from pathlib import Path
from typing import Any

import msgspec

from exporters.errors import UsageError, system_reason
from exporters.records import Finished
from exporters.requestlog.log_entry import LogEntry
from exporters.requestlog.log_files import MAX_LINE
from exporters.requestlog.reader import BadLineError, parse_line
from exporters.requestlog.rotation import UNLIMITED, RotationLimits, delete_oldest, rotate, rotated_files
from exporters.signals import Endpoint

TAIL_BYTES = 16 * 1024 * 1024
"""Bytes at the end of the log that are read at start: far more than relays keep unacknowledged."""


NO_SPACE, SLOW_READER, WRITE_FAILED = "no_space", "slow_reader", "write_failed"
DROP_REASONS = (NO_SPACE, SLOW_READER, WRITE_FAILED)
"""Reasons why lines were dropped."""

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


_encode = msgspec.json.Encoder().encode


def drop_reason(error: OSError) -> str:
    """The label value for a failed write."""
    if isinstance(error, BlockingIOError):
        return SLOW_READER
    return NO_SPACE if error.errno in _NO_SPACE else WRITE_FAILED


class RequestLog:
    """Appends records to a file and rotates it; `last_numbers` has the last record number by relay run."""

    def __init__(
        self,
        path: Path,
        *,
        limits: RotationLimits = UNLIMITED,
        retry: bool = False,
        private: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Open the file and read which records it already has; with `retry`, a write opens a file that failed to open.

        `private`: only the user of the process may read the files that it creates.

        Raises:
            UsageError: the file cannot be written.
        """
        self._path = path
        self._limits = limits
        self._mode = 0o600 if private else 0o666  # without the bits of the umask
        self._now = now
        self._file: FileIO | None = None
        self._began = 0.0
        self.last_numbers: dict[str, int] = {}
        try:
            self._open()
        except OSError as error:
            if not retry:
                raise UsageError(f"--request-log: {path} cannot be written: {system_reason(error)}") from error

    def write(self, run_id: str, numbered: list[tuple[int, Finished]], revision: str | None) -> None:
        """Append the records with one write per file. After that the kernel has them, so a killed process loses none.

        Raises:
            OSError: a write or a rotation failed; the file has the records up to the number in `last_numbers`.
        """
        file = self._file or self._open()
        last = self.last_numbers.get(run_id, 0)
        unwritten = [each for each in numbered if each[0] > last]
        if not unwritten:
            return
        lines = [encode_line(record, f"{run_id}:{number}", revision) for number, record in unwritten]
        while lines:
            size = os.fstat(file.fileno()).st_size
            if size and self._is_due(size + len(lines[0])) and _is_regular(file):
                file, size = self._rotate(file), 0
            if not size:
                self._began = self._now()
            count = _fitting(lines, self._limits.file_size - size)
            self._append(file, b"".join(lines[:count]))
            self.last_numbers[run_id] = unwritten[count - 1][0]
            del lines[:count], unwritten[:count]

    def flush(self) -> None:
        """The file is not buffered."""

    def reopen(self) -> None:
        """Open the path again after a rotation of the log.

        Raises:
            OSError: the path cannot be opened; the old file remains in use.
        """
        file = _append_to(self._path, self._mode)
        self.close()
        self._use(file)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _open(self) -> FileIO:
        with contextlib.suppress(FileExistsError):  # a file instead of a folder: opening fails with a better reason
            self._path.parent.mkdir(parents=True, exist_ok=True)
        file = _append_to(self._path, self._mode)
        try:
            if _is_regular(file):
                delete_oldest(self._path, self._limits)
                self.last_numbers = self._recover() | self.last_numbers
        except OSError:
            file.close()
            raise
        self._use(file)
        return file

    def _use(self, file: FileIO) -> None:
        self._file = file
        self._began = _first_time(self._path, self._now()) if _is_regular(file) else 0.0

    def _is_due(self, size: int) -> bool:
        age = self._limits.age
        return size > self._limits.file_size or (age is not None and self._now() - self._began >= age)

    def _rotate(self, file: FileIO) -> FileIO:
        rotate(self._path, self._now())
        file.close()
        self._file = None  # if a step fails, a later write opens the file
        delete_oldest(self._path, self._limits)
        self._file = _append_to(self._path, self._mode)
        return self._file

    def _append(self, file: FileIO, data: bytes) -> None:
        before = os.fstat(file.fileno()).st_size
        try:
            while data:
                data = data[file.write(data) :]
        except OSError:
            # A full disk may accept part of a write; these records are written again.
            if _is_regular(file):
                os.ftruncate(file.fileno(), before)
            raise

    def _recover(self) -> dict[str, int]:
        size = self._path.stat().st_size
        with self._path.open("rb+") as file:
            file.seek(max(0, size - TAIL_BYTES))
            tail = file.read()
            whole = tail.rfind(b"\n") + 1
            if whole < len(tail):  # killed during a write; the relay sends the record again
                file.truncate(size - len(tail) + whole)
        rotated = rotated_files(self._path)
        earlier = _tail(rotated[-1], TAIL_BYTES - size) if rotated and size < TAIL_BYTES else b""
        last_numbers: dict[str, int] = {}
        for line in (earlier + tail[:whole]).splitlines():
            try:
                run_id, _, number = parse_line(line).record.rpartition(":")
                last_numbers[run_id] = max(last_numbers.get(run_id, 0), int(number))
            except (BadLineError, ValueError):
                continue  # the first, incomplete line of the tail, or a line of another program
        return last_numbers


def _append_to(path: Path, mode: int) -> FileIO:
    def opener(name: str, flags: int) -> int:
        return os.open(name, flags, mode)

    return FileIO(str(path), "ab", opener=opener)  # not buffered: a buffer would keep bytes when the disk is full


def _tail(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - size))
        return file.read()


def _first_time(path: Path, default: float) -> float:
    """The time of the first line; of an empty file, or one that another program has begun, the default."""
    try:
        with path.open("rb") as file:
            return parse_line(file.readline(MAX_LINE)).arrived
    except (OSError, BadLineError):
        return default


def _fitting(lines: list[bytes], room: float) -> int:
    """The number of lines that fit; at least one, because no file is large enough for a line that does not."""
    if sum(map(len, lines)) <= room:
        return len(lines)
    count = 0
    for line in lines:
        room -= len(line)
        if room < 0:
            break
        count += 1
    return max(1, count)


def _is_regular(file: FileIO) -> bool:
    """Whether the file can be read, truncated and renamed, unlike a device."""
    return stat.S_ISREG(os.fstat(file.fileno()).st_mode)


_BACKGROUND = {Endpoint.RESPONSES: False, Endpoint.RESPONSES_BACKGROUND: True}


def encode_line(record: Finished, number: str, revision: str | None) -> bytes:
    return _encode(log_entry(record, number, revision)) + b"\n"


_Line: Callable[..., Any] = msgspec.defstruct(
    "Line",
    [(each.name, each.type) for each in msgspec.structs.fields(LogEntry)],
    rename={each.name: each.encode_name for each in msgspec.structs.fields(LogEntry)},
    gc=False,
)
"""A `LogEntry` by position: with names, its many arguments take 2 us longer."""


def log_entry(record: Finished, number: str, revision: str | None) -> Any:
    """The fields of the line, as a `LogEntry` has them."""
    return _Line(
        _timestamp(record.time),
        record.request_id,
        record.trace_id,
        record.model or None,
        record.request_class,
        record.tenant,
        record.endpoint,
        record.stream,
        _BACKGROUND.get(record.api),
        record.status,
        record.outcome,
        record.finish_reason,
        record.prompt_tokens,
        record.completion_tokens,
        record.reasoning_tokens,
        record.cached_tokens,
        None if record.cached_tokens is None else record.cached_tokens > 0,
        record.max_tokens,
        record.temperature,
        record.prompt_sha256,
        record.prompt_repeat,
        _ms(record.upload),
        _ms(record.ttft),
        _ms(record.ttft_answer),
        _ms(record.first_tool_call),
        _ms(record.tpot),
        _ms(record.itl_p50),
        _ms(record.itl_p95),
        round(record.e2e * 1000, 3),
        _ms(record.frontend),
        _ms(record.queue),
        _ms(record.prefill),
        _ms(record.decode),
        _ms(record.wait_at_least),
        _ms(record.paused or None),
        record.slo,
        record.structured_kind,
        record.structured_result,
        revision,
        number,
        record.response_id,
        record.prompt,
        record.completion,
        record.content_cut,
        record.body_repeat,
        None if record.prefix_hashes is None else [f"{value:016x}" for value in record.prefix_hashes],
        record.prefix_characters,
        record.shareable_tokens,
        record.refused,
    )


def _timestamp(time: float) -> Any:
    """The JSON of a time with six decimals and `+00:00`, which is encoded as it is; msgspec shortens a datetime."""
    second, microsecond = divmod(round(time * 1e6), 1_000_000)
    return msgspec.Raw(b'"%s.%06d+00:00"' % (_to_the_second(second), microsecond))


@lru_cache(16)
def _to_the_second(second: int) -> bytes:
    try:
        return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S").encode()
    except OSError as error:  # the caller would take it for a failed write
        raise ValueError(f"the time {second} is out of range") from error


def _ms(value: float | None) -> float | None:
    return None if value is None else round(value * 1000, 3)
