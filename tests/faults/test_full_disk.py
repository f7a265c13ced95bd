"""A sidecar whose request log cannot be written continues to measure, and its log continues without a restart."""

import resource
from pathlib import Path

from tests.support.fake_engine import Engine, serving
from tests.support.sidecar_process import Running, sidecar

OK = "llm_requests_total{all,tiny,ok,false,other}"
ERRORS = "llm_sidecar_log_errors_total{}"
CONNECTIONS = "llm_sidecar_client_connections{relay-0}"
DROPPED = "llm_sidecar_dropped_log_lines_total{no_space}"


def limit_file_size(running: Running, size: int) -> None:
    """Files of the exporter cannot grow beyond `size` bytes."""
    pid = running.exporter
    assert pid is not None
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))


async def test_while_the_disk_is_full_series_continue_and_afterwards_the_log_is_complete(tmp_path: Path) -> None:
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url) as running:
        await running.shows(f"llm_engine_up{{127.0.0.1:{engine.port}}}", 1)
        assert await running.ask("before") == 200
        await running.logs("before")
        limit_file_size(running, running.log.stat().st_size + 100)  # less than a line
        assert await running.ask("first") == 200
        await running.shows(OK, 2)
        assert (await running.samples())[ERRORS] >= 1
        assert await running.ask("second") == 200
        await running.shows(OK, 3)
        async with running.open_stream("open"):
            await running.shows("llm_requests_in_flight{all,tiny,streaming}", 1)  # from a snapshot
            engine.may_finish.set()
        assert await running.ready()
        assert await running.logged() == ["before"]
        limit_file_size(running, resource.RLIM_INFINITY)
        await running.logs("before", "first", "second", "open")
        assert (await running.samples())[DROPPED] == 0
        assert await running.stop() == 0
    assert "ERROR exporter: request log: [Errno 27] File too large" in running.log_lines()
