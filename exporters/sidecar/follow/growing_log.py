"""Reads the lines of a growing log once each, across rotation (rename or copy and truncate), truncation and restarts.

Rotation is noticed when the path has another file, or a file without the bytes that were read before. Then the listed
files are compared with the positions: a file is known by its inode, or by the bytes before the position, also if it was
copied or compressed. Files behind the last known one are new. A rotated file is read until it no longer grows, because
a program may write to it for a while after the rename.
"""

import logging
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from stat import S_ISREG

from exporters.requestlog.files import MAX_LINE
from exporters.sidecar.follow.log_parts import TAIL, Identity, Part, PartFile, Position, digest, list_parts, tail_of
from exporters.text.errors import system_reason

BLOCK = 1 << 18
"""Bytes that are read at once; their lines are counted before anything else happens."""

ROTATED_SECONDS = 30.0
"""A rotated file that has not grown for this time is closed."""

_HEAD = 4096
"""Bytes by which a copy of the current file is recognised."""

logger = logging.getLogger("vllm_slo.follow")


class _TruncatedError(Exception):
    """The file no longer has the bytes before the position."""


class _Source:
    """An open file and the position in it."""

    def __init__(self, part: Part, file: PartFile, now: float, offset: int = 0, *, skipping: bool = False) -> None:
        self.identity = part.identity
        self.file = file
        self.offset = offset
        self.truncated = False
        self.grown_at = now
        self.modified = part.modified
        self._tail = tail_of(file, offset)
        self._skipping = skipping
        self._seen: tuple[int, int] | None = None  # size and time of change when the end was reached

    @property
    def position(self) -> Position:
        device, inode = self.identity
        known = self._tail
        if not known:
            with suppress(OSError):  # reading it reports that
                known = self.file.read(0, TAIL)
        return Position(
            device=device,
            inode=inode,
            offset=self.offset,
            known=self.offset or len(known),
            tail=digest(known),
            modified=self.modified,
            skipping=self._skipping,
        )

    @property
    def unread(self) -> int:
        """Bytes behind the position; 0 for a compressed file, whose size is unknown."""
        return 0 if self.file.compressed else max(0, self.file.state().st_size - self.offset)

    def read(self, now: float) -> list[bytes] | None:
        """The next whole lines, with the position moved behind them; None at the end.

        Raises:
            _TruncatedError: the file was truncated.
            OSError: it cannot be read.
        """
        state = self.file.state()
        seen = state.st_size, state.st_mtime_ns
        if seen == self._seen:
            return None
        data = self._next(BLOCK)
        if len(data) == BLOCK and b"\n" not in data:
            data = self._next(MAX_LINE)
        self.modified = state.st_mtime_ns
        if self._skipping:
            return self._skip(data, now, seen)
        end = data.rfind(b"\n") + 1
        if not end and len(data) == MAX_LINE:
            self._skipping, end = True, MAX_LINE
        if not end:
            self._seen = seen
            return None
        self._move(data[:end], now)
        return data[:end].removesuffix(b"\n").split(b"\n")

    def last_line(self, now: float) -> list[bytes]:
        """The rest behind the last line break, when the file is not expected to grow any more."""
        try:
            rest = b"" if self._skipping else self._next(MAX_LINE)
        except _TruncatedError:
            return []
        self._move(rest, now)
        return [rest] if rest else []

    def _next(self, size: int) -> bytes:
        known = len(self._tail)
        data = self.file.read(self.offset - known, known + size)
        if data[:known] != self._tail:
            raise _TruncatedError
        return data[known:]

    def _skip(self, data: bytes, now: float, seen: tuple[int, int]) -> list[bytes] | None:
        if not data:
            self._seen = seen
            return None
        end = data.find(b"\n") + 1
        self._skipping = not end
        self._move(data[: end or len(data)], now)
        return []

    def _move(self, data: bytes, now: float) -> None:
        self.offset += len(data)
        self._tail = (self._tail + data)[-TAIL:]
        self.grown_at = now


