"""Keeps spans in an SQLite file, bounded by age and size: the spans that arrived first are deleted first."""

import sqlite3
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from exporters.analysis.traces.request_search import Search
from exporters.analysis.traces.span_parser import Request, Span, request_of
from exporters.text.errors import UsageError, system_reason
from exporters.text.output_files import create_folder

MAX_SPANS_OF_TRACE = 2_000
"""Spans of one trace that are read: a page with more cannot be read by a person."""

_APPLICATION_ID = 0x76534C03
"""Marks a file of this format; another format needs another number."""

_SCHEMA = """
CREATE TABLE spans (
  number INTEGER PRIMARY KEY,
  received REAL NOT NULL,
  trace_id TEXT NOT NULL,
  span_id TEXT NOT NULL,
  start INTEGER NOT NULL,
  span BLOB NOT NULL,
  duration INTEGER, request_id TEXT, class TEXT, tenant TEXT, model TEXT, route TEXT, outcome TEXT, verdict TEXT,
  slos TEXT,
  request BLOB,
  UNIQUE (trace_id, span_id)
);
CREATE INDEX arrivals ON spans (received);
CREATE INDEX requests ON spans (start) WHERE request IS NOT NULL;
"""
_OF_REQUEST = ("duration", "request_id", "class", "tenant", "model", "route", "outcome", "verdict")
_COLUMNS = ("received", "trace_id", "span_id", "start", "span", *_OF_REQUEST, "slos", "request")
_INSERT = f"INSERT OR REPLACE INTO spans ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608

FILTERED = ("class", "tenant", "model", "route", "outcome")
"""Fields with few values, which the list offers."""


class SpanStore:
    """One file; its methods block, and may be called by several threads."""

    def __init__(self, path: Path, *, keep: float, max_bytes: int) -> None:
        """Open or create the file.

        Raises:
            UsageError: the file cannot be used.
        """
        self._path = path
        self._keep = keep
        self._max_bytes = max_bytes
        self._writing, self._reading = threading.Lock(), threading.Lock()
        self._writer = _open(path)
        self._reader = _connect(path)
        self._inode = _inode(path)

    def close(self) -> None:
        self._reader.close()
        self._writer.close()

    def add(self, spans: Iterable[Span], now: float) -> None:
        """Store spans, of which one with known ids replaces the earlier one, and delete those that exceed the limits.

        Raises:
            sqlite3.Error: they cannot be written, for example because the disk is full; none is stored.
        """
        rows = [_row(span, now) for span in spans]
        with self._writing:
            if self._inode != _inode(self._path) or not self._inode:
                self._open_again()
            with self._writer:
                self._writer.execute("BEGIN IMMEDIATE")
                self._writer.executemany(_INSERT, rows)
                self._delete(now)

    def delete_old(self, now: float) -> None:
        """Delete what exceeds the limits although nothing arrives."""
        with self._writing, self._writer:
            self._writer.execute("BEGIN IMMEDIATE")
            self._delete(now)

    def shrink(self) -> None:
        """Return unused pages to the file system."""
        with self._writing:
            self._writer.executescript("PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE)")

    def requests(self, search: Search, now: float) -> tuple[list[Request], int]:
        """The first requests that match, and the number of all that match."""
        where, values = search.condition()
        source = f"FROM spans WHERE request IS NOT NULL AND received >= ? AND {where}"
        values = [now - self._keep, *values]
        with self._reading, self._reader:
            self._reader.execute("BEGIN")  # both statements read the same state
            (count,) = self._reader.execute(f"SELECT count(*) {source}", values).fetchone()
            select = f"SELECT request {source} ORDER BY {search.order} LIMIT ?"
            rows = self._reader.execute(select, [*values, search.limit]).fetchall()
        return [msgspec.json.decode(row[0], type=Request) for row in rows], count

    def trace(self, trace_id: str, now: float) -> list[Span]:
        """The spans of a trace by start; empty if it is unknown."""
        rows = self._read(
            "SELECT span FROM spans WHERE trace_id = ? AND received >= ? ORDER BY start, number LIMIT ?",
            [trace_id, now - self._keep, MAX_SPANS_OF_TRACE],
        )
        return [msgspec.json.decode(row[0], type=Span) for row in rows]

    def values(self) -> dict[str, list[str]]:
        """The values of the fields that the list offers as filters."""
        rows = self._read(f"SELECT DISTINCT {', '.join(FILTERED)} FROM spans WHERE request IS NOT NULL", [])  # noqa: S608
        return {name: sorted({row[at] for row in rows if row[at]}) for at, name in enumerate(FILTERED)}

    def _open_again(self) -> None:
        """Open the file at the path, because another program has removed or replaced the open one."""
        with self._reading:
            self.close()  # first, because SQLite deletes the other files of the database by their names
            self._inode = 0
            try:
                create_folder(self._path)
                self._writer, self._reader = _open(self._path), _connect(self._path)
            except (OSError, UsageError) as error:
                raise sqlite3.OperationalError(str(error)) from error
            self._inode = _inode(self._path)

    def _read(self, statement: str, values: Sequence[Any]) -> list[Any]:
        with self._reading:
            return self._reader.execute(statement, values).fetchall()

    def _delete(self, now: float) -> None:
        self._writer.execute("DELETE FROM spans WHERE received < ?", [now - self._keep])
        while self._used() > self._max_bytes:
            first, last = self._writer.execute("SELECT min(number), max(number) FROM spans").fetchone()
            if first is None:
                return
            self._writer.execute("DELETE FROM spans WHERE number <= ?", [first + (last - first) // 10])

    def _used(self) -> int:
        pages, free, size = (
            self._writer.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)


def _open(path: Path) -> sqlite3.Connection:
    try:
        with path.open("ab"):
            pass
    except OSError as error:
        raise UsageError(f"--trace-file: {path} cannot be written: {system_reason(error)}") from error
    connection = _connect(path)
    try:
        if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.executescript(f"PRAGMA application_id = {_APPLICATION_ID}; BEGIN; {_SCHEMA} COMMIT;")
        if connection.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID:
            raise sqlite3.DatabaseError("file is not a trace store of this version")  # noqa: TRY301 - one exit
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA journal_size_limit = 4194304").fetchone()
    except sqlite3.DatabaseError as error:
        connection.close()
        raise UsageError(f"--trace-file: {path} cannot be used: {error}; choose another file") from error
    return connection


def _inode(path: Path) -> int:
    """The inode of the file; 0 if there is none."""
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False)


def _row(span: Span, now: float) -> tuple[Any, ...]:
    request = request_of(span)
    ids = (now, span.trace_id, span.span_id, span.start, msgspec.json.encode(span))
    if request is None:
        return (*ids, *(None,) * (len(_COLUMNS) - len(ids)))
    fields = msgspec.to_builtins(request)
    slos = "".join(f"\n{slo}={verdict}" for slo, verdict in request.slos.items()) + "\n"
    return (*ids, *map(fields.get, _OF_REQUEST), slos, msgspec.json.encode(request))
