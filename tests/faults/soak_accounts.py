"""The accounts of a soak: each request that a relay has begun is open, has a line, or is counted as dropped or lost.

While no request begins or ends, these are exact, whichever process was killed at whatever time:

- Begun requests = open requests + lines in all files of the request log + dropped lines + dropped records + lost
  requests.
- Requests that have ended for their clients = begun requests - open requests + requests that no relay has read. Only
  while a relay is killed may a client send a request that is not read.
- Connections that clients saw closed at the limit = `llm_sidecar_rejected_connections_total`. Those that got a response
  are also requests with a line; the others never became a request.
- The increase of `llm_requests_total` within a run of the exporter = recorded requests + dropped lines.

The accounts of the sidecar survive its processes. When all of them have ended, those of that run are read from their
files. A relay reports its rejected connections to each run of the exporter; they are added when the relay is killed.
The final `llm_requests_total` of a killed exporter is unknown. So after a kill only a bound is checked: the new
exporter has counted at most the requests that have ended since the last check.
"""

import contextlib
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import msgspec

from exporters.requestlog.writer import DROP_REASONS, RequestLog
from exporters.sidecar.ingest.ledger import LOST_REASONS, RequestLedger
from tests.faults.fault_scripts import log_errors

BEGUN, LOST = "llm_sidecar_begun_requests_total", "llm_sidecar_lost_requests_total"
DROPPED_LINES, DROPPED_RECORDS = "llm_sidecar_dropped_log_lines_total", "llm_sidecar_dropped_records_total"
REJECTED, COUNTED, RESTARTS = (
    "llm_sidecar_rejected_connections_total",
    "llm_requests_total",
    "llm_sidecar_restarts_total",
)
ACCOUNTS = (BEGUN, DROPPED_LINES, DROPPED_RECORDS, LOST)

Samples = dict[str, float]


class _Line(msgspec.Struct):
    request_id: str
    outcome: str


_decode = msgspec.json.Decoder(_Line).decode


def log_files(log: Path) -> list[Path]:
    """The request log and its rotated files; a FIFO is none."""
    return sorted(file for file in log.parent.glob(f"{log.name}*") if file.is_file())


@dataclass
class LogFollower:
    """Reads the lines that were added to the request log, also if its file was renamed meanwhile."""

    log: Path
    lines: list[tuple[str, str]] = field(default_factory=list)
    """Request id and outcome."""
    _read: dict[int, int] = field(default_factory=dict)
    """Bytes by inode."""

    def read(self) -> None:
        for path in log_files(self.log):
            with contextlib.suppress(FileNotFoundError), path.open("rb") as file:  # it may be renamed now
                self._read_file(file)

    def _read_file(self, file: BinaryIO) -> None:
        status = os.fstat(file.fileno())
        start = self._read.get(status.st_ino, 0)
        if status.st_size == start:
            return
        file.seek(start)
        data = file.read()
        whole = data.rfind(b"\n") + 1
        self._read[status.st_ino] = start + whole
        for text in data[:whole].splitlines():
            line = _decode(text)
            self.lines.append((line.request_id, line.outcome))


def total(samples: Samples, name: str) -> int:
    """The sum of all series of a metric."""
    return round(sum(value for series, value in samples.items() if series.startswith(f"{name}{{")))


def of(samples: Samples, name: str, process: str) -> int:
    return round(samples.get(f"{name}{{{process}}}", 0))


@dataclass(frozen=True, slots=True)
class Balance:
    """Both sides of the accounts at one time."""

    begun: int
    open: int
    lines: int
    dropped_lines: int
    dropped_records: int
    lost: int
    ended: int
    unread: int
    turned_away: int
    rejected: int

    @property
    def even(self) -> bool:
        return (
            self.begun == self.open + self.lines + self.missing
            and self.not_read == 0
            and self.turned_away == self.rejected
        )

    @property
    def not_read(self) -> int:
        """Further requests that have ended for their clients and that no relay has begun."""
        return self.ended - (self.begun - self.open + self.unread)

    @property
    def missing(self) -> int:
        """Ended requests without a line that are counted."""
        return self.dropped_lines + self.dropped_records + self.lost

    @property
    def counted(self) -> int:
        """Requests that `llm_requests_total` has counted, over all runs of the exporter."""
        return self.lines + self.dropped_lines

    def __str__(self) -> str:
        return (
            f"{self.begun} requests begun = {self.open} open + {self.lines} lines logged + {self.dropped_lines} lines "
            f"dropped + {self.dropped_records} records dropped + {self.lost} requests lost; {self.ended} ended for "
            f"their clients, {self.unread} of them not read; {self.turned_away} connections turned away, "
            f"{self.rejected} counted"
        )


