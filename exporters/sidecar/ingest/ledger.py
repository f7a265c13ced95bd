"""The accounts of all requests by endpoint: begun = open + recorded + dropped + lost, whichever process is killed.

A request is recorded when its line is in the request log, or when it is counted if there is no log. Requests that a
relay had begun when it crashed, and that are neither recorded nor dropped, are lost. The account of a relay run is in
its journal. When the run is over, it is added to the totals, a file beside the journals. Both survive each process of
the sidecar. Requests that the last run of the sidecar has left behind are counted after the first scrape, which shows
the counters without them: a counter that begins above 0 has no increase in Prometheus.
"""

import contextlib
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import msgspec
from prometheus_client.core import Metric

from exporters.exposition.accumulators import counter
from exporters.processes.child import TaskErrors
from exporters.records.journal import (
    ENDPOINTS,
    NO_LINE,
    PAGE,
    JournalFile,
    Recorded,
    endpoint_index,
    no_counts,
    read_value,
    try_lock,
    write_value,
)
from exporters.records.messages import Finished, Record
from exporters.requestlog.writer import DROP_REASONS
from exporters.vocabulary import signals

RELAY_CRASHED, SIDECAR_STOPPED = "relay_crashed", "sidecar_stopped"
LOST_REASONS = (RELAY_CRASHED, SIDECAR_STOPPED)
"""Why requests were lost: their relay crashed, or the sidecar ended before they were recorded."""

_TOTALS = "totals"

logger = logging.getLogger("vllm_slo.exporter")


def _by_reason(reasons: Iterable[str]) -> dict[str, list[int]]:
    return {reason: no_counts() for reason in reasons}


class Totals(msgspec.Struct):
    """Requests by endpoint, in the order of `ENDPOINTS`; `dropped` and `lost` by reason, too."""

    begun: list[int] = msgspec.field(default_factory=no_counts)
    recorded: list[int] = msgspec.field(default_factory=no_counts)
    dropped_lines: dict[str, list[int]] = msgspec.field(default_factory=partial(_by_reason, DROP_REASONS))
    dropped_records: list[int] = msgspec.field(default_factory=no_counts)
    lost: dict[str, list[int]] = msgspec.field(default_factory=partial(_by_reason, LOST_REASONS))
    last_added: str = ""
    """The last relay run, or run of the sidecar, that was added: its journals may not be deleted yet."""

    def add(self, account: "Account") -> None:
        _add(self.begun, account.begun())
        _add(self.recorded, account.state.recorded)
        for reason, dropped in account.state.dropped.items():
            _add(self.dropped_lines[reason], dropped)
        _add(self.dropped_records, account.dropped_records())

    def copy(self) -> "Totals":
        return msgspec.msgpack.decode(msgspec.msgpack.encode(self), type=Totals)


class Account:
    """The account of a relay run; without a journal, requests are begun when they are recorded or dropped."""

    def __init__(self, run_id: str, file: JournalFile | None, last_line: int) -> None:
        """`last_line` is the number of the last record whose line is in the request log."""
        self.run_id = run_id
        self.file = file
        self.state = (file and file.recorded()) or Recorded(0, no_counts(), {})
        self.changed = False
        self.seems_over = False
        # Lines that a killed exporter has still written.
        lines, self.state.next_lines = self.state.next_lines, b""
        for endpoint in lines[: max(0, last_line - self.state.last)]:
            self.state.last += 1
            if endpoint != NO_LINE:
                self.state.recorded[min(endpoint, len(ENDPOINTS) - 1)] += 1

    def begun(self) -> list[int]:
        begun = no_counts() if self.file is None else self.file.begun()
        return [max(pair) for pair in zip(begun, self._accounted(), strict=True)]

    def dropped_records(self) -> list[int]:
        return no_counts() if self.file is None else self.file.dropped()

    def missing(self) -> list[int]:
        """Requests that were begun and neither recorded nor dropped."""
        return [begun - accounted for begun, accounted in zip(self.begun(), self._accounted(), strict=True)]

    def _accounted(self) -> list[int]:
        accounted = no_counts()
        for counts in (self.state.recorded, *self.state.dropped.values(), self.dropped_records()):
            _add(accounted, counts)
        return accounted


