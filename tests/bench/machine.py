"""Which core runs what, and what a tree of processes has used of its core and of memory."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TICK = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Cores:
    """One for the load and one for what is measured, apart where the machine allows it."""

    every: frozenset[int]
    load: frozenset[int]
    proxy: frozenset[int]


def cores() -> Cores:
    every = sorted(os.sched_getaffinity(0))
    return Cores(frozenset(every), frozenset(every[:1]), frozenset(every[1:2] or every))


@contextlib.contextmanager
def pinned(cores: frozenset[int]) -> Iterator[None]:
    """What is started meanwhile runs on these cores, with all that it starts."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def tree(pid: int) -> list[int]:
    """A process and all below it."""
    pids = [pid]
    for one in pids:
        for thread in Path(f"/proc/{one}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                pids += [int(child) for child in thread.read_text().split()]
    return pids


def cpu_seconds(pid: int) -> float:
    """User and system time of the tree, as fine as a clock tick."""
    ticks = 0
    for one in tree(pid):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks * TICK


def busy_seconds(cores: frozenset[int]) -> float:
    """Time for which these cores ran any process, whosoever."""
    ticks = 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *spent = line.split()
        if name.removeprefix("cpu").isdigit() and int(name.removeprefix("cpu")) in cores:
            ticks += sum(int(spent[kind]) for kind in (0, 1, 2, 7))  # user, nice, system, stolen by a hypervisor
    return ticks * TICK


def memory_mb(pid: int) -> float:
    """Memory of one process: its own pages and its share of those that it shares with others (PSS)."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise LookupError(f"/proc/{pid}/smaps_rollup has no line Pss")
