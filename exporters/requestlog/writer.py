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
        unwritten = [(number, record) for number, record in numbered if number > self.last_numbers.get(run_id, 0)]
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


def log_entry(record: Finished, number: str, revision: str | None) -> LogEntry:
    return LogEntry(
        time=_timestamp(record.time),
        request_id=record.request_id,
        trace_id=record.trace_id,
        model=record.model or None,
        request_class=record.request_class,
        tenant=record.tenant,
        endpoint=record.endpoint,
        stream=record.stream,
        background=_BACKGROUND.get(record.api),
        status=record.status,
        outcome=record.outcome,
        finish_reason=record.finish_reason,
        prompt_tokens=record.prompt_tokens,
        completion_tokens=record.completion_tokens,
        reasoning_tokens=record.reasoning_tokens,
        cached_tokens=record.cached_tokens,
        cache_hit=None if record.cached_tokens is None else record.cached_tokens > 0,
        max_tokens=record.max_tokens,
        temperature=record.temperature,
        prompt_sha256=record.prompt_sha256,
        prompt_repeat=record.prompt_repeat,
        upload_ms=_ms(record.upload),
        ttft_ms=_ms(record.ttft),
        ttft_answer_ms=_ms(record.ttft_answer),
        first_tool_call_ms=_ms(record.first_tool_call),
        tpot_ms=_ms(record.tpot),
        itl_p50_ms=_ms(record.itl_p50),
        itl_p95_ms=_ms(record.itl_p95),
        e2e_ms=round(record.e2e * 1000, 3),
        frontend_ms=_ms(record.frontend),
        queue_ms=_ms(record.queue),
        prefill_ms=_ms(record.prefill),
        decode_ms=_ms(record.decode),
        wait_ms_at_least=_ms(record.wait_at_least),
        client_paused_ms=_ms(record.paused or None),
        slo=record.slo,
        structured_kind=record.structured_kind,
        structured_result=record.structured_result,
        config_revision=revision,
        record=number,
        response_id=record.response_id,
        prompt=record.prompt,
        completion=record.completion,
        content_cut=record.content_cut,
        body_repeat=record.body_repeat,
        prefix_hashes=None if record.prefix_hashes is None else [f"{value:016x}" for value in record.prefix_hashes],
        prefix_characters=record.prefix_characters,
        shareable_tokens=record.shareable_tokens,
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
