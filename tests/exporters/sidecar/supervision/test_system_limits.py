"""Limits of the system that are too low for a sidecar."""

import os
import resource
from collections.abc import Mapping
from pathlib import Path

import pytest

from exporters.configuration.otlp_endpoints import Collector, Receiver
from exporters.configuration.sidecar import FollowedLog, SidecarConfig
from exporters.processes.worker_threads import GRPC_THREADS
from exporters.sidecar.supervision.system_limits import (
    MEMORY,
    PIDS,
    PROCESSES,
    Limit,
    memory_limit,
    memory_of,
    task_limit,
    tasks_of,
    warnings,
)

MIB = 2**20
SPANS = (Receiver(grpc=False, host="127.0.0.1", port=4318),)
GRPC_SPANS = (Receiver(grpc=True, host="127.0.0.1", port=4317),)


def config(**settings: object) -> SidecarConfig:
    given = {"upstream": "http://127.0.0.1:1", "slos": "", "listen": "", "metrics": "", **settings}
    return SidecarConfig(**given)  # type: ignore[arg-type]  # each test names fields of the config


def files(root: Path, contents: Mapping[str, object]) -> Path:
    for path, content in contents.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"{content}\n")
    return root


@pytest.fixture(autouse=True)
def no_limits(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """Limits of the process by kind, which a test sets."""
    limits: dict[int, int] = {}

    def getrlimit(kind: int) -> tuple[int, int]:
        return (limits.get(kind, resource.RLIM_INFINITY),) * 2

    monkeypatch.setattr(resource, "getrlimit", getrlimit)
    return limits


@pytest.mark.parametrize(
    "contents, tasks, memory",
    [
        pytest.param(
            {
                "proc/self/cgroup": "0::/a/b",
                "sys/fs/cgroup/a/b/pids.max": "max",
                "sys/fs/cgroup/a/b/pids.current": 3,
                "sys/fs/cgroup/a/pids.max": 20,
                "sys/fs/cgroup/a/pids.current": 12,
                "sys/fs/cgroup/a/b/memory.max": 300 * MIB,
                "sys/fs/cgroup/a/b/memory.current": 40 * MIB,
                "sys/fs/cgroup/a/memory.max": 200 * MIB,
                "sys/fs/cgroup/a/memory.current": 50 * MIB,
            },
            Limit(PIDS, 20, 12),
            Limit(MEMORY, 200 * MIB, 50 * MIB),
            id="version 2: the lowest limit of the cgroups around the process",
        ),
        pytest.param(
            {"proc/self/cgroup": "0::/", "sys/fs/cgroup/pids.max": 9, "sys/fs/cgroup/pids.current": 1},
            Limit(PIDS, 9, 1),
            None,
            id="version 2 in a container",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "9:cpu,cpuacct:/docker/x\n8:pids:/docker/x\n4:memory:/docker/x\n0::/",
                "sys/fs/cgroup/pids/pids.max": 30,  # the folder of the container is the root of its mount
                "sys/fs/cgroup/pids/pids.current": 2,
                "sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": 64 * MIB,
                "sys/fs/cgroup/memory/docker/x/memory.usage_in_bytes": 1 * MIB,
                "sys/fs/cgroup/memory/memory.limit_in_bytes": 9223372036854771712,
                "sys/fs/cgroup/memory/memory.usage_in_bytes": 2 * MIB,
            },
            Limit(PIDS, 30, 2),
            Limit(MEMORY, 64 * MIB, 1 * MIB),
            id="version 1",
        ),
        pytest.param({}, None, None, id="not Linux"),
    ],
)
def test_the_limits_of_the_cgroup_are_read(
    tmp_path: Path, contents: Mapping[str, object], tasks: Limit | None, memory: Limit | None
) -> None:
    root = files(tmp_path, contents)
    assert (task_limit(root), memory_limit(root)) == (tasks, memory)


