"""Creates folders and the output files of commands."""

from contextlib import suppress
from pathlib import Path

from exporters.text.errors import UsageError, system_reason


def write_file(path: Path, text: str) -> None:
    """Write a file and create its folder; raises UsageError if the file cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {system_reason(error)}") from error


def create_folder(path: Path) -> None:
    """Create the folder of a file; if a file is in its place, opening `path` fails with a better reason.

    Raises:
        OSError: it cannot be created.
    """
    with suppress(FileExistsError):
        path.parent.mkdir(parents=True, exist_ok=True)
