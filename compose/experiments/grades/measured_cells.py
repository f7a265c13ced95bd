"""The data that the grades of an experiment use: its cells with a valid measurement, and their request logs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from compose.experiments.cells.engine_program import SIMULATOR
from compose.experiments.cells.real_cell import REQUEST_LOG
from compose.experiments.setup.cell_store import Cell, CellStatus, ExperimentRecord, read_experiment
from exporters.requestlog.entry import LogEntry
from exporters.requestlog.reader import LogReader
from loadgen.results.record import ClientOutcome, Record, Run, read_records, read_run


@dataclass(frozen=True, slots=True)
class MeasuredCell:
    """A valid cell: the requests that were `sent`, and the sidecar's request log by request id, None without one."""

    experiment: ExperimentRecord
    cell: Cell
    run: Run
    sent: Sequence[Record]
    log: Mapping[str, LogEntry] | None

    @property
    def name(self) -> str:
        return f"{self.experiment.name} {self.cell.configuration}{self.cell.level.text}"

    @property
    def simulated(self) -> bool:
        """Whether no model was loaded."""
        return self.experiment.engine == SIMULATOR


def read_measured(directories: Sequence[Path]) -> list[MeasuredCell]:
    """The valid cells of all folders.

    Raises:
        UsageError: a folder is not the output of an experiment, or a file of a cell cannot be read.
    """
    found = []
    for directory in directories:
        record, cells = read_experiment(directory)
        for each in cells:
            if each.cell.status is CellStatus.DONE:
                run, log = read_run(each.folder), each.folder / REQUEST_LOG
                sent = [one for one in read_records(each.folder) if one.outcome is not ClientOutcome.NOT_SENT]
                entries = {entry.request_id: entry for entry in LogReader([log])} if log.exists() else None
                found.append(MeasuredCell(record, each.cell, run, sent, entries))
    return found
