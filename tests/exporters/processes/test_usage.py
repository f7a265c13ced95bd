"""CPU time and memory of a process."""

import time
from pathlib import Path

import pytest

from exporters.processes import usage as process_usage


def test_cpu_time_and_memory_are_reported() -> None:
    before = time.process_time()
    held = bytearray(b"x" * 32 * 1024**2)
    usage = process_usage.footprint()
    assert before <= usage.cpu <= time.process_time()
    assert usage.memory is not None
    assert usage.memory > len(held)


def test_without_proc_the_memory_is_unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(process_usage, "_STATM", tmp_path / "none")
    usage = process_usage.footprint()
    assert usage.memory is None
    assert usage.cpu > 0
