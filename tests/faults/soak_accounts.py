"""The accounts of a soak: what clients offered must equal what is logged or counted as dropped, lost or rejected.

While no request begins or ends, these are exact:

- Requests that have ended for their clients = lines in all files of the request log + dropped lines + dropped records +
  lost requests.
- Connections that clients saw closed at the limit = `llm_sidecar_rejected_connections_total`. Those that got a response
  are also requests with a line; the others never became a request.
- The increase of `llm_requests_total` within a run of the exporter = ended requests - dropped records - lost requests.

The counters of a killed exporter are gone. Those of dropped lines and of lost requests do not change at that time,
because faults are injected one after the other; they are read before the kill and added. A relay reports its dropped
records and rejected connections to each run of the exporter; they are added when the relay is killed. The final
`llm_requests_total` of a killed exporter is unknown. So after a kill only a bound is checked: the new exporter has
counted at most the requests that have ended since the last check.
"""

import contextlib
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import msgspec

from tests.faults.fault_scripts import log_errors

DROPPED_LINES, DROPPED_RECORDS = "llm_sidecar_dropped_log_lines_total", "llm_sidecar_dropped_records_total"
LOST, REJECTED = "llm_sidecar_lost_requests_total", "llm_sidecar_rejected_connections_total"
COUNTED, RESTARTS = "llm_requests_total", "llm_sidecar_restarts_total"
OF_EXPORTER = (DROPPED_LINES, LOST)
OF_RELAY = (DROPPED_RECORDS, REJECTED)

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

    ended: int
    lines: int
    dropped_lines: int
    dropped_records: int
    lost: int
    turned_away: int
    rejected: int

    @property
    def even(self) -> bool:
        missing = self.ended - self.lines
        return missing == self.dropped_lines + self.dropped_records + self.lost and self.turned_away == self.rejected

    @property
    def recorded(self) -> int:
        """Requests whose record has reached the exporter."""
        return self.ended - self.dropped_records - self.lost

    def __str__(self) -> str:
        return (
            f"{self.ended} requests ended, {self.lines} lines logged, {self.dropped_lines} lines dropped, "
            f"{self.dropped_records} records dropped, {self.lost} requests lost; "
            f"{self.turned_away} connections turned away, {self.rejected} counted"
        )


@dataclass
class Accounts:
    """The counters of all runs of all processes, and the request log."""

    follower: LogFollower
    _earlier: Counter[str] = field(default_factory=Counter)
    """By metric, of the processes that were killed."""
    _exporter: int | None = None
    _at_check: tuple[int, int] = (0, 0)
    """`llm_requests_total`, and the requests recorded, at the last comparison in this run of the exporter."""

    def close_exporter(self, samples: Samples) -> None:
        """The exporter with these samples is about to be killed."""
        for name in OF_EXPORTER:
            self._earlier[name] += total(samples, name)

    def close_relay(self, samples: Samples, process: str) -> None:
        """The relay with these samples was killed."""
        for name in OF_RELAY:
            self._earlier[name] += of(samples, name, process)

    def since_start(self, samples: Samples, name: str) -> int:
        """A counter, over all runs of its process."""
        return self._earlier[name] + total(samples, name)

    def balance(self, samples: Samples, ended: int, turned_away: int) -> Balance:
        return Balance(
            ended,
            len(self.follower.lines),
            self.since_start(samples, DROPPED_LINES),
            self.since_start(samples, DROPPED_RECORDS),
            self.since_start(samples, LOST),
            turned_away,
            self.since_start(samples, REJECTED),
        )

    def count_errors(self, samples: Samples, balance: Balance, exporter: int | None) -> list[str]:
        """The difference between `llm_requests_total` and the requests recorded since the last comparison."""
        counted_before, recorded_before = self._at_check
        counted, recorded = total(samples, COUNTED), balance.recorded - recorded_before
        same, self._exporter = exporter == self._exporter, exporter
        self._at_check = counted, balance.recorded
        if same and counted - counted_before != recorded:
            return [f"{COUNTED} increased by {counted - counted_before} for {recorded} requests"]
        if not same and counted > recorded:
            return [f"{COUNTED} of a new exporter is {counted} for {recorded} requests"]
        return []


def identity_errors(offered: dict[str, set[str]], lines: list[tuple[str, str]], balance: Balance) -> list[str]:
    """The requests with several lines or a wrong outcome, and whether the number of those without a line is counted."""
    logged = {request_id for request_id, _ in lines}
    errors = log_errors({request_id: offered[request_id] for request_id in offered if request_id in logged}, lines)
    missing = [request_id for request_id in offered if request_id not in logged]
    counted = balance.dropped_lines + balance.dropped_records + balance.lost
    if len(missing) != counted:
        errors.append(f"{len(missing)} requests have no line, but {counted} are counted: {', '.join(missing[:20])}")
    return errors
