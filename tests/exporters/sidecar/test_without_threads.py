"""A sidecar whose processes cannot start threads works without them, and one that can starts no more than it says."""

from pathlib import Path

import pytest

from exporters.configuration.sidecar import SidecarConfig
from exporters.sidecar.supervision.system_limits import tasks_of
from tests.bench.machine import tree
from tests.support.fake_engine import Engine, serving
from tests.support.ports import free_port
from tests.support.refused_threads import REASON
from tests.support.sidecar_process import RUN, START, Running, children_by, sidecar

pytestmark = pytest.mark.slow

CHILD_WITHOUT_THREADS = f"""\
import runpy, sys, threading

def refuse(self):
    raise RuntimeError({REASON!r})

threading.Thread.start = refuse
module = sys.argv[sys.argv.index("-m") + 1]
sys.argv = [module]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


async def post_long_prompt(running: Running) -> int:
    """Its hash is usually computed by a thread."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": "x" * 200_000}]}
    async with running.session.post(running.completions, json=body) as response:
        return response.status


WAITS = f"{REASON}; other work waits for it"
LACKS = {
    f"WARNING relay-0: hashes of long prompts: {WAITS}",
    f"WARNING relay-0: lookups of names: {WAITS}",
    f"WARNING exporter: lookups of names: {WAITS}",
    f"WARNING exporter: compression and parsing: {WAITS}",
}


def without_threads(folder: Path) -> str:
    script = folder / "child.py"
    script.write_text(CHILD_WITHOUT_THREADS)
    return START + children_by(script, folder) + RUN


def threads_of(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def lacks(running: Running) -> set[str]:
    return {line for line in running.log_lines() if not line.startswith("INFO")}


async def test_without_threads_requests_scrapes_and_the_exit_work_but_no_spans_are_exported_or_received(
    tmp_path: Path,
) -> None:
    collector, by_grpc, by_http = (f"127.0.0.1:{free_port()}" for _ in range(3))
    words = (
        "--otlp",
        f"grpc://{collector}",
        *("--engine-spans", f"grpc://{by_grpc}", "--engine-spans", f"http://{by_http}"),
    )
    async with serving(Engine()) as engine:
        url = f"http://localhost:{engine.port}"
        async with sidecar(tmp_path, url, *words, code=without_threads(tmp_path)) as running:
            await running.shows(f"llm_engine_up{{localhost:{engine.port}}}", 1)
            assert await running.ask("one") == 200
            assert await post_long_prompt(running) == 200
            async with running.session.get(f"{running.pages}/metrics", headers={"accept-encoding": "gzip"}) as page:
                assert (page.status, page.headers["content-encoding"]) == (200, "gzip")
            await running.shows("llm_sidecar_restarts_total{exporter}", 0)
            assert await running.stop() == 0
            assert lacks(running) == LACKS | {
                f"WARNING exporter: parsing of spans: {WAITS}",
                f"ERROR exporter: no spans are exported: {REASON}",
                f"ERROR exporter: --engine-spans: no spans are received on {by_grpc}: {REASON}",
            }


async def test_the_number_of_processes_and_threads_is_the_one_that_the_limits_are_compared_with(tmp_path: Path) -> None:
    async with serving(Engine()) as engine:
        url = f"http://localhost:{engine.port}"
        async with sidecar(tmp_path, url, "--workers", "2") as running:
            assert await running.ask("one") == 200
            assert await post_long_prompt(running) == 200
            await running.shows(f"llm_engine_up{{localhost:{engine.port}}}", 1)
            config = SidecarConfig(upstream=url, slos="", listen="", metrics="", workers=2)
            assert sum(map(threads_of, tree(running.process.pid))) == tasks_of(config)
