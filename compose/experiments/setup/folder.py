"""Opens the output folder of an experiment, new or from an interrupted run, for one process at a time."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from compose.experiments.setup.cell_store import (
    CELL,
    EXPERIMENT,
    SLOS,
    Cell,
    CellStatus,
    ExperimentRecord,
    read_cell,
    read_record,
)
from compose.processes.folder_lock import LOCK, locked_folder
from exporters.text.errors import UsageError
from exporters.text.output_files import writing
from loadgen.results.record import replace_file, write_json


@contextmanager
def opened(directory: Path, record: ExperimentRecord, slos: str) -> Iterator[None]:
    """Lock the folder and write the settings, or check that they are those of the interrupted run.

    Raises:
        UsageError: another process uses the folder, it holds other files or settings, or it cannot be written.
    """
    with locked_folder(directory, "--out", "experiment", "folder"):
        others = sorted(path.name for path in directory.iterdir() if path.name != LOCK)
        if EXPERIMENT in others:
            _refuse_others(directory, record, slos)
        elif others:
            raise UsageError(
                f"--out {directory}: contains {others[0]}, but no {EXPERIMENT}; choose an empty or a new folder"
            )
        else:
            with writing(f"--out {directory}"):
                replace_file(directory / SLOS, slos.encode())
                write_json(directory / EXPERIMENT, record)
        yield


def _refuse_others(directory: Path, record: ExperimentRecord, slos: str) -> None:
    stored = msgspec.to_builtins(read_record(directory)) | {"slos": (directory / SLOS).read_text(encoding="utf-8")}
    wanted = msgspec.to_builtins(record) | {"slos": slos}
    changed = [name for name, value in wanted.items() if stored.get(name) != value]
    if changed:
        raise UsageError(
            f"--out {directory}: contains an experiment with other settings ({', '.join(changed)}); "
            "choose another folder, or delete it"
        )


def finished(folder: Path) -> Cell | None:
    """The cell of a folder if it needs no other run; the files of an interrupted or failed cell are deleted."""
    cell = read_cell(folder)
    if cell is not None and cell.status is not CellStatus.FAILED:
        return cell
    if folder.exists():
        shutil.rmtree(folder)
    return None


def write_cell(folder: Path, cell: Cell) -> None:
    """Write a cell, last of its files, so that an interrupted cell has none.

    Raises:
        UsageError: it cannot be written.
    """
    with writing(folder / CELL):
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / CELL, cell)