def test_the_limit_of_the_user_counts_unless_the_user_is_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_limits: dict[int, int]
) -> None:
    no_limits[resource.RLIMIT_NPROC] = 10
    root = files(
        tmp_path,
        {
            "proc/1/status": "Name:\tinit\nUid:\t0\t0\t0\t0\nThreads:\t40",
            "proc/7/status": "Name:\tengine\nUid:\t1000\t1000\t1000\t1000\nThreads:\t4",
            "proc/8/status": "Name:\tsidecar\nUid:\t1000\t1000\t1000\t1000\nThreads:\t2",
        },
    )
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    assert task_limit(root) == Limit(PROCESSES, 10, 6)
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert task_limit(root) is None


@pytest.mark.parametrize(
    "settings, expected",
    [
        pytest.param({}, 1 + 2 + 5, id="supervisor, a relay that hashes, the exporter"),
        pytest.param({"upstream": "http://engine:1", "workers": 3}, 1 + 3 * 3 + 5, id="lookups of names"),
        pytest.param({"otlp": Collector(url="http://c:1")}, 1 + 2 + 5 + 1, id="spans"),
        pytest.param({"otlp": Collector(url="http://c:1"), "engine_spans": SPANS}, 1 + 2 + 5 + 3, id="forwarded spans"),
        pytest.param({"otlp": Collector(url="grpc://c:1")}, 1 + 2 + 5 + 1 + GRPC_THREADS, id="gRPC"),
        pytest.param({"engine_spans": GRPC_SPANS}, 1 + 2 + 5 + 1 + GRPC_THREADS, id="spans of the engine by gRPC"),
        pytest.param({"follow": FollowedLog(path="", state="")}, 1 + 5, id="without relays"),
    ],
)
def test_processes_and_threads_of_a_sidecar(settings: dict[str, object], expected: int) -> None:
    assert tasks_of(config(**settings)) == expected


def test_the_memory_of_a_sidecar_has_the_buffers_of_its_relays() -> None:
    assert memory_of(config(max_buffered=100 * MIB)) == 215 * MIB
    assert memory_of(config(max_buffered=100 * MIB, workers=3, engine_spans=SPANS)) == 320 * MIB
    assert memory_of(config(follow=FollowedLog(path="", state=""))) == 75 * MIB


def test_each_limit_that_is_too_low_is_named_with_the_value_that_is_needed(
    tmp_path: Path, no_limits: dict[int, int]
) -> None:
    no_limits[resource.RLIMIT_NOFILE] = 1024
    low = {
        "proc/self/cgroup": "0::/",
        "sys/fs/cgroup/pids.max": 12,
        "sys/fs/cgroup/pids.current": 6,
        "sys/fs/cgroup/memory.max": 242 * MIB,
        "sys/fs/cgroup/memory.current": 30 * MIB,
    }
    tasks, memory, descriptors = warnings(config(), files(tmp_path, low))
    assert tasks == (
        "pids.max of the cgroup is 12, of which 6 are in use, but the sidecar starts 7 processes and threads; set it "
        "to 13 or more: --pids-limit (Docker), pids_limit (Compose), podPidsLimit (kubelet) or TasksMax= (systemd)"
    )
    assert memory == (
        "memory.max of the cgroup is 242 MiB, but the sidecar needs up to 243 MiB; set it to that or more: --memory "
        "(Docker), mem_limit (Compose), limits.memory (Kubernetes) or MemoryMax= (systemd); or lower --max-buffered"
    )
    assert descriptors == (
        "the limit of open files is 1,024, so each relay serves 464 clients at once; set it to 2,096 or more for "
        "1,000: LimitNOFILE=2096 (systemd), ulimits: {nofile: 2096} (Compose)"
    )
    no_limits[resource.RLIMIT_NOFILE] = 2096
    enough = {"sys/fs/cgroup/pids.max": 13, "sys/fs/cgroup/memory.max": 243 * MIB}
    assert list(warnings(config(), files(tmp_path, enough))) == []
