"""VictoriaMetrics and vmalert: found on PATH, else unpacked from Debian's archive; started on free ports."""

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

import pytest

from compose.lab.ports import HOST
from compose.programs.cache import default_cache, locked
from compose.programs.debian_packages import unpack_packages
from exporters.text.errors import UsageError
from tests.support.ports import free_port
from tests.support.prometheus_blocks import is_ready
from tests.support.waiting import wait_until

_SUITE = "sid"
"""It has 1.145; the version of Debian 12 refuses `keep_firing_for`."""


@cache
def programs() -> Path:
    """The folder of the programs; the test is skipped where they cannot be had."""
    found = [shutil.which(name) for name in ("victoria-metrics", "vmalert")]
    if found[0] is not None and found[1] is not None:
        return Path(found[0]).parent
    target = default_cache() / "victoria-metrics"
    try:
        with locked(target.parent, partial(print, file=sys.stderr)):
            if not target.is_dir():
                unpack_packages(target, ["victoria-metrics"], _SUITE)
    except UsageError as error:
        pytest.skip(str(error))
    return target / "usr/bin"


@contextmanager
def victoria_metrics(folder: Path, *flags: str) -> Iterator[tuple[int, str]]:
    """The process id and the URL of a server with its data in `vm-data` in the folder."""
    port = free_port()
    common = (f"-storageDataPath={folder / 'vm-data'}", f"-httpListenAddr={HOST}:{port}", "-retentionPeriod=1y")
    with _running(folder, "victoria-metrics", f"http://{HOST}:{port}/health", *common, *flags) as pid:
        yield pid, f"http://{HOST}:{port}"


@contextmanager
def vmalert(folder: Path, rules: Path, storage: str, notifier: str, *flags: str) -> Iterator[None]:
    """Evaluates the rules on a server, with the flags of `docs/fleets.md`."""
    port = free_port()
    ours = (f"-rule={rules}", f"-notifier.url={notifier}", f"-httpListenAddr={HOST}:{port}")
    both = (f"-datasource.url={storage}", f"-remoteWrite.url={storage}", f"-remoteRead.url={storage}")
    shared = ("-disableAlertgroupLabel", "-datasource.queryStep=10m")
    with _running(folder, "vmalert", f"http://{HOST}:{port}/health", *ours, *both, *shared, *flags):
        yield


def dry_run(rules: Path) -> subprocess.CompletedProcess[str]:
    """The check of expressions and templates by vmalert."""
    command: list[str | Path] = [programs() / "vmalert", "-dryRun", f"-rule={rules}"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@contextmanager
def _running(folder: Path, name: str, ready: str, *flags: str) -> Iterator[int]:
    command: Sequence[str | Path] = [programs() / name, *flags]
    with (folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        assert wait_until(lambda: process.poll() is not None or is_ready(ready))
        assert process.poll() is None, (folder / f"{name}.log").read_text()
        yield process.pid
    finally:
        process.terminate()
        process.wait()
