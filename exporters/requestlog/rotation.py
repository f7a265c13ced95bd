"""Rotated files of the request log: their names, and the deletion of the oldest ones."""

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path

import msgspec

_STAMP = "%Y%m%dT%H%M%S.%fZ"
_STAMPED = re.compile(r"2\d{3}(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3])([0-5]\d){2}\.\d{6}Z")

_EARLIEST, _LATEST = 946_684_800.0, 7_258_118_400.0
"""2000 and 2200 in Unix seconds: a clock outside is wrong, and `_STAMPED` has to match all names."""


class RotationLimits(msgspec.Struct, frozen=True, kw_only=True):
    """When the log is rotated, and how much it may occupy; None means unlimited."""

    size: int | None = None  # bytes of a file
    age: float | None = None  # seconds since its first line
    total: int | None = None  # bytes of all files

    @property
    def file_size(self) -> float:
        """The maximum size of a file: at most half of the total, so that the last rotated file is always kept."""
        return min(inf if self.size is None else self.size, inf if self.total is None else self.total // 2)


UNLIMITED = RotationLimits()
"""The log is never rotated."""


def rotated_files(path: Path) -> list[Path]:
    """The rotated files of the log, the oldest first; files of other programs, such as `.1` or `.gz`, are none."""
    return [file for file in readable_files(path) if file.suffix != ".gz"]


def readable_files(path: Path) -> list[Path]:
    """The rotated files of the log, the oldest first, also those that another program has compressed to `.gz`."""
    start = f"{path.name}."
    names = {file.name for file in path.parent.iterdir() if file.name.startswith(start)}
    return [
        path.with_name(name)
        for name in sorted(names)
        if _STAMPED.fullmatch(name.removeprefix(start).removesuffix(".gz"))
        and (not name.endswith(".gz") or name.removesuffix(".gz") not in names)  # gzip has not yet removed the original
    ]


def rotate(path: Path, now: float) -> None:
    """Rename the log; its name gets the time in UTC, or a later one if needed to sort it behind the other files.

    Raises:
        OSError: it cannot be renamed.
    """
    at = datetime.fromtimestamp(min(max(now, _EARLIEST), _LATEST), UTC)
    for newest in readable_files(path)[-1:]:  # the clock may have been set back
        at = max(at, _stamp(path, newest) + timedelta(microseconds=1))
    path.rename(path.with_name(f"{path.name}.{at.strftime(_STAMP)}"))


def _stamp(path: Path, rotated: Path) -> datetime:
    stamp = rotated.name.removeprefix(f"{path.name}.").removesuffix(".gz")
    return datetime.strptime(stamp, _STAMP).replace(tzinfo=UTC)


def delete_oldest(path: Path, limits: RotationLimits) -> None:
    """Delete rotated files until a new file may grow to its maximum size within the total; raises OSError."""
    if limits.total is None:
        return
    sizes = {}
    for file in rotated_files(path):
        with suppress(FileNotFoundError):  # another program has deleted it
            sizes[file] = file.lstat().st_size
    excess = sum(sizes.values()) - (limits.total - limits.file_size)
    for file, size in sizes.items():
        if excess <= 0:
            return
        file.unlink(missing_ok=True)
        excess -= size
