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

from compose.doctor.finding import Finding, Unread
from compose.doctor.machine_checks import descriptors, disk, free_ports, memory, tasks
from compose.doctor.sidecar_reading import SidecarPage
from exporters.configuration.sidecar import SidecarConfig
from exporters.engines.exposition import Exposition
from exporters.relay.connections.client_limit import client_limit, descriptors_for
from exporters.sidecar.supervision import system_limits
from exporters.sidecar.supervision.system_limits import Limit
from tests.compose.doctor.golden_findings import assert_golden
from tests.support.fake_prometheus import FakePrometheus
from tests.support.ports import free_lab_ports

NOT_READ = Unread("http://127.0.0.1:9464: connection refused")


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


RUNNING = page(1500, 3)


def test_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a sidecar the hard limit counts, because it raises the soft one; else the relay with most open files."""
    found = {}
    for name, hard in (("enough", 20_000), ("too few", 1024), ("without a hard limit", resource.RLIM_INFINITY)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, hard=hard: (1024, hard))
        found[f"without a sidecar: {name}"] = descriptors(NOT_READ, 1000)
    for name, each in (("enough", RUNNING), ("too few", page(464, 3)), ("nearly full", page(1500, 1350))):
        found[f"with a sidecar: {name}"] = descriptors(each, 1000)
    assert_golden("descriptors", found)


@given(st.integers(1, 500_000))
def test_a_relay_serves_the_clients_for_which_the_fix_gives_it_files(clients: int) -> None:
    assert client_limit(descriptors_for(clients)) == clients
    assert client_limit(descriptors_for(clients) - 1) < max(clients, 2)


MIB = 2**20

CONFIG = SidecarConfig(upstream="http://127.0.0.1:8000", slos="", listen="", metrics="")
"""It needs 8 processes and threads, and 243 MiB."""


def test_the_limit_of_processes_and_threads_admits_a_sidecar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three threads are those of the doctor."""
    monkeypatch.setattr(threading, "active_count", lambda: 3)
    cases: dict[str, tuple[SidecarPage | Unread, Limit | None]] = {
        "no limit": (NOT_READ, None),
        "enough to start a sidecar": (NOT_READ, Limit(system_limits.PIDS, 12, 4 + 3)),
        "too few to start a sidecar": (NOT_READ, Limit(system_limits.PIDS, 11, 4 + 3)),
        "it already runs": (RUNNING, Limit(system_limits.PIDS, 11, 10 + 3)),
        "none can be restarted": (RUNNING, Limit(system_limits.PIDS, 11, 11 + 3)),
    }
    found = {}
    for name, (sidecar, limit) in cases.items():
        monkeypatch.setattr(system_limits, "task_limit", lambda limit=limit: limit)
        found[name] = tasks(sidecar, CONFIG)
    assert_golden("processes", found)


def test_the_limit_of_memory_admits_a_sidecar_with_full_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {}
    for name, mebibytes in (("no limit", None), ("enough", 243), ("too little", 128)):
        limit = None if mebibytes is None else Limit(system_limits.MEMORY, mebibytes * MIB, 0)
        monkeypatch.setattr(system_limits, "memory_limit", lambda limit=limit: limit)
        found[name] = memory(CONFIG)
    assert_golden("memory", found)


def check_disk(path: Path | str | None, total: int | None) -> Finding:
    given = path if path is None else str(path)
    return disk(given, "--request-log", total, "--request-log-total", "lines are dropped")


def test_a_log_with_its_rotated_files_fits_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "requests.jsonl"
    found = {
        "not named": check_disk(None, MIB),
        "standard output": check_disk("-", MIB),
        "no folder": check_disk(tmp_path / "logs" / "log", MIB),
    }
    log.write_bytes(bytes(MIB))
    (tmp_path / "requests.jsonl.20261123T100000.000000Z").write_bytes(bytes(2 * MIB))
    (tmp_path / "other").write_bytes(bytes(MIB))
    cases = {
        "enough": (10 * MIB, 12 * MIB),
        "fills the disk before the oldest file is deleted": (8 * MIB, 12 * MIB),
        "without a limit": (2**40, None),
    }
    for name, (free, total) in cases.items():
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        found[name] = check_disk(log, total)
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(os, "geteuid", lambda: 10001)
    found["no permission"] = check_disk(log, MIB)
    assert_golden("request log", found, {str(tmp_path): "FOLDER"})


def test_a_port_is_ok_if_its_service_responds_and_else_belongs_to_another_program() -> None:
    free = free_lab_ports()
    found = {"free": free_ports(free)}
    with FakePrometheus(lambda path, _: (200 if path in {"/healthz", "/slo-overview"} else 404, "")) as program:
        port = urlsplit(program.url).port
        assert port is not None
        ours = dataclasses.replace(free, sidecar=port, grafana=port)
        found["ours"] = free_ports(ours)
        found["of another program"] = free_ports(dataclasses.replace(ours, prometheus=port, engine=port))
    assert_golden("ports", found, {str(port): "PORT"})
