"""The two C programs of the bench, without a proxy between them."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bench.generators import Generators, Load, generators
from tests.bench.machine import cores
from tests.support.ports import free_port
from tests.support.sidecar_process import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("cc"), reason="no cc to compile the bench's load with"),
]


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Generators]:
    with generators(tmp_path_factory.mktemp("bench"), free_port(), cores()) as started:
        yield started


def counted(load: Generators, **flags: Any) -> dict[str, Any]:
    flags = {"connections": 10, "seconds": 20, "requests": 30} | flags
    return load.measure(Load(**flags), load.engine_port).counts


@pytest.mark.parametrize("tick", [pytest.param(0, id="spread"), pytest.param(1, id="on one tick")])
def test_every_chunk_of_every_stream_arrives_at_the_requested_pace(load: Generators, tick: int) -> None:
    counts = counted(load, tokens=25, pace=1000, tick=tick)
    assert counts["duration"]["p50"] > 23 * 1000
    assert (counts["requests"], counts["chunks"], counts["errors"], counts["short"]) == (30, 30 * 25, 0, 0)
    totals = [counts[name]["count"] for name in ("delay", "gap", "ttft", "duration")]
    assert totals == [30 * 25, 30 * 24, 30, 30]


def test_a_stream_that_the_engine_cuts_is_counted_as_short(load: Generators) -> None:
    counts = counted(load, tokens=25, pace=1000, cut=5)
    assert (counts["requests"], counts["chunks"], counts["errors"], counts["short"]) == (0, 30 * 5, 0, 30)


def test_unary_requests_are_counted(load: Generators) -> None:
    counts = counted(load, requests=500)
    assert (counts["requests"], counts["chunks"], counts["errors"], counts["short"]) == (500, 0, 0, 0)


def test_a_refused_connection_is_an_error(load: Generators) -> None:
    counts = load.measure(Load(connections=3, seconds=20, requests=3), free_port()).counts
    assert (counts["requests"], counts["errors"], counts["short"]) == (0, 3, 0)


def test_a_held_load_reports_the_open_streams_at_its_end(load: Generators) -> None:
    with load.holding(Load(connections=7, seconds=60, warmup=1.0, tokens=10_000), load.engine_port) as counts:
        assert not counts
    assert (counts["open"], counts["errors"], counts["short"]) == (7, 0, 0)


def test_without_a_compiler_the_bench_names_the_packages_and_exits_with_2(tmp_path: Path) -> None:
    command, environment = [sys.executable, "-m", "tests.bench.relay"], {"PATH": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        2,
        "no C compiler: two small C programs generate the load; on Debian: apt-get install gcc libc6-dev",
    )