class GrowingLog:
    """The files of a log, each with a position; all positions move only in `read`."""

    def __init__(self, path: Path, positions: Sequence[Position] = ()) -> None:
        """`positions`: those of an earlier run; without any, the log is read from its start, without rotated files."""
        self._path = path
        self._saved: Sequence[Position] = positions
        self._sources: list[_Source] = []
        self.problem: str | None = None
        """Why the log cannot be read, at the last attempt."""

    @property
    def positions(self) -> list[Position]:
        """The positions to continue from, the oldest file first."""
        return [*self._saved, *(source.position for source in self._sources)]

    @property
    def unread(self) -> int:
        """Bytes that are not read yet."""
        return sum(source.unread for source in self._sources)

    def read(self, now: float) -> list[bytes] | None:
        """The next whole lines, without line breaks, in any number; None if there are none now. `now` is monotonic."""
        self.find(now)
        for source in self._sources:
            try:
                lines = source.read(now)
            except _TruncatedError:
                source.truncated = True
                return self._after_truncation(now)
            except OSError as error:
                if not source.file.compressed:
                    self._cannot_read(error)
                    continue
                logger.warning("%s: a compressed file is damaged: %s; lines may be missing", self._path, error)
                self._close(source)
                return []
            if lines is not None:
                return lines
        return self._close_rotated(now)

    def find(self, now: float) -> None:
        """Open the files of the log that are not open yet."""
        try:
            self._find_files(now)
        except OSError as error:
            self._cannot_read(error)

    def _cannot_read(self, error: OSError) -> None:
        self.problem = f"{self._path} cannot be read: {system_reason(error)}"

    def _after_truncation(self, now: float) -> list[bytes] | None:
        try:
            self._compare(now)
        except OSError as error:
            self._cannot_read(error)
            return None
        return []

    def _close(self, source: _Source) -> None:
        self._sources.remove(source)
        source.file.close()

    def close(self) -> None:
        for source in self._sources:
            source.file.close()

    def _find_files(self, now: float) -> None:
        try:
            state = self._path.stat()
        except FileNotFoundError:
            missing = f"{self._path} does not exist"
            if self._saved or self.problem != missing:  # rotated, perhaps more than once
                self._compare(now)
            self.problem = missing
            return
        if not S_ISREG(state.st_mode):
            self.problem = f"{self._path} is not a regular file"
            return
        newest = self._sources[-1] if self._sources else None
        if (
            newest is None
            or newest.identity != (state.st_dev, state.st_ino)
            or (newest.offset == 0 and newest.modified != state.st_mtime_ns)  # perhaps copied and truncated since
        ):
            self._compare(now)
        self.problem = None

    def _compare(self, now: float) -> None:
        """Compare the listed files with the positions, and open those that are new."""
        with ExitStack() as opened:
            sources = self._sources_now(now, opened)
            if sources is None:
                return
            opened.pop_all()
        for source in self._sources:
            if source not in sources:
                source.file.close()
        for source in sources:
            source.grown_at = now  # a program may write to a renamed file for a while
        self._sources, self._saved = sources, ()

    def _sources_now(self, now: float, opened: ExitStack) -> list[_Source] | None:
        """The files to read; None to look again later."""
        parts = list_parts(self._path)
        known: list[tuple[Position, _Source | None]] = [(position, None) for position in self._saved]
        known += [(source.position, source) for source in self._sources]
        if not known:
            return [_open(part, now, opened) for part in parts if part.path == self._path]
        sources: list[_Source] = []
        found: dict[Identity, _Source] = {}  # by file in the listing
        last_known = -1
        for position, kept in known:
            source = kept
            usable = source is not None and not source.truncated
            index = _find(position, parts, taken=found, still_open=usable)
            if index is None:
                if source is not None and usable:  # deleted, but still open
                    sources.append(source)
                continue
            part = parts[index]
            if source is None or not usable:
                source = _open(part, now, opened, position)
            found[part.identity] = source
            if source.offset or part.path != self._path or (kept is None and position.known):
                last_known = max(last_known, index)
        newest = self.positions[-1]
        if not parts and self._saved:
            return None  # perhaps its file system is not mounted
        if last_known < 0:
            new = [part for part in parts if part.modified > newest.modified or part.path == self._path]
            if newest.offset:
                logger.warning(
                    "%s: was truncated or replaced, and no rotated file has the %d bytes that were read; lines may be "
                    "missing",
                    self._path,
                    newest.offset,
                )
        else:
            new = parts[last_known + 1 :]
        for part in _without_copies([part for part in new if part.identity not in found], self._path):
            found[part.identity] = _open(part, now, opened)
        return sources + [found[part.identity] for part in parts if part.identity in found]

    def _close_rotated(self, now: float) -> list[bytes] | None:
        """Close a rotated file that has ended; the previous one stays until the next one has a position behind a line.

        Before that, it is unknown whether the current file was truncated.
        """
        for source in self._sources[:-1]:
            ended = source.file.compressed or now - source.grown_at >= ROTATED_SECONDS
            if ended and self._sources[-1].offset:
                rest = source.last_line(now)
                self._close(source)
                return rest
        return None


def _open(part: Part, now: float, opened: ExitStack, position: Position | None = None) -> _Source:
    file = PartFile(part)
    opened.callback(file.close)
    if position is None:
        return _Source(part, file, now)
    return _Source(part, file, now, position.offset, skipping=position.skipping)


def _find(position: Position, parts: Sequence[Part], taken: Iterable[Identity], *, still_open: bool) -> int | None:
    """The index of the file with the position, by its inode or by its contents.

    A file that was empty is known only while it is open, because its inode may be used again.
    """
    for index, part in enumerate(parts):
        same = part.identity == (position.device, position.inode)
        if same and part.identity not in taken and (still_open or (position.known and _has(part, position))):
            return index
    if position.known:
        for index in reversed(range(len(parts))):
            if parts[index].identity not in taken and _has(parts[index], position):
                return index
    return None


def _has(part: Part, position: Position) -> bool:
    with suppress(OSError):
        file = PartFile(part)
        try:
            return position.is_in(file)
        finally:
            file.close()
    return False


def _without_copies(parts: list[Part], path: Path) -> list[Part]:
    """The files that are not copies of the current one: before it truncates a log, logrotate copies it."""
    current = next((part for part in parts if part.path == path), None)
    head = b"" if current is None else _head(current)
    if not head:
        return parts
    return [part for part in parts if part is current or part.compressed or not head.startswith(_head(part) or b"\0")]


def _head(part: Part) -> bytes:
    file = PartFile(part)
    try:
        return file.read(0, _HEAD)
    finally:
        file.close()
