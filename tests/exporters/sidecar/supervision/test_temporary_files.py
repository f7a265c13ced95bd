"""The processes of the sidecar find each other without files, which a cleaner of temporary files could delete."""

from pathlib import Path

import pytest

from tests.faults.sidecar_state import kill_exporter, kill_relay
from tests.support.fake_engine import Engine, serving
from tests.support.sidecar_process import QUICK_RESTARTS, RUN, START, sidecar

pytestmark = pytest.mark.slow

QUICK = START + QUICK_RESTARTS + RUN


async def test_children_that_restart_after_temporary_files_were_deleted_deliver_all_records(tmp_path: Path) -> None:
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
