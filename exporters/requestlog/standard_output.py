"""Writes the request log to standard output, without waiting for a process that reads it too slowly."""

import contextlib
import errno
import fcntl
import os
import select

from exporters.records.messages import Finished
from exporters.requestlog.writer import encode_line

STANDARD_OUTPUT = "-"
"""The value of --request-log."""

PIPE_SIZE = 1 << 20
"""Bytes; the default of Linux, 64 KiB, holds less than one batch of records."""


class StandardOutputLog:
    """Writes records to a pipe, a terminal, a socket or a file.

    The state of the descriptor is shared with other processes, so it is not set to non-blocking. A pipe that polls as
    writable accepts PIPE_BUF bytes at once.
    """

    def __init__(self, descriptor: int = 1) -> None:
        self._descriptor = descriptor
        self._rest = b""
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self.last_numbers: dict[str, int] = {}
        if hasattr(fcntl, "F_SETPIPE_SZ"):  # Linux
            with contextlib.suppress(OSError):  # not a pipe, or above the limit of this user
                fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_SIZE)

    def write(self, run_id: str, numbered: list[tuple[int, Finished]], revision: str | None) -> None:
        """Write the records, as far as the reader accepts them. The rest of an incomplete line is written first.

        Raises:
            BlockingIOError: the reader is too slow; the records up to the number in `last_numbers` are written.
            OSError: a write failed; as above.
        """
        for number, record in numbered:
            if number > self.last_numbers.get(run_id, 0):
                self.flush()
                self._rest = self._write(encode_line(record, f"{run_id}:{number}", revision))
                self.last_numbers[run_id] = number
        self.flush()

    def flush(self) -> None:
        """Write the rest of an incomplete line. Its record is considered written, so that it is not dropped.

        Raises:
            OSError: as `write`.
        """
        while self._rest:
            self._rest = self._write(self._rest)

    def close(self) -> None:
        """Standard output remains open."""

    def _write(self, data: bytes) -> bytes:
        """Write the start of the data; returns the rest."""
        if not self._poll.poll(0):
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return data[os.write(self._descriptor, data[: select.PIPE_BUF]) :]
