"""A relay that exits at each start does not hold connections that it cannot serve."""

import signal
from pathlib import Path

import pytest

from tests.support.fake_engine import Engine, serving
from tests.support.sidecar_process import QUICK_RESTARTS, RUN, START, sidecar
from tests.support.waiting import until

pytestmark = pytest.mark.slow

EXITING_WHILE = """
from pathlib import Path
start = supervisor.Child.start
async def start_or_exit(self, config):
    module = self.module
    if self.name != "exporter" and Path({file!r}).exists():
        self.module = "this"  # a module that exits at once
    try:
        await start(self, config)
    finally:
        self.module = module
supervisor.Child.start = start_or_exit
"""
"""While the file exists, each relay that is started exits at once."""


def exiting_while(file: Path) -> str:
    return START + QUICK_RESTARTS + f"exec({EXITING_WHILE.format(file=str(file))!r}); {RUN}"


async def test_other_relays_serve_all_connections_while_one_exits_at_each_start(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    code = exiting_while(broken)
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, "--workers", "2", code=code) as running:
        broken.touch()
        running.signal_relay(signal.SIGKILL)
        await until(lambda: running.stderr.read_text().count("exited with status 0; restarting it") > 3)
        request_ids = [f"r-{n}" for n in range(40)]
        for name in request_ids:
            headers = {"x-request-id": name, "connection": "close"}  # the kernel selects a relay for each connection
            async with running.session.post(running.completions, json={"model": "m"}, headers=headers) as response:
                assert response.status == 200
        await running.logs(*request_ids)
        broken.unlink()
        await until(running.ready)


async def test_clients_are_refused_while_the_only_relay_exits_at_each_start_and_served_when_it_runs(
    tmp_path: Path,
) -> None:
    broken = tmp_path / "broken"
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, code=exiting_while(broken)) as running:
        broken.touch()
        running.signal_relay(signal.SIGKILL)
        await until(running.refuses_connections)
        line = (
            "WARNING supervisor: relay-0 ended 3 times within 10 s of its start; its listening socket stays closed "
            "until it runs"
        )
        assert running.log_lines().count(line) == 1
        broken.unlink()
        await until(running.ready)
        assert await running.ask("one") == 200
        await running.logs("one")
        broken.touch()
        running.signal_relay(signal.SIGKILL)
        await until(running.refuses_connections)
        assert await running.stop() == 0  # also while the relay exits at each start
