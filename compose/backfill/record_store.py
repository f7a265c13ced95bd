"""Sorts records by time in bounded memory: logs of several sidecars, and rotated files, are in no common order."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import msgspec

from exporters.records.messages import Finished, Frames

SLICE = 600_000
"""Milliseconds of each temporary file; the records of one file are sorted in memory."""

BUFFERED = 20_000
"""Records that are kept until they are written."""

Row = tuple[int, str, Finished]
"""The time of the sample that is the first to count a record, in milliseconds; the name of its line; the record."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Row]).decode


class RecordStore:
    """Records in temporary files by time; two records with the same name are one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rows: defaultdict[int, list[Row]] = defaultdict(list)
        self._buffered = 0
        self._slices: set[int] = set()
        self.count = 0
        """Records that were added."""
        self.repeated = 0
        """Records that were skipped, because another one with their name came first; known after an iteration."""
        self.served: Counter[str] = Counter()
        """Successful requests by model."""
        self.has_prompt_hashes = False

    def add(self, due: int, name: str, record: Finished) -> None:
        """Add a record that is counted at `due` (milliseconds)."""
        self.count += 1
        if record.status == 200:
            self.served[record.model] += 1
        self.has_prompt_hashes |= record.prompt_repeat is not None
        self._rows[due // SLICE].append((due, name, record))
        self._buffered += 1
        if self._buffered >= BUFFERED:
            self._write()

    def __iter__(self) -> Iterator[tuple[int, Finished]]:
        """All records by time."""
        self._write()
        self.repeated = 0
        for number in sorted(self._slices):
            rows = [row for part in Frames().feed(self._path(number).read_bytes()) for row in _decode(part)]
            rows.sort(key=lambda row: row[0])
            names: set[str] = set()
            for due, name, record in rows:
                if name in names:
                    self.repeated += 1
                    continue
                if name:
                    names.add(name)
                yield due, record

    def _write(self) -> None:
        for number, rows in self._rows.items():
            data = _encode(rows)
            with self._path(number).open("ab") as file:
                file.write(len(data).to_bytes(4, "big") + data)
        self._slices.update(self._rows)
        self._rows.clear()
        self._buffered = 0

    def _path(self, number: int) -> Path:
        return self._folder / f"{number}.records"
