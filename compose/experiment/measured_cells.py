"""What the grades of an experiment are made from: its cells with a valid measurement, and their request logs."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from compose.experiment.cell_store import Cell, CellStatus, ExperimentRecord, read_experiment
from compose.experiment.engine_program import SIMULATOR
from compose.experiment.real_cell import REQUEST_LOG
from exporters.requestlog.log_entry import LogEntry
from exporters.requestlog.reader import LogReader
from loadgen.request_record import ClientOutcome, Record, Run, read_records, read_run


@dataclass(frozen=True)
class MeasuredCell:
    """A valid cell of an experiment."""

    experiment: ExperimentRecord
    cell: Cell
    folder: Path

    @property
    def name(self) -> str:
        rate = "" if self.cell.rate is None else f" at {self.cell.rate:g}/s"
        return f"{self.experiment.name} {self.cell.configuration}{rate}"

    @property
    def virtual(self) -> bool:
        return self.experiment.virtual

    @property
    def simulated(self) -> bool:
        """Whether no model was loaded."""
        return self.experiment.engine == SIMULATOR

    @cached_property
    def run(self) -> Run:
        return read_run(self.folder)

    @cached_property
    def sent(self) -> Sequence[Record]:
        """The requests that were sent."""
        return [record for record in read_records(self.folder) if record.outcome is not ClientOutcome.NOT_SENT]

    @cached_property
    def log(self) -> dict[str, LogEntry] | None:
        """The sidecar's request log by request id; None without one."""
        path = self.folder / REQUEST_LOG
        return {entry.request_id: entry for entry in LogReader([path])} if path.exists() else None


def read_measured(directories: Sequence[Path]) -> list[MeasuredCell]:
    """The valid cells of all folders.

    Raises:
        UsageError: a folder is not the output of an experiment.
    """
    found = []
    for directory in directories:
        record, cells = read_experiment(directory)
        found += [MeasuredCell(record, each.cell, each.folder) for each in cells if each.cell.status is CellStatus.DONE]
    return found
