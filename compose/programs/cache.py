"""The folders in which the lab installs programs: their paths, their lock, and an atomic installation."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from compose.processes.folder_lock import lock_of

Report = Callable[[str], None]

_TEMPORARY = "unpacking-"


def default_cache() -> Path:
    """`.lab/tools` of the checkout that this module runs from, else a folder of the user's cache."""
    project = Path(__file__).resolve().parents[2]
    if (project / "pyproject.toml").is_file() and os.access(project, os.W_OK):
        return project / ".lab" / "tools"
    return user_cache() / "tools"


def user_cache() -> Path:
    """The user's cache directory, which all clones share."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vllm-slo"


@contextmanager
def locked(cache: Path, report: Report) -> Iterator[None]:
    """Create `cache` and lock it against other processes, which wait.

    Raises:
        UsageError: it cannot be written.
    """
    with lock_of(cache, str(cache)) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"waiting for another process that installs programs in {cache}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def unpacking(target: Path) -> Iterator[Path]:
    """A temporary folder; without an error, its subfolder `root` is renamed to `target` at the end.

    The rename is atomic, so an existing `target` is always complete. Call it under the lock of the parent folder.
    """
    # The lock is held, so folders with this prefix were left by a process that was killed.
    for stale in target.parent.glob(f"{_TEMPORARY}*"):
        shutil.rmtree(stale, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=_TEMPORARY) as name:
        work = Path(name)
        (work / "root").mkdir()
        yield work
        (work / "root").rename(target)