def _by_reason(samples: Samples) -> Counter[str]:
    """Dropped lines and lost requests."""
    reasons: Counter[str] = Counter()
    for series, value in samples.items():
        if series.startswith((f"{DROPPED_LINES}{{", f"{LOST}{{")):
            reasons[series.partition("{")[2].partition(",")[0]] += round(value)
    return reasons


@dataclass
class Accounts:
    """The counters of all runs of all processes, and the request log."""

    follower: LogFollower
    unread: int = 0
    """Requests that clients have sent and no relay has read."""
    _earlier: Counter[str] = field(default_factory=Counter)
    """By metric, of relays that were killed and of runs of the sidecar that have ended."""
    _exporter: int | None = None
    _at_check: tuple[int, int] = (0, 0)
    """`llm_requests_total`, and what it should be, at the last comparison in this run of the exporter."""

    def close_relay(self, samples: Samples, process: str) -> None:
        """The relay with these samples was killed."""
        self._earlier[REJECTED] += of(samples, REJECTED, process)

    def close_sidecar(self, last: Samples) -> None:
        """All processes of a run of the sidecar have ended; `last` are its last samples."""
        self.follower.read()
        log = RequestLog(self.follower.log)
        log.close()
        runs = self.runs()
        for folder in runs:
            ledger = RequestLedger(folder, lambda run_id: log.last_numbers.get(run_id, 0))
            totals = ledger.counts()
            ledger.release()
            dropped, lost = (sum(map(sum, counts.values())) for counts in (totals.dropped_lines, totals.lost))
            by_reason = totals.dropped_lines | totals.lost
            self._earlier += Counter({reason: sum(counts) for reason, counts in by_reason.items()})
            recorded, dropped_records = sum(totals.recorded), sum(totals.dropped_records)
            # The next run counts the rest as begun and as lost.
            begun = recorded + dropped + dropped_records + lost
            self._earlier += Counter(
                {BEGUN: begun, DROPPED_LINES: dropped, DROPPED_RECORDS: dropped_records, LOST: lost}
            )
        if not runs:  # nothing was left
            self._earlier += _by_reason(last)
            self._earlier += Counter({name: total(last, name) for name in (DROPPED_LINES, DROPPED_RECORDS, LOST)})
            accounted = sum(self._earlier[name] for name in (DROPPED_LINES, DROPPED_RECORDS, LOST))
            self._earlier[BEGUN] = len(self.follower.lines) + accounted

    def runs(self) -> list[Path]:
        """The folders with the accounts of runs of the sidecar."""
        return [folder for folder in Path(f"{self.follower.log}.journal").glob("*") if folder.is_dir()]

    def since_start(self, samples: Samples, name: str) -> int:
        """A counter, over all runs of its process."""
        return self._earlier[name] + total(samples, name)

    def reasons(self, samples: Samples) -> dict[str, int]:
        """Dropped lines and lost requests by reason, over all runs."""
        earlier = Counter({reason: self._earlier[reason] for reason in (*DROP_REASONS, *LOST_REASONS)})
        return dict(earlier + _by_reason(samples))

    def balance(self, samples: Samples, open_requests: int, ended: int, turned_away: int) -> Balance:
        begun, dropped_lines, dropped_records, lost = (self.since_start(samples, name) for name in ACCOUNTS)
        return Balance(
            begun,
            open_requests,
            len(self.follower.lines),
            dropped_lines,
            dropped_records,
            lost,
            ended,
            self.unread,
            turned_away,
            self.since_start(samples, REJECTED),
        )

    def count_errors(self, samples: Samples, balance: Balance, exporter: int | None) -> list[str]:
        """The difference between `llm_requests_total` and the requests counted since the last comparison."""
        counted_before, should_before = self._at_check
        counted, should = total(samples, COUNTED), balance.counted - should_before
        same, self._exporter = exporter == self._exporter, exporter
        self._at_check = counted, balance.counted
        if same and counted - counted_before != should:
            return [f"{COUNTED} increased by {counted - counted_before} for {should} requests"]
        if not same and counted > should:
            return [f"{COUNTED} of a new exporter is {counted} for {should} requests"]
        return []


def identity_errors(offered: dict[str, set[str]], lines: list[tuple[str, str]], balance: Balance) -> list[str]:
    """The requests with several lines or a wrong outcome, and whether the number of those without a line is counted."""
    logged = {request_id for request_id, _ in lines}
    errors = log_errors({request_id: offered[request_id] for request_id in offered if request_id in logged}, lines)
    missing = [request_id for request_id in offered if request_id not in logged]
    counted = balance.missing + balance.unread
    if len(missing) != counted:
        errors.append(f"{len(missing)} requests have no line, but {counted} are counted: {', '.join(missing[:20])}")
    return errors
