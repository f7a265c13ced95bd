"""Writes the request log: one JSON object per request, exactly once even if processes restart."""

import contextlib
import errno
import logging
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

from exporters.records.messages import Finished
from exporters.requestlog.entry import LogEntry
from exporters.requestlog.files import MAX_LINE
from exporters.requestlog.reader import BadLineError, parse_line
from exporters.requestlog.rotation import UNLIMITED, RotationLimits, delete_oldest, rotate, rotated_files
from exporters.text.errors import UsageError, system_reason
from exporters.text.output_files import create_folder
from exporters.vocabulary.signals import Endpoint

TAIL_BYTES = 16 * 1024 * 1024
"""Bytes at the end of the log that are read at start: far more than relays keep unacknowledged."""


NO_SPACE, SLOW_READER, WRITE_FAILED = "no_space", "slow_reader", "write_failed"
DROP_REASONS = (NO_SPACE, SLOW_READER, WRITE_FAILED)
"""Reasons why lines were dropped."""

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


_encode = msgspec.json.Encoder().encode

logger = logging.getLogger("vllm_slo.exporter")


def drop_reason(error: OSError) -> str:
    """The label value for a failed write."""
    if isinstance(error, BlockingIOError):
        return SLOW_READER
    return NO_SPACE if error.errno in _NO_SPACE else WRITE_FAILED


def check_writable(path: Path, *, private: bool = False) -> None:
    """Check that a request log can be opened, without changing it: the exporter of a killed sidecar may still write.

    Raises:
        UsageError: the file cannot be opened.
    """
    try:
        create_folder(path)
        _append_to(path, _mode(private=private)).close()
    except OSError as error:
        raise UsageError(f"--request-log: {path} cannot be written: {system_reason(error)}") from error


