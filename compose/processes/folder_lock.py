"""Keeps two programs out of one folder."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from exporters.text.errors import UsageError
from exporters.text.output_files import writing

LOCK = "lock"


def lock_of(folder: Path, name: str) -> IO[str]:
    """The lock file of a folder, which is created; `name` is that of the folder in the message.

    Raises:
        UsageError: it cannot be written.
    """
    with writing(name):
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / LOCK).open("w")


@contextmanager
def locked_folder(folder: Path, flag: str, used_by: str, other: str) -> Iterator[None]:
    """Create a folder and lock it; `flag` names it in messages, and `other` is what to choose instead.

    Raises:
        UsageError: another process has locked it, or it cannot be written.
    """
    with lock_of(folder, f"{flag} {folder}") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(
                f"{flag} {folder}: already used by a running {used_by}; stop it, or choose another {other}"
            ) from error
        yield
