"""Creates folders and the output files of commands, and replaces files in one step."""

import os
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


def check_replaceable(path: Path) -> None:
    """Check that `replace_file` can write a file; raises OSError if not."""
    temporary = _temporary(path)
    create_folder(path)
    temporary.open("wb").close()
    temporary.unlink()
    if path.is_dir():
        raise IsADirectoryError(None, "is a directory")


def replace_file(path: Path, content: bytes, permissions: int = 0o666) -> None:
    """Replace a file in one step: after a crash it is the old one or the new one.

    Raises:
        OSError: it cannot be written; the old one remains.
    """
    temporary = _temporary(path)
    create_folder(path)
    with open(temporary, "wb", opener=lambda name, flags: os.open(name, flags, permissions)) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    _sync_folder(path.parent)


def _temporary(path: Path) -> Path:
    return path.with_name(f"{path.name}.new")


def _sync_folder(folder: Path) -> None:
    """Write the name of a renamed file to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
