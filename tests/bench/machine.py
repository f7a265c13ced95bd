"""CPU affinity, the CPU time and memory of process trees, and what a server says of itself."""

import contextlib
import os
import re
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TICK = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Cores:
    """The cores of the load and of the measured proxy; the same core if the machine has only one."""

    every: frozenset[int]
    load: frozenset[int]
    proxy: frozenset[int]


def cores() -> Cores:
    every = sorted(os.sched_getaffinity(0))
    return Cores(frozenset(every), frozenset(every[:1]), frozenset(every[1:2] or every))


@contextlib.contextmanager
def pinned(cores: frozenset[int]) -> Iterator[None]:
    """Pin processes that are started in this context, and their children, to these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def tree(pid: int) -> list[int]:
    """A process and its descendants."""
    pids = [pid]
    for one in pids:
        for thread in Path(f"/proc/{one}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                pids += [int(child) for child in thread.read_text().split()]
    return pids


def cpu_seconds(pid: int) -> float:
    """User and system time of the tree, at the resolution of a clock tick."""
    seconds = 0.0
    for one in tree(pid):
        with contextlib.suppress(OSError):
            seconds += process_seconds(one)
    return seconds


def process_seconds(pid: int) -> float:
    """User and system time of one process. Raises OSError if it has exited."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK


def busy_seconds(cores: frozenset[int]) -> float:
    """Time for which these cores ran any process."""
    ticks = 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *spent = line.split()
        if name.removeprefix("cpu").isdigit() and int(name.removeprefix("cpu")) in cores:
            # user, nice, system, steal
            ticks += sum(int(spent[kind]) for kind in (0, 1, 2, 7))
    return ticks * TICK


def memory_mb(pid: int) -> float:
    """PSS of one process in MB."""
    return _mb(pid, "smaps_rollup", "Pss")


def resident_mb(pid: int, which: str) -> float:
    """Resident memory of one process in MB, shared and mapped files included: `VmRSS`, or its maximum, `VmHWM`."""
    return _mb(pid, "status", which)


def _mb(pid: int, file: str, name: str) -> float:
    (kilobytes,) = re.findall(rf"^{name}: +(\d+) kB$", Path(f"/proc/{pid}/{file}").read_text(), re.MULTILINE)
    return int(kilobytes) / 1024


def page_sum(url: str, series: str) -> float:
    """The sum of the series that match, on the /metrics page of the server."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as response:
        found = re.findall(rf"^{series} (\S+)$", response.read().decode(), re.MULTILINE)
    assert found, series
    return sum(map(float, found))
