"""Children that cannot be started for lack of descriptors, processes or memory, and the import path of children."""

import os
import resource
import signal
from pathlib import Path

import pytest

from tests.support.fake_engine import Engine, serving
from tests.support.sidecar_process import QUICK_RESTARTS, RUN, START, children, sidecar
from tests.support.waiting import until

QUICK = START + QUICK_RESTARTS + RUN


async def test_without_free_descriptors_a_relay_is_started_as_soon_as_there_are_some(tmp_path: Path) -> None:
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, code=QUICK) as running:
        supervisor = running.process.pid
        before = resource.prlimit(supervisor, resource.RLIMIT_NOFILE)
        # Fewer than are open, so that every further one fails with EMFILE.
        resource.prlimit(supervisor, resource.RLIMIT_NOFILE, (3, before[1]))
        relay = running.signal_relay(signal.SIGKILL)
        line = "WARNING supervisor: relay-0 cannot be started: too many open files; retrying"
        await until(lambda: running.log_lines().count(line) > 1)
        resource.prlimit(supervisor, resource.RLIMIT_NOFILE, before)
        await until(running.ready)
        assert running.relay not in {None, relay}
        assert await running.ask("after") == 200
        await running.shows("llm_sidecar_restarts_total{relay-0}", 1)


FAILING_STARTS = """
import errno, subprocess
spawn = subprocess.Popen.__init__
failures = dict.fromkeys(("exporters.relay.process", "exporters.sidecar.exporter"), 3)
def fail_first(self, arguments, **options):
    module = arguments[-1]
    if failures[module]:
        failures[module] -= 1
        raise OSError(errno.{name}, {reason!r})
    spawn(self, arguments, **options)
subprocess.Popen.__init__ = fail_first
"""


@pytest.mark.parametrize("name, number", [("EMFILE", 24), ("EAGAIN", 11), ("ENOMEM", 12)])
async def test_each_child_is_started_again_until_the_system_has_resources(
    tmp_path: Path, name: str, number: int
) -> None:
    reason = os.strerror(number)
    code = START + QUICK_RESTARTS + f"exec({FAILING_STARTS.format(name=name, reason=reason)!r}); {RUN}"
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, code=code) as running:
        assert await running.ask("one") == 200
        for child in ("relay-0", "exporter"):
            line = f"WARNING supervisor: {child} cannot be started: {reason.lower()}; retrying"
            assert running.log_lines().count(line) == 3
        assert await running.stop() == 0


async def test_an_exporter_that_cannot_be_started_does_not_prevent_the_stop(tmp_path: Path) -> None:
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, code=QUICK) as running:
        supervisor = running.process.pid
        _, hard = resource.prlimit(supervisor, resource.RLIMIT_NOFILE)
        resource.prlimit(supervisor, resource.RLIMIT_NOFILE, (3, hard))
        running.signal_exporter(signal.SIGKILL)
        await running.logs_line("WARNING supervisor: exporter cannot be started: too many open files; retrying")
        assert await running.stop() == 0
        assert children(supervisor) == {}


async def test_a_folder_in_the_working_directory_does_not_shadow_the_packages_of_a_child(tmp_path: Path) -> None:
    for package in ("exporters", "uvloop"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise SystemExit('the wrong package')")
    code = f"{START}import os; os.chdir({str(tmp_path)!r}); {RUN}"
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, code=code) as running:
        assert await running.ask("one") == 200
        await running.logs("one")
