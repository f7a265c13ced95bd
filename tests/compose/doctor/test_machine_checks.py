"""Open files, disks and ports."""

import dataclasses
import os
import resource
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compose.doctor.finding import Finding, State, Unread
from compose.doctor.machine_checks import descriptors, disk, free_ports, memory, tasks
from compose.doctor.sidecar_reading import SidecarPage
from exporters.configuration.sidecar import SidecarConfig
from exporters.engines.exposition import Exposition
from exporters.relay.connections.client_limit import client_limit, descriptors_for
from exporters.sidecar.supervision import system_limits
from exporters.sidecar.supervision.system_limits import Limit
from tests.support.fake_prometheus import FakePrometheus
from tests.support.ports import free_lab_ports

NOT_READ = Unread("http://127.0.0.1:9464: connection refused")
COST = "clients above the limit get status 503, which is a bad event of SLOs that count rejected requests"


def fix(files: int) -> str:
    return (
        f"LimitNOFILE={files} (systemd), ulimits: {{nofile: {files}}} (Compose), or start it with: "
        f"prlimit --nofile={files}:{files} vllm-slo sidecar ..."
    )


@pytest.mark.parametrize(
    "limits,clients,expected",
    [
        pytest.param(
            (1024, 20_000),
            1000,
            Finding(
                State.OK,
                "limit of open files of this shell",
                "soft 1,024, which the sidecar raises to hard 20,000: up to 9,952 clients per relay",
            ),
            id="the hard limit counts, as the sidecar raises the soft one",
        ),
        pytest.param(
            (1024, 1024),
            1000,
            Finding(
                State.WARNING,
                "limit of open files of this shell",
                "soft 1,024, which the sidecar raises to hard 1,024: up to 464 clients per relay; --clients is 1,000",
                COST,
                fix(2096),
            ),
            id="the hard limit is too low",
        ),
        pytest.param(
            (1024, resource.RLIM_INFINITY),
            1000,
            Finding(
                State.OK,
                "limit of open files of this shell",
                "soft 1,024, which the sidecar raises to hard unlimited: up to 524,240 clients per relay",
            ),
            id="without a hard limit",
        ),
    ],
)
def test_without_a_sidecar_the_limit_of_the_shell_counts(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], clients: int, expected: Finding
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    assert descriptors(NOT_READ, clients) == expected


def page(limit: float, connections: float) -> SidecarPage:
    labels = (("process", "relay-0"),)
    return SidecarPage(
        Exposition(
            {
                "llm_sidecar_client_connections_limit": {labels: limit, (("process", "relay-1"),): 2000.0},
                "llm_sidecar_client_connections": {labels: connections, (("process", "relay-1"),): 1.0},
            }
        )
    )


@pytest.mark.parametrize(
    "limit,connections,state,found",
    [
        pytest.param(1500, 3, State.OK, "up to 1,500 clients per relay; relay-0 has 3", id="enough"),
        pytest.param(
            464,
            3,
            State.WARNING,
            "up to 464 clients per relay; relay-0 has 3; --clients is 1,000",
            id="less than needed",
        ),
        pytest.param(1500, 1350, State.FAILED, "up to 1,500 clients per relay; relay-0 has 1,350", id="nearly full"),
    ],
)
def test_with_a_sidecar_the_fullest_relay_counts(limit: float, connections: float, state: State, found: str) -> None:
    finding = descriptors(page(limit, connections), 1000)
    assert (finding.state, finding.found) == (state, found)
    assert finding.looked_at == "llm_sidecar_client_connections_limit of the running relays"
    assert (finding.cost, finding.fix) == (("", "") if state is State.OK else (COST, fix(2096)))


@given(st.integers(1, 500_000))
def test_a_relay_serves_the_clients_for_which_the_fix_gives_it_files(clients: int) -> None:
    assert client_limit(descriptors_for(clients)) == clients
    assert client_limit(descriptors_for(clients) - 1) < max(clients, 2)


MIB = 2**20

CONFIG = SidecarConfig(upstream="http://127.0.0.1:8000", slos="", listen="", metrics="")
"""It needs 8 processes and threads, and 243 MiB."""

NO_THREAD = "work that needs a thread delays requests and scrapes, and a process that ends cannot be restarted"
PIDS = "pids.max of the cgroup of this shell"
RAISE_TO_12 = (
    "set it to 12 or more: --pids-limit (Docker), pids_limit (Compose), podPidsLimit (kubelet) or TasksMax= (systemd)"
)
RUNNING = page(1500, 3)


@pytest.mark.parametrize(
    "sidecar, limit, expected",
    [
        pytest.param(
            NOT_READ,
            None,
            Finding(State.OK, "pids.max and limit of processes of this shell", "no limit"),
            id="no limit",
        ),
        pytest.param(
            NOT_READ,
            (12, 4),
            Finding(State.OK, PIDS, "4 of 12 processes and threads in use"),
            id="enough to start a sidecar",
        ),
        pytest.param(
            NOT_READ,
            (11, 4),
            Finding(
                State.WARNING,
                PIDS,
                "4 of 11 processes and threads in use; 8 more needed",
                NO_THREAD,
                RAISE_TO_12,
            ),
            id="too few to start a sidecar",
        ),
        pytest.param(
            RUNNING, (11, 10), Finding(State.OK, PIDS, "10 of 11 processes and threads in use"), id="it already runs"
        ),
        pytest.param(
            RUNNING,
            (11, 11),
            Finding(
                State.WARNING,
                PIDS,
                "11 of 11 processes and threads in use; 1 more needed",
                NO_THREAD,
                RAISE_TO_12,
            ),
            id="none can be restarted",
        ),
    ],
)
def test_the_limit_of_processes_and_threads_admits_a_sidecar(
    monkeypatch: pytest.MonkeyPatch, sidecar: SidecarPage | Unread, limit: tuple[int, int] | None, expected: Finding
) -> None:
    monkeypatch.setattr(threading, "active_count", lambda: 3)
    found = None if limit is None else Limit(system_limits.PIDS, limit[0], limit[1] + 3)
    monkeypatch.setattr(system_limits, "task_limit", lambda: found)
    assert tasks(sidecar, CONFIG) == expected


