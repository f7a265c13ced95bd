"""The request log: one JSON object a line, each request once, whatever restarts in between."""

import contextlib
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from exporters.errors import UsageError, system_reason
from exporters.records import Finished

TAIL_BYTES = 16 * 1024 * 1024
"""How much of the log's end is read at start: far more than the relays can have sent unacknowledged."""

_encode = msgspec.json.Encoder().encode


class _Line(msgspec.Struct):
    record: str = ""


class RequestLog:
    """Appends records to a file; `seen` knows the number of the last one of each relay life."""

    def __init__(self, path: Path) -> None:
        """Open for appending, and find in what is there the numbers already logged.

        Raises:
            UsageError: the file cannot be written.
        """
        self._path = path
        try:
            with contextlib.suppress(FileExistsError):  # a file where a folder should be: `open` says it better
                path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab", buffering=0)  # a buffer would keep what a full disk has refused
            self.seen = self._recover()
        except OSError as error:
            raise UsageError(f"--request-log: {path} cannot be written: {system_reason(error)}") from error

    def write(self, life: str, numbered: list[tuple[int, Finished]], revision: str | None) -> None:
        """Append the records in one write; on return the kernel has them, so that a killed process loses none.

        Raises:
            OSError: the disk did not take them; then none of them is in the file.
        """
        new = [(number, record) for number, record in numbered if number > self.seen.get(life, 0)]
        if not new:
            return
        lines = [_encode(line(record, f"{life}:{number}", revision)) + b"\n" for number, record in new]
        self._append(b"".join(lines))
        self.seen[life] = new[-1][0]

    def reopen(self) -> None:
        """Follow a rotation: the path may name a new file.

        Raises:
            OSError: it cannot be opened; the old file stays in use.
        """
        file = self._path.open("ab", buffering=0)
        self._file.close()
        self._file = file

    def close(self) -> None:
        self._file.close()

    def _append(self, data: bytes) -> None:
        before = os.fstat(self._file.fileno()).st_size
        try:
            while data:
                data = data[self._file.write(data) :]
        except OSError:
            os.ftruncate(self._file.fileno(), before)  # a full disk takes a part: the whole will come again
            raise

    def _recover(self) -> dict[str, int]:
        size = self._path.stat().st_size
        with self._path.open("rb+") as file:
            file.seek(max(0, size - TAIL_BYTES))
            tail = file.read()
            whole = tail.rfind(b"\n") + 1
            if whole < len(tail):  # killed in the middle of a line: its record will be sent again
                file.truncate(size - len(tail) + whole)
        seen: dict[str, int] = {}
        decode = msgspec.json.Decoder(_Line).decode
        for text in tail[:whole].splitlines():
            try:
                life, _, number = decode(text).record.rpartition(":")
                seen[life] = max(seen.get(life, 0), int(number))
            except (msgspec.DecodeError, ValueError):
                continue  # the first, cut-off line of the tail, or a line that somebody wrote by hand
        return seen


def line(record: Finished, number: str, revision: str | None) -> dict[str, Any]:
    """One line's fields; `record` is `<relay life>:<number>`, which no other line has. Times in milliseconds."""
    return {
        "time": datetime.fromtimestamp(record.time, UTC).isoformat(timespec="microseconds"),
        "request_id": record.request_id,
        "trace_id": record.trace_id,
        "model": record.model or None,
        "class": record.request_class,
        "tenant": record.tenant,
        "endpoint": record.endpoint,
        "stream": record.stream,
        "status": record.status,
        "outcome": record.outcome,
        "finish_reason": record.finish_reason,
        "prompt_tokens": record.prompt_tokens,
        "completion_tokens": record.completion_tokens,
        "cached_tokens": record.cached_tokens,
        "cache_hit": None if record.cached_tokens is None else record.cached_tokens > 0,
        "max_tokens": record.max_tokens,
        "temperature": record.temperature,
        "prompt_sha256": record.prompt_sha256,
        "prompt_repeat": record.prompt_repeat,
        "upload_ms": _ms(record.upload),
        "ttft_ms": _ms(record.ttft),
        "ttft_answer_ms": _ms(record.ttft_answer),
        "tpot_ms": _ms(record.tpot),
        "itl_p50_ms": _ms(record.itl_p50),
        "itl_p95_ms": _ms(record.itl_p95),
        "e2e_ms": _ms(record.e2e),
        "queue_ms": _ms(record.queue),
        "prefill_ms": _ms(record.prefill),
        "decode_ms": _ms(record.decode),
        "wait_ms_at_least": _ms(record.wait_at_least),
        "client_paused_ms": _ms(record.paused or None),
        "slo": record.slo,
        "config_revision": revision,
        "record": number,
    }


def _ms(value: float | None) -> float | None:
    return None if value is None else round(value * 1000, 3)