class RequestLedger:
    """The accounts of this run of the sidecar; without a folder, they end with this process."""

    def __init__(
        self,
        folder: Path | None = None,
        last_line: Callable[[str], int] = lambda _run_id: 0,
        task_errors: TaskErrors | None = None,
    ) -> None:
        """`last_line` returns the number of the last record of a relay run whose line is in the request log."""
        self._folder = folder
        self._last_line = last_line
        self._task_errors = task_errors or TaskErrors()
        self._accounts: dict[str, Account] = {}
        self._totals = Totals()
        self._totals_file: int | None = None
        self._left_behind: dict[Path, list[int]] = {}
        """Lost requests of earlier runs of the sidecar by folder, until they are in the totals."""
        self._scraped = False
        if folder is not None:
            with self._reported("opening the accounts of requests"):
                folder.mkdir(parents=True, exist_ok=True)
                self._totals_file = _open_totals(folder)
                try_lock(self._totals_file)
                self._totals = read_value(self._totals_file, Totals) or self._totals
        self._added = {self._totals.last_added}
        """Runs that are in the totals."""

    # Called for each batch of records.

    def expect_lines(self, run_id: str, first: int, records: Iterable[Record]) -> None:
        """The lines of these records, numbered from `first`, are written next; all before them are settled."""
        account = self._account(run_id)
        state = account.state
        state.last = max(state.last, first - 1)
        lines = bytes(endpoint_index(each.api) if isinstance(each, Finished) else NO_LINE for each in records)
        state.next_lines = lines[state.last + 1 - first :]
        account.changed = True
        self._save(account)

    def settle(self, run_id: str, stored: Iterable[tuple[int, Record, str | None]]) -> None:
        """Records are stored, in this order: their lines were written, dropped for a reason, or are not needed."""
        account = self._account(run_id)
        state = account.state
        for number, record, dropped in stored:
            if number <= state.last:
                continue
            state.last, state.next_lines, account.changed = number, b"", True
            if isinstance(record, Finished):
                counts = state.recorded if dropped is None else state.dropped.setdefault(dropped, no_counts())
                counts[endpoint_index(record.api)] += 1

    def save(self) -> None:
        """Write what has changed; called before records are acknowledged."""
        for account in self._accounts.values():
            self._save(account)

    # Called once a second.

    def check(self, in_use: Callable[[str], bool]) -> None:
        """Close the accounts of relay runs that are over; `in_use`: records of the run may arrive, or wait."""
        if self._folder is None:
            return
        for account in self._all_accounts():
            if account.file is None or in_use(account.run_id) or not account.file.relay_is_dead():
                account.seems_over = False
            elif not account.seems_over:  # its last records may be in the socket: wait until the next check
                account.seems_over = True
            else:
                self._close_account(account, account.file)
        with self._reported("reading the accounts of earlier runs"):
            self._find_left_behind(self._folder)

    def scraped(self) -> None:
        """A scrape has shown the counters, so that an increase is visible."""
        self._scraped = True
        self._add_left_behind()

    def close(self) -> None:
        """Delete the journals of relays that have left nothing; the next run of the sidecar counts the others."""
        self.save()
        if self._folder is None:
            return
        missing = sum(sum(account.missing()) for account in self._all_accounts())
        self.release()
        if missing:
            logger.error("%d requests are neither logged nor counted; the next start counts them as lost", missing)
        elif not self._left_behind:
            with self._reported("deleting the journals"):
                shutil.rmtree(self._folder)
                self._folder.parent.rmdir()

    def release(self) -> None:
        """Close all files, and forget the accounts."""
        while self._accounts:
            _, account = self._accounts.popitem()
            if account.file is not None:
                account.file.close()
        if self._totals_file is not None:
            os.close(self._totals_file)
            self._totals_file = None

    def counts(self) -> Totals:
        """All requests so far."""
        totals = self._totals.copy()
        for account in self._all_accounts():
            totals.add(account)
        return totals

    def dropped_lines(self) -> dict[str, int]:
        """Lines that were dropped, by reason."""
        return {reason: sum(counts) for reason, counts in self.counts().dropped_lines.items()}

    def collect(self) -> Iterator[Metric]:
        totals = self.counts()
        yield counter(signals.SIDECAR_BEGUN, _by_endpoint(totals.begun))
        yield counter(signals.SIDECAR_RECORDED, _by_endpoint(totals.recorded))
        yield counter(signals.SIDECAR_DROPPED, _by_endpoint(totals.dropped_records))
        for signal, reasons in (
            (signals.SIDECAR_DROPPED_LINES, totals.dropped_lines),
            (signals.SIDECAR_LOST, totals.lost),
        ):
            yield counter(signal, [each for reason, row in reasons.items() for each in _by_endpoint(row, reason)])

    # Internal.

    def _account(self, run_id: str) -> Account:
        account = self._accounts.get(run_id)
        if account is None:
            file = None
            if self._folder is not None:
                with self._reported("opening a journal"):
                    file = JournalFile(self._folder / run_id)
            account = self._accounts[run_id] = Account(run_id, file, self._last_line(run_id))
        return account

    def _all_accounts(self) -> list[Account]:
        """The accounts of all runs, also of those whose records have not arrived."""
        with self._reported("listing the journals"):
            for path in [] if self._folder is None else _journals(self._folder):
                if path.name not in self._added:
                    self._account(path.name)
        return [*self._accounts.values()]

    def _save(self, account: Account) -> None:
        if account.changed and account.file is not None:
            account.changed = False
            with self._reported("writing a journal"):
                account.file.write(account.state)

    def _close_account(self, account: Account, file: JournalFile) -> None:
        lost = account.missing()
        self._totals.add(account)
        del self._accounts[account.run_id]
        self._add_lost(lost, RELAY_CRASHED, account.run_id)
        file.close()
        with self._reported("deleting a journal"):
            file.path.unlink(missing_ok=True)
        if any(lost):
            logger.error("%s: %d requests are lost, because their relay has crashed", account.run_id, sum(lost))

    def _find_left_behind(self, folder: Path) -> None:
        """Find the requests that earlier runs of the sidecar have begun and not recorded."""
        for earlier in folder.parent.iterdir():
            if earlier == folder or earlier in self._left_behind:
                continue
            lost = no_counts() if earlier.name in self._added else self._missing_in(earlier)
            if lost is None:
                continue
            if not any(lost):
                shutil.rmtree(earlier)
                continue
            logger.error("%d requests of the last run of the sidecar are lost", sum(lost))
            self._left_behind[earlier] = lost
        if self._scraped:
            self._add_left_behind()

    def _missing_in(self, folder: Path) -> list[int] | None:
        """The missing requests of a run of the sidecar; None while one of its processes is alive."""
        missing = no_counts()
        with contextlib.ExitStack() as stack:
            totals = _open_totals(folder)
            stack.callback(os.close, totals)
            if not try_lock(totals):
                return None
            for path in _journals(folder):
                file = JournalFile(path)
                stack.callback(file.close)
                if not file.relay_is_dead():
                    return None
                _add(missing, Account(path.name, file, self._last_line(path.name)).missing())
        return missing

    def _add_left_behind(self) -> None:
        while self._left_behind:
            folder, lost = self._left_behind.popitem()
            _add(self._totals.begun, lost)
            self._add_lost(lost, SIDECAR_STOPPED, folder.name)
            with self._reported("deleting the journals of the last run"):
                shutil.rmtree(folder)

    def _add_lost(self, lost: list[int], reason: str, name: str) -> None:
        _add(self._totals.lost[reason], lost)
        self._added.add(name)
        self._totals.last_added = name
        if self._totals_file is not None:
            with self._reported("writing the accounts of requests"):
                write_value(self._totals_file, self._totals)

    @contextlib.contextmanager
    def _reported(self, task: str) -> Iterator[None]:
        """Count an error of the file system; the accounts of this process continue in memory."""
        try:
            yield
        except OSError as error:
            self._task_errors.add(task, error)


def _add(counts: list[int], others: Iterable[int]) -> None:
    for n, other in enumerate(others):
        counts[n] += other


def _by_endpoint(counts: list[int], *reason: str) -> list[tuple[tuple[str, ...], float]]:
    return [((*reason, endpoint), float(count)) for endpoint, count in zip(ENDPOINTS, counts, strict=True)]


def _journals(folder: Path) -> list[Path]:
    """The journals of relay runs; a name with a dot is that of one that is being created."""
    return [path for path in folder.iterdir() if path.name != _TOTALS and not path.name.startswith(".")]


def _open_totals(folder: Path) -> int:
    file = os.open(folder / _TOTALS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.posix_fallocate(file, 0, PAGE)  # so that a full disk stops no count
    return file
