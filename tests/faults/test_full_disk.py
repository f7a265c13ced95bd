"""A sidecar whose request log cannot be written continues to measure, and its log continues without a restart."""

import resource
import signal
from pathlib import Path

import aiohttp
import pytest

from alerts.rule_file import rules
from alerts.rules.groups import to_yaml
from compose.programs.tools import Tools
from exporters.analysis.prometheus_api import Prometheus
from exporters.vocabulary import slo_file
from exporters.vocabulary.alert_names import AlertName
from tests.faults.small_bounds import PENDING_RECORDS
from tests.support.fake_engine import Engine, serving
from tests.support.prometheus_process import prometheus
from tests.support.sidecar_process import ROOT, RUN, SLOS, START, Running, children_by, sidecar
from tests.support.waiting import until

pytestmark = pytest.mark.slow

OK = "llm_requests_total{all,tiny,ok,chat_completions,false,other}"
ERRORS = "llm_sidecar_log_errors_total{}"
DROPPED = "llm_sidecar_dropped_log_lines_total{no_space,chat_completions}"


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


LINES_OVER_THE_LIMIT = 700
RECORDS = PENDING_RECORDS + LINES_OVER_THE_LIMIT

RELAY_WITH_RECORDS = f"""\
import runpy, signal, sys
sys.path.append({str(ROOT)!r})
from exporters.relay.record_sender import Sender
from exporters.sidecar.ingest import receiver
from tests.support.sample_records import finished

receiver.MAX_PENDING_RECORDS = {PENDING_RECORDS}

start = Sender.start

def start_and_wait(self):
    def add_records(*_):
        for _ in range({RECORDS}):
            self.outbox.add(finished(request_class="all", tenant="other"))

    signal.signal(signal.SIGUSR1, add_records)
    start(self)

Sender.start = start_and_wait
module = sys.argv[sys.argv.index("-m") + 1]
sys.argv = [module]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""
"""A child in which a relay that receives SIGUSR1 sends records; fewer lines may wait than usually."""


async def test_lines_dropped_on_a_full_disk_are_counted_exactly_and_raise_a_ticket(
    tools: Tools, tmp_path: Path
) -> None:
    spec = slo_file.loads(SLOS)
    (tmp_path / "rules.yaml").write_text(to_yaml(rules(spec)))
    script = tmp_path / "child.py"
    script.write_text(RELAY_WITH_RECORDS)
    code = START + children_by(script, tmp_path) + RUN
    async with (
        serving(Engine()) as engine,
        sidecar(  # each write fails with ENOSPC
            tmp_path, engine.url, "--request-log", "/dev/full", with_log=False, code=code
        ) as running,
        prometheus(
            tools.prometheus, tmp_path, running.metrics_port, job=slo_file.SIDECAR_JOB, rules=tmp_path / "rules.yaml"
        ) as url,
    ):
        server = Prometheus(url)

        async def scraped() -> bool:
            return await _scraped(running, url)

        await until(scraped)
        await running.shows(f"llm_engine_up{{127.0.0.1:{engine.port}}}", 1)
        running.signal_relay(signal.SIGUSR1)
        await running.shows("llm_sidecar_dropped_log_lines_total{no_space,chat_completions}", LINES_OVER_THE_LIMIT)
        await running.shows("llm_requests_total{all,tiny,ok,chat_completions,true,other}", RECORDS)

        def fired() -> bool:
            return any(
                alert.state == "firing"
                and alert.labels["alertname"] == AlertName.LOG_LINES
                and alert.labels["reason"] == "no_space"
                for alert in server.alerts()
            )

        await until(fired)
        assert await running.ready()


async def _scraped(running: Running, url: str) -> bool:
    """Whether Prometheus has a sample of the counter before it increases."""
    query = {"query": "llm_sidecar_dropped_log_lines_total == 0"}
    try:
        async with running.session.get(f"{url}/api/v1/query", params=query) as response:
            return response.status == 200 and bool((await response.json())["data"]["result"])
    except aiohttp.ClientError:
        return False
