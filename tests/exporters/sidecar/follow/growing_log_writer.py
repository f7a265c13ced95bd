"""A program that writes a log and rotates it in the ways of logrotate and of the sidecar; it has its own clock."""

import gzip
import os
import shutil
from pathlib import Path


class Writer:
    """Appends unique lines; `lines` has all that are complete."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[bytes] = []
        self._number = 0
        self._clock = 1_700_000_000
        self._unfinished = b""
        path.touch()
        self._stamp(path)

    def append(self, count: int = 1) -> None:
        for _ in range(count):
            line = self._unfinished or self._line()
            self._write(line[len(self._unfinished) // 2 :] if self._unfinished else line)
            self._unfinished = b""
            self.lines.append(line.removesuffix(b"\n"))

    def append_half(self) -> None:
        """Write the first half of a line; `append` completes it."""
        if not self._unfinished:
            self._unfinished = self._line()
            self._write(self._unfinished[: len(self._unfinished) // 2])

    def rename_with_date(self) -> Path:
        """Rotate as the sidecar does; the new file appears with its first line."""
        self._complete()
        rotated = self.path.with_name(f"{self.path.name}.20261122T{self._clock % 1_000_000:06}.000000Z")
        self.path.rename(rotated)
        return rotated

    def rename_with_number(self) -> Path:
        """Rotate as logrotate does with `create`."""
        self._complete()
        rotated = self._shifted()
        self.path.rename(rotated)
        self.path.touch()
        self._stamp(self.path)
        return rotated

    def copy_and_truncate(self) -> Path:
        """Rotate as logrotate does with `copytruncate`."""
        self._complete()
        rotated = self._shifted()
        shutil.copyfile(self.path, rotated)
        self._stamp(rotated)
        os.truncate(self.path, 0)
        self._stamp(self.path)
        return rotated

    def compress(self, rotated: Path) -> None:
        """Replace a rotated file by its compressed form, which keeps the time of its last change."""
        compressed = rotated.with_name(f"{rotated.name}.gz")
        compressed.write_bytes(gzip.compress(rotated.read_bytes()))
        state = rotated.stat()
        os.utime(compressed, ns=(state.st_atime_ns, state.st_mtime_ns))
        rotated.unlink()

    def _complete(self) -> None:
        if self._unfinished:
            self.append()

    def _line(self) -> bytes:
        self._number += 1
        return b'{"line": %d, "%s": null}\n' % (self._number, b"x" * (self._number * 7919 % 300))

    def _write(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)
        self._stamp(self.path)

    def _shifted(self) -> Path:
        """The name of the newest rotated file, after the others have moved by one."""
        parts = [path for path in self.path.parent.iterdir() if path.name.startswith(f"{self.path.name}.")]
        numbers = {int(path.name.removeprefix(f"{self.path.name}.").removesuffix(".gz")): path for path in parts}
        for number in sorted(numbers, reverse=True):
            suffix = ".gz" if numbers[number].name.endswith(".gz") else ""
            numbers[number].rename(self.path.with_name(f"{self.path.name}.{number + 1}{suffix}"))
        return self.path.with_name(f"{self.path.name}.1")

    def _stamp(self, path: Path) -> None:
        self._clock += 1
        os.utime(path, (self._clock, self._clock))
