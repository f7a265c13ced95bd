"""The file of the records of a run; after a failed write it is closed, and the run continues in memory."""

from contextlib import suppress
from pathlib import Path
from typing import IO

from exporters.text.errors import system_reason
from loadgen.results.record import Record, encode_line


class RecordFile:
    """Appends records to a file; `failure` is the message about a write that failed."""

    def __init__(self, path: Path) -> None:
        """Create the file.

        Raises:
            OSError: it cannot be created.
        """
        self.failure: str | None = None
        self._path = path
        self._file: IO[bytes] = path.open("wb")

    def add(self, record: Record) -> None:
        if self.failure is None:
            try:
                self._file.write(encode_line(record))
            except OSError as error:
                self._fail(error)

    def flush(self) -> None:
        if self.failure is None:
            try:
                self._file.flush()
            except OSError as error:
                self._fail(error)

    def close(self) -> None:
        self.flush()
        if self.failure is None:
            self._file.close()

    def _fail(self, error: OSError) -> None:
        self.failure = f"{self._path}: cannot be written: {system_reason(error)}"
        with suppress(OSError):  # the same failure: closing writes what is buffered
            self._file.close()
