"""Creates folders and the output files of commands."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from exporters.text.errors import UsageError, system_reason


def write_file(path: Path, text: str) -> None:
    """Write a file and create its folder; raises UsageError if the file cannot be written."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


@contextmanager
def writing(name: object) -> Iterator[None]:
    """Raises UsageError if its content cannot write a file or a folder, which has this name in the message."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{name}: cannot be written: {system_reason(error)}") from error


def create_folder(path: Path) -> None:
    """Create the folder of a file; if a file is in its place, opening `path` fails with a better reason.

    Raises:
        OSError: it cannot be created.
    """
    with suppress(FileExistsError):
        path.parent.mkdir(parents=True, exist_ok=True)