@pytest.mark.parametrize(
    "limit, expected",
    [
        pytest.param(None, Finding(State.OK, "memory.max of the cgroup of this shell", "no limit"), id="no limit"),
        pytest.param(
            243,
            Finding(
                State.OK, "memory.max of the cgroup of this shell", "243.0 MiB, and a sidecar needs up to 243.0 MiB"
            ),
            id="enough",
        ),
        pytest.param(
            128,
            Finding(
                State.WARNING,
                "memory.max of the cgroup of this shell",
                "128.0 MiB, and a sidecar needs up to 243.0 MiB",
                "the kernel kills a process of the sidecar, and with a relay its open requests are lost",
                "set it to 243MiB or more: --memory (Docker), mem_limit (Compose), limits.memory (Kubernetes) or "
                "MemoryMax= (systemd); or lower --max-buffered",
            ),
            id="too little",
        ),
    ],
)
def test_the_limit_of_memory_admits_a_sidecar_with_full_buffers(
    monkeypatch: pytest.MonkeyPatch, limit: int | None, expected: Finding
) -> None:
    found = None if limit is None else Limit(system_limits.MEMORY, limit * MIB, 0)
    monkeypatch.setattr(system_limits, "memory_limit", lambda: found)
    assert memory(CONFIG) == expected


def check_disk(path: str | None, total: int | None) -> Finding:
    return disk(path, "--request-log", total, "--request-log-total", "lines are dropped")


@pytest.mark.parametrize(
    "free,total,expected",
    [
        pytest.param(10 * MIB, 12 * MIB, (State.OK, "3.0 MiB used, 10.0 MiB free, for at most 12.0 MiB", ""), id="ok"),
        pytest.param(
            8 * MIB,
            12 * MIB,
            (
                State.FAILED,
                "3.0 MiB used, 8.0 MiB free, less than --request-log-total 12.0 MiB",
                "free some space, or set --request-log-total 5MiB",
            ),
            id="fills the disk before the oldest file is deleted",
        ),
        pytest.param(
            2**40,
            None,
            (
                State.WARNING,
                "3.0 MiB used, 1024.0 GiB free, and --request-log-total is never",
                "--request-log-total 8GiB",
            ),
            id="without a limit",
        ),
    ],
)
def test_rotated_files_count_and_the_rest_must_be_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, total: int | None, expected: tuple[State, str, str]
) -> None:
    log = tmp_path / "requests.jsonl"
    log.write_bytes(bytes(MIB))
    (tmp_path / "requests.jsonl.20261123T100000.000000Z").write_bytes(bytes(2 * MIB))
    (tmp_path / "other").write_bytes(bytes(MIB))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    finding = check_disk(str(log), total)
    assert finding.looked_at == str(log)
    assert (finding.state, finding.found, finding.fix) == expected
    assert finding.cost == ("" if finding.state is State.OK else "lines are dropped")


def test_a_log_whose_folder_is_missing_or_not_writable_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = tmp_path / "logs"
    assert check_disk(str(missing / "log"), MIB) == Finding(
        State.FAILED,
        str(missing / "log"),
        f"{missing}: no such file or directory",
        "lines are dropped",
        f"mkdir -p {missing}",
    )
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(os, "geteuid", lambda: 10001)
    assert check_disk(str(tmp_path / "log"), MIB) == Finding(
        State.FAILED,
        str(tmp_path / "log"),
        f"this user may not write to {tmp_path}",
        "lines are dropped",
        f"chown 10001 {tmp_path}",
    )


def test_a_log_that_is_not_named_is_not_checked() -> None:
    assert check_disk(None, MIB) == Finding(
        State.NOT_CHECKED,
        "--request-log",
        "--request-log is not set",
        fix="vllm-slo doctor --request-log FILE",
    )
    assert check_disk("-", MIB) == Finding(
        State.NOT_CHECKED, "--request-log", "it goes to standard output, which another program stores"
    )


def test_free_ports_are_ok() -> None:
    assert free_ports(free_lab_ports()) == Finding(State.OK, "ports of the lab on 127.0.0.1", "all 9 are free")


def test_a_port_is_ok_if_its_service_responds_and_else_belongs_to_another_program() -> None:
    with FakePrometheus(lambda path, _: (200 if path in {"/healthz", "/slo-overview"} else 404, "")) as program:
        port = urlsplit(program.url).port
        assert port is not None
        ports = dataclasses.replace(free_lab_ports(), sidecar=port, grafana=port)
        assert free_ports(ports) == Finding(
            State.OK, "ports of the lab on 127.0.0.1", "in use by sidecar, grafana, which respond; the others are free"
        )
        assert free_ports(dataclasses.replace(ports, prometheus=port, engine=port)) == Finding(
            State.WARNING,
            "ports of the lab on 127.0.0.1",
            f"in use by other programs: {port} (engine), {port} (prometheus)",
            "`vllm-slo up` and `docker compose up` do not start, or Prometheus scrapes another program",
            "vllm-slo up --ports auto",
        )