class RequestLog:
    """Appends records to a file and rotates it; `last_numbers` has the last record number by relay run.

    Another program may move, remove or truncate the file at any time: each write is to the file that is at the path.
    """

    def __init__(
        self,
        path: Path,
        *,
        limits: RotationLimits = UNLIMITED,
        private: bool = False,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open the file and read which records it already has; if it cannot be opened, a write tries again.

        `private`: only the user of the process may read the files that it creates.
        """
        self._path = path
        self._limits = limits
        self._mode = _mode(private=private)
        self._now = now
        self._monotonic = monotonic
        self._file: FileIO | None = None
        self._identity = 0, 0
        self._began = 0.0
        self.last_numbers: dict[str, int] = {}
        with contextlib.suppress(OSError):
            self._open()

    def write(self, run_id: str, numbered: list[tuple[int, Finished]], revision: str | None) -> None:
        """Append the records with one write per file. After that the kernel has them, so a killed process loses none.

        Raises:
            OSError: a write or a rotation failed; the file has the records up to the number in `last_numbers`.
        """
        if self._file is None:
            self._open()
        last = self.last_numbers.get(run_id, 0)
        unwritten = [each for each in numbered if each[0] > last]
        lines = [encode_line(record, f"{run_id}:{number}", revision) for number, record in unwritten]
        while lines:
            file, size = self._at_path()
            if size and self._is_due(size + len(lines[0])):
                file, size = self._rotate(), 0
            if not size:
                self._began = self._monotonic()
            count = _fitting(lines, self._limits.file_size - size)
            _append(file, b"".join(lines[:count]))
            if self._is_removed(file):
                continue  # no program can read these lines
            self.last_numbers[run_id] = unwritten[count - 1][0]
            del lines[:count], unwritten[:count]

    def flush(self) -> None:
        """Open the path again if its file was moved or removed, although there is no line to write; raises OSError."""
        self._at_path()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _at_path(self) -> tuple[FileIO, int]:
        """The file at the path, which is opened if it is not the open one, and its size."""
        state = _state(self._path)
        if self._file is not None and state is not None and _identity(state) == self._identity:
            return self._file, state.st_size
        if self._file is not None:
            logger.info("request log: %s was moved or removed; opening it again", self._path)
            self.close()
        file = self._open()
        return file, os.fstat(file.fileno()).st_size

    def _is_removed(self, file: FileIO) -> bool:
        """Whether no program can open the file any more; some file systems do not count names."""
        if os.fstat(file.fileno()).st_nlink:
            return False
        state = _state(self._path)
        return state is None or _identity(state) != self._identity

    def _open(self) -> FileIO:
        create_folder(self._path)
        file = _append_to(self._path, self._mode)
        try:
            if _is_regular(file):
                delete_oldest(self._path, self._limits)
                self.last_numbers = self._recover(file) | self.last_numbers
                now = self._now()
                age = max(0.0, now - _first_time(file, now))  # the clock may have been set back
                self._began = self._monotonic() - age
        except OSError:
            file.close()
            raise
        return self._use(file)

    def _use(self, file: FileIO) -> FileIO:
        self._file = file
        self._identity = _identity(os.fstat(file.fileno()))
        return file

    def _is_due(self, size: int) -> bool:
        age = self._limits.age
        return size > self._limits.file_size or (age is not None and self._monotonic() - self._began >= age)

    def _rotate(self) -> FileIO:
        rotate(self._path, self._now())
        self.close()  # if a step fails, a later write opens the file
        delete_oldest(self._path, self._limits)
        return self._use(_append_to(self._path, self._mode))

    def _recover(self, file: FileIO) -> dict[str, int]:
        size = os.fstat(file.fileno()).st_size
        tail = _tail(file, TAIL_BYTES)
        whole = tail.rfind(b"\n") + 1
        if whole < len(tail):  # killed during a write; the relay sends the record again
            os.ftruncate(file.fileno(), size - len(tail) + whole)
        rotated = rotated_files(self._path)
        earlier = b""
        if rotated and size < TAIL_BYTES:
            with rotated[-1].open("rb", buffering=0) as newest:
                earlier = _tail(newest, TAIL_BYTES - size)
        last_numbers: dict[str, int] = {}
        for line in (earlier + tail[:whole]).splitlines():
            try:
                run_id, _, number = parse_line(line).record.rpartition(":")
                last_numbers[run_id] = max(last_numbers.get(run_id, 0), int(number))
            except (BadLineError, ValueError):
                continue  # the first, incomplete line of the tail, or a line of another program
        return last_numbers


def _mode(*, private: bool) -> int:
    return 0o600 if private else 0o666  # without the bits of the umask


def _append_to(path: Path, mode: int) -> FileIO:
    """Open or create a regular file or a character device.

    Raises:
        OSError: the path cannot be opened, or has something else, such as a FIFO, whose reader could block the writer.
    """
    with contextlib.suppress(FileNotFoundError):
        _check_type(path, path.lstat())
    # A link that is created after the check is not followed, and a terminal whose output is stopped does not block.
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    file = FileIO(os.open(path, flags, mode), "ab+")  # not buffered: a buffer would keep bytes when the disk is full
    try:
        _check_type(path, os.fstat(file.fileno()))
    except OSError:
        file.close()
        raise
    return file


_OTHER_TYPES = {
    stat.S_IFLNK: "symbolic link",
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFBLK: "block device",
}


def _check_type(path: Path, state: os.stat_result) -> None:
    other = _OTHER_TYPES.get(stat.S_IFMT(state.st_mode))
    if other is not None:
        raise OSError(errno.EINVAL, f"Is a {other}; use a regular file, or - for standard output", str(path))


def _state(path: Path) -> os.stat_result | None:
    """What is at the path; None if it cannot be read."""
    try:
        return os.lstat(path)
    except OSError:
        return None


def _identity(state: os.stat_result) -> tuple[int, int]:
    return state.st_dev, state.st_ino


def _append(file: FileIO, data: bytes) -> None:
    descriptor, written = file.fileno(), 0
    try:
        while written < len(data):
            written += os.write(descriptor, data[written:])
    except OSError:
        # A full disk may accept part of a write; these records are written again.
        if _is_regular(file):
            os.ftruncate(descriptor, max(0, os.fstat(descriptor).st_size - written))  # it may have been truncated
        raise


def _tail(file: FileIO, size: int) -> bytes:
    file.seek(max(0, os.fstat(file.fileno()).st_size - size))
    return file.readall()


def _first_time(file: FileIO, default: float) -> float:
    """The time of the first line; the default for an empty file, and for one that another program has begun."""
    file.seek(0)
    try:
        return parse_line(file.read(MAX_LINE).partition(b"\n")[0]).arrived
    except BadLineError:
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
    # A call of a function for each time would take 1 us.
    frontend = record.frontend
    return _Line(
        _timestamp(record.time),
        record.request_id,
        record.trace_id,
        record.model or None,
        record.request_class,
        record.tenant,
        record.route,
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
        record.upload and round(record.upload * 1000, 3),
        record.ttft and round(record.ttft * 1000, 3),
        record.ttft_answer and round(record.ttft_answer * 1000, 3),
        record.first_tool_call and round(record.first_tool_call * 1000, 3),
        record.tpot and round(record.tpot * 1000, 3),
        record.itl_p50 and round(record.itl_p50 * 1000, 3),
        record.itl_p95 and round(record.itl_p95 * 1000, 3),
        round(record.e2e * 1000, 3),
        frontend and round(frontend * 1000, 3),
        record.queue and round(record.queue * 1000, 3),
        record.prefill and round(record.prefill * 1000, 3),
        record.decode and round(record.decode * 1000, 3),
        record.wait_at_least and round(record.wait_at_least * 1000, 3),
        round(record.paused * 1000, 3) if record.paused else None,
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
