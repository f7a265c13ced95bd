"""Limits of the system that are too low for a sidecar: processes and threads, memory, and open files."""

import contextlib
import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from exporters.configuration.origin import origin
from exporters.configuration.sidecar import SidecarConfig
from exporters.processes.worker_threads import GRPC_THREADS
from exporters.relay.connections.client_limit import client_limit, descriptors_for
from exporters.sidecar import threaded_loop
from exporters.text.addresses import is_ip

CLIENTS = 1000
"""Clients that each relay should serve at once."""

MIB = 2**20
_BASE_MEMORY = 75 * MIB
"""Memory of the supervisor and the exporter after a million requests."""
_RELAY_MEMORY = 40 * MIB
"""Memory of a relay with 2,000 open streams, without the bodies of requests."""
_SPANS_MEMORY = 25 * MIB
_UNLIMITED = 2**62
"""Version 1 of cgroups has a large number instead of `max`."""

PIDS, MEMORY = "pids.max of the cgroup", "memory.max of the cgroup"
PROCESSES = "the limit of processes of the user"
_FILES = {
    PIDS: [("pids.max", "pids.current")],
    MEMORY: [("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")],
}
"""Names of the limit and of its use in versions 2 and 1 of cgroups."""

HOW = {
    PIDS: "--pids-limit (Docker), pids_limit (Compose), podPidsLimit (kubelet) or TasksMax= (systemd)",
    PROCESSES: "LimitNPROC= (systemd), ulimits: {nproc: N} (Compose) or prlimit --nproc=N",
    MEMORY: "--memory (Docker), mem_limit (Compose), limits.memory (Kubernetes) or MemoryMax= (systemd)",
}


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit and how much of it is in use: processes and threads, which the kernel counts alike, or bytes."""

    name: str
    allowed: int
    used: int

    @property
    def free(self) -> int:
        return max(0, self.allowed - self.used)


def tasks_of(config: SidecarConfig) -> int:
    """The number of processes and threads of a sidecar."""
    relay = 2 + (not is_ip(origin(config.upstream).host))
    exporter = 1 + threaded_loop.LOOKUPS + threaded_loop.WORKERS + bool(config.engine_spans)
    grpc = any(receiver.grpc for receiver in config.engine_spans)
    if config.otlp is not None:
        exporter += 2 if config.engine_spans else 1
        grpc = grpc or config.otlp.url.startswith("grpc")
    return 1 + _relays(config) * relay + exporter + (GRPC_THREADS if grpc else 0)


def memory_of(config: SidecarConfig) -> int:
    """The memory in bytes of a sidecar whose buffers for request bodies are full."""
    spans = _SPANS_MEMORY if config.otlp is not None or config.engine_spans else 0
    relays = _relays(config)
    return _BASE_MEMORY + spans + relays * _RELAY_MEMORY + (config.buffer_size if relays else 0)


def _relays(config: SidecarConfig) -> int:
    return 0 if config.follow is not None else config.workers


def task_limit(root: Path = Path("/")) -> Limit | None:
    """The limit that leaves the fewest processes and threads to this process; None without one."""
    limits = list(_cgroup_limits(PIDS, root))
    allowed = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if allowed != resource.RLIM_INFINITY and os.getuid() != 0:  # root is exempt
        limits.append(Limit(PROCESSES, allowed, _tasks_of_user(root, os.getuid())))
    return min(limits, key=lambda limit: limit.free, default=None)


def memory_limit(root: Path = Path("/")) -> Limit | None:
    """The lowest limit of memory; None without one."""
    return min(_cgroup_limits(MEMORY, root), key=lambda limit: limit.allowed, default=None)


def warnings(config: SidecarConfig, root: Path = Path("/")) -> Iterator[str]:
    """A message for each limit that is too low for a sidecar that starts in this process."""
    tasks, more = task_limit(root), tasks_of(config) - 1
    if tasks is not None and tasks.free < more:
        yield (
            f"{tasks.name} is {tasks.allowed:,}, of which {tasks.used:,} are in use, but the sidecar starts {more} "
            f"processes and threads; set it to {tasks.used + more:,} or more: {HOW[tasks.name]}"
        )
    memory, needed = memory_limit(root), memory_of(config)
    if memory is not None and memory.allowed < needed:
        yield (
            f"{memory.name} is {memory.allowed // MIB:,} MiB, but the sidecar needs up to {needed // MIB:,} MiB; "
            f"set it to that or more: {HOW[memory.name]}; or lower --max-buffered"
        )
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if _relays(config) and (clients := client_limit(descriptors)) < CLIENTS:
        least = descriptors_for(CLIENTS)
        yield (
            f"the limit of open files is {descriptors:,}, so each relay serves {clients:,} clients at once; set it to "
            f"{least:,} or more for {CLIENTS:,}: LimitNOFILE={least} (systemd), ulimits: {{nofile: {least}}} (Compose)"
        )


def _cgroup_limits(name: str, root: Path) -> Iterator[Limit]:
    """The limits of the cgroup of this process and of those that contain it."""
    for folder in _cgroups(name.partition(".")[0], root):
        for limit, use in _FILES[name]:
            with contextlib.suppress(OSError, ValueError):  # there is no such file, or it has `max`
                allowed = int((folder / limit).read_text())
                if allowed < _UNLIMITED:
                    yield Limit(name, allowed, int((folder / use).read_text()))


def _cgroups(controller: str, root: Path) -> Iterator[Path]:
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers or controller in controllers.split(","):  # version 2 has one hierarchy for all
            mount = root / "sys/fs/cgroup" / controllers
            own = mount / path.lstrip("/")
            yield from (folder for folder in (own, *own.parents) if folder.is_relative_to(mount))


def _tasks_of_user(root: Path, user: int) -> int:
    """The processes and threads of a user, as far as this process can see them."""
    count = 0
    for status in root.glob("proc/[0-9]*/status"):
        with contextlib.suppress(OSError):
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
            if int(fields["Uid"].split()[0]) == user:
                count += int(fields["Threads"])
    return count
