"""TCP keep-alive on the connections of a real relay, as the kernel reports them."""

import sys
from pathlib import Path

import pytest

from exporters.relay.connections.tcp_keepalive import IDLE_SECONDS
from tests.support.fake_engine import Engine, serving
from tests.support.sidecar_process import sidecar
from tests.support.waiting import until

ESTABLISHED, KEEP_ALIVE = "01", "02"
TICKS = 100
"""Per second, in which the kernel reports timers."""


def probes(*, local: int = 0, remote: int = 0) -> list[float]:
    """Seconds until the next keep-alive probe of each established connection with this port; 0 without keep-alive."""
    seconds = []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, ours, theirs, state, _, timer, *_ = line.split()
        ports = [int(address.rpartition(":")[2], 16) for address in (ours, theirs)]
        if state == ESTABLISHED and (ports[0] == local or ports[1] == remote):
            kind, _, ticks = timer.partition(":")
            seconds.append(int(ticks, 16) / TICKS if kind == KEEP_ALIVE else 0.0)
    return seconds


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/net/tcp")
async def test_connections_of_clients_and_to_the_engine_have_keep_alive(tmp_path: Path) -> None:
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url) as running, running.open_stream("one"):
        # Before its data are acknowledged, a connection has another timer.
        await until(lambda: all(0 < wait <= IDLE_SECONDS for wait in probes(local=running.port)))
        assert probes(local=running.port)
        await until(lambda: any(0 < wait <= IDLE_SECONDS for wait in probes(remote=engine.port)))
        engine.may_finish.set()
