"""Children that cannot be started at once, their import path, and files that they do not need to find each other."""

import errno
import os
import resource
import signal
from pathlib import Path

import pytest

from tests.faults.sidecar_state import kill_exporter, kill_relay
from tests.support.fake_engine import Engine, serving
from tests.support.sidecar_process import QUICK_RESTARTS, RUN, START, children, sidecar
from tests.support.waiting import until

pytestmark = pytest.mark.slow

QUICK = START + QUICK_RESTARTS + "supervisor.READINESS_TIMEOUT = 0.1; " + RUN


async def test_without_free_descriptors_a_relay_is_started_as_soon_as_there_are_some_and_the_stop_works(
    tmp_path: Path,
) -> None:
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, code=QUICK) as running:
        supervisor = running.process.pid
        before = resource.prlimit(supervisor, resource.RLIMIT_NOFILE)
        too_few = (3, before[1])  # fewer than are open, so that every further one fails with EMFILE
        resource.prlimit(supervisor, resource.RLIMIT_NOFILE, too_few)
        relay = running.signal_relay(signal.SIGKILL)
        line = "WARNING supervisor: {} cannot be started: too many open files; retrying"
        await until(lambda: running.log_lines().count(line.format("relay-0")) > 1)
        resource.prlimit(supervisor, resource.RLIMIT_NOFILE, before)
        await until(running.ready)
        assert running.relay not in {None, relay}
        assert await running.ask("after") == 200
        await running.shows("llm_sidecar_restarts_total{relay-0}", 1)
        resource.prlimit(supervisor, resource.RLIMIT_NOFILE, too_few)
        running.signal_exporter(signal.SIGKILL)
        await running.logs_line(line.format("exporter"))
        assert await running.stop() == 0
        assert children(supervisor) == {}


FAILING_STARTS = """
import os, subprocess
spawn = subprocess.Popen.__init__
failures = {{module: list({numbers}) for module in ("exporters.relay.process", "exporters.sidecar.exporter")}}
def fail_first(self, arguments, **options):
    if failures[arguments[-1]]:
        number = failures[arguments[-1]].pop()
        raise OSError(number, os.strerror(number))
    spawn(self, arguments, **options)
subprocess.Popen.__init__ = fail_first
"""


async def test_each_child_is_started_again_until_the_system_has_resources(tmp_path: Path) -> None:
    numbers = [errno.EMFILE, errno.EAGAIN, errno.ENOMEM]
    code = START + QUICK_RESTARTS + f"exec({FAILING_STARTS.format(numbers=numbers)!r}); {RUN}"
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, code=code) as running:
        assert await running.ask("one") == 200
        failed = [line for line in running.log_lines() if "cannot be started" in line]
        assert sorted(failed) == sorted(
            f"WARNING supervisor: {child} cannot be started: {os.strerror(number).lower()}; retrying"
            for child in ("relay-0", "exporter")
            for number in numbers
        )
        assert await running.stop() == 0


async def test_a_folder_in_the_working_directory_does_not_shadow_the_packages_of_a_child(tmp_path: Path) -> None:
    for package in ("exporters", "uvloop"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise SystemExit('the wrong package')")
    code = f"{START}import os; os.chdir({str(tmp_path)!r}); {RUN}"
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, code=code) as running:
        assert await running.ask("one") == 200
        await running.logs("one")


async def test_children_that_restart_after_temporary_files_were_deleted_deliver_all_records(tmp_path: Path) -> None:
    """A cleaner of temporary files could delete those of a socket."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    variables = {"TMPDIR": str(temporary)}
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, code=QUICK, variables=variables) as running:
        assert list(temporary.iterdir()) == []
        temporary.rmdir()
        await kill_exporter(running)
        assert await running.ask("after-the-exporter") == 200
        await running.logs("after-the-exporter")
        await kill_relay(running)
        assert await running.ask("after-the-relay") == 200
        await kill_exporter(running)
        assert await running.ask("after-both") == 200
        await running.logs("after-the-exporter", "after-the-relay", "after-both")
