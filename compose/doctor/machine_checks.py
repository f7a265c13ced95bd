"""Checks of this machine: open files, disks and ports."""

import os
import resource
import shutil
import threading
from pathlib import Path

from compose.doctor.finding import Finding, Place, State, Unread
from compose.doctor.http_fetch import Response, fetch
from compose.doctor.sidecar_reading import SidecarPage
from compose.lab.ports import HOST, SERVICES, Ports, is_busy
from exporters.configuration.sidecar import SidecarConfig
from exporters.relay.connections.client_limit import client_limit, descriptors_for
from exporters.requestlog.rotation import rotated_files
from exporters.requestlog.standard_output import STANDARD_OUTPUT
from exporters.sidecar.supervision import system_limits
from exporters.sidecar.supervision.descriptors import MOST_DESCRIPTORS
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label

_FULL = 0.9
"""Share of the limit of connections from which a burst is rejected soon."""

_HEALTH = {
    "engine": ("/health",),
    "relay": ("/health",),
    "sidecar": ("/healthz",),
    "prometheus": ("/-/healthy",),
    "alertmanager": ("/-/healthy",),
    "webhook": ("/healthz",),
    "load": ("/metrics",),
    "grafana": ("/api/health", "/slo-overview"),  # the second is of the preview that replaces Grafana
    "traces": ("/healthz",),
}
"""Paths of which one responds with 200 if the program on the port is the service."""


def descriptors(page: SidecarPage | Unread, clients: int) -> Finding:
    """The limit of the running relays, else that of a sidecar which this shell would start."""
    needed = descriptors_for(clients)
    cost = "clients above the limit get status 503, which is a bad event of SLOs that count rejected requests"
    fix = (
        f"LimitNOFILE={needed} (systemd), ulimits: {{nofile: {needed}}} (Compose), or start it with: "
        f"prlimit --nofile={needed}:{needed} vllm-slo sidecar ..."
    )
    limits = {} if isinstance(page, Unread) else page.values(signals.SIDECAR_CONNECTIONS_LIMIT, Label.PROCESS)
    if isinstance(page, Unread) or not limits:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = client_limit(MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS))
        looked_at = "limit of open files of this shell"
        found = (
            f"soft {_limit(soft)}, which the sidecar raises to hard {_limit(hard)}: up to {limit:,} clients per relay"
        )
    else:
        open_now = page.values(signals.SIDECAR_CONNECTIONS, Label.PROCESS)
        fullest = max(limits, key=lambda name: open_now.get(name, 0.0) / max(1.0, limits[name]))
        limit, connected = int(min(limits.values())), int(open_now.get(fullest, 0.0))
        looked_at = f"{signals.SIDECAR_CONNECTIONS_LIMIT.name} of the running relays"
        found = f"up to {limit:,} clients per relay; {fullest} has {connected:,}"
        if connected >= _FULL * limits[fullest]:
            return Finding(State.FAILED, looked_at, found, cost, fix)
    if limit < clients:
        return Finding(State.WARNING, looked_at, f"{found}; --clients is {clients:,}", cost, fix)
    return Finding(State.OK, looked_at, found)


def _limit(descriptors: int) -> str:
    return "unlimited" if descriptors == resource.RLIM_INFINITY else f"{descriptors:,}"


def tasks(page: SidecarPage | Unread, config: SidecarConfig) -> Finding:
    """Whether a sidecar could start its processes and threads; if one responds, whether it could restart one."""
    limit = system_limits.task_limit()
    if limit is None:
        return Finding(State.OK, "pids.max and limit of processes of this shell", "no limit")
    needed = 1 if isinstance(page, SidecarPage) else system_limits.tasks_of(config)
    used = max(0, limit.used - threading.active_count())  # without the doctor
    looked_at = f"{limit.name} of this shell"
    found = f"{used:,} of {limit.allowed:,} processes and threads in use"
    if limit.allowed - used >= needed:
        return Finding(State.OK, looked_at, found)
    cost = "work that needs a thread delays requests and scrapes, and a process that ends cannot be restarted"
    fix = f"set it to {used + needed:,} or more: {system_limits.HOW[limit.name]}"
    return Finding(State.WARNING, looked_at, f"{found}; {needed} more needed", cost, fix)


def memory(config: SidecarConfig) -> Finding:
    """Whether the cgroup has memory for a sidecar with full buffers."""
    limit, needed = system_limits.memory_limit(), system_limits.memory_of(config)
    if limit is None:
        return Finding(State.OK, "memory.max of the cgroup of this shell", "no limit")
    looked_at = f"{limit.name} of this shell"
    found = f"{_size(limit.allowed)}, and a sidecar needs up to {_size(needed)}"
    if limit.allowed >= needed:
        return Finding(State.OK, looked_at, found)
    cost = "the kernel kills a process of the sidecar, and with a relay its open requests are lost"
    fix = (
        f"set it to {needed // system_limits.MIB}MiB or more: {system_limits.HOW[limit.name]}; or lower --max-buffered"
    )
    return Finding(State.WARNING, looked_at, found, cost, fix)


def disk(path: str | None, flag: str, total: int | None, total_flag: str, cost: str) -> Finding:
    """Whether a file with its rotated files may grow to its total (bytes; None: without a limit)."""
    if path is None:
        return Unread(f"{flag} is not set", f"vllm-slo doctor {flag} FILE").not_checked(flag)
    if path == STANDARD_OUTPUT:
        return Unread("it goes to standard output, which another program stores").not_checked(flag)
    file = Path(path).absolute()
    try:
        free = shutil.disk_usage(file.parent).free
        used = sum(each.stat().st_size for each in (*rotated_files(file), file) if each.exists())
    except OSError as error:
        found = f"{file.parent}: {error.strerror}"
        return Finding(State.FAILED, str(file), found.lower(), cost, f"mkdir -p {file.parent}")
    if not os.access(file.parent, os.W_OK):
        owner = f"chown {os.geteuid()} {file.parent}"
        return Finding(State.FAILED, str(file), f"this user may not write to {file.parent}", cost, owner)
    has = f"{_size(used)} used, {_size(free)} free"
    if total is None:
        return Finding(State.WARNING, str(file), f"{has}, and {total_flag} is never", cost, f"{total_flag} 8GiB")
    if used + free < total:
        found = f"{has}, less than {total_flag} {_size(total)}"
        return Finding(
            State.FAILED, str(file), found, cost, f"free some space, or set {total_flag} {(used + free) // 2**21}MiB"
        )
    return Finding(State.OK, str(file), f"{has}, for at most {_size(total)}")


def _size(size: float) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"


def free_ports(ports: Ports) -> Finding:
    """Whether each port of the lab is free, or used by the lab or the sidecar itself."""
    looked_at = f"ports of the lab on {HOST}"
    busy = [name for name in SERVICES if is_busy(getattr(ports, name))]
    foreign = [name for name in busy if not any(_responds(ports.url(name), path) for path in _HEALTH[name])]
    if foreign:
        return Finding(
            State.WARNING,
            looked_at,
            "in use by other programs: " + ", ".join(f"{getattr(ports, name)} ({name})" for name in foreign),
            "`vllm-slo up` and `docker compose up` do not start, or Prometheus scrapes another program",
            "vllm-slo up --ports auto",
        )
    if busy:
        return Finding(State.OK, looked_at, f"in use by {', '.join(busy)}, which respond; the others are free")
    return Finding(State.OK, looked_at, f"all {len(SERVICES)} are free")


def _responds(url: str, path: str) -> bool:
    response = fetch(Place(url, "--ports", named=False), path)
    return isinstance(response, Response) and response.status == 200
