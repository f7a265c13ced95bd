"""A sidecar whose request log cannot be written continues to measure, and its log continues without a restart."""

import asyncio
import resource
import tempfile
from pathlib import Path

import aiohttp

from alerts.alert_names import AlertName
from alerts.rule_file import rules
from alerts.rule_groups import to_yaml
from compose.prometheus_tools import Tools
from exporters import slos
from exporters.prometheus_api import Prometheus
from exporters.records import Batch, Hello, frame
from exporters.sidecar.ingest.record_receiver import MAX_PENDING_RECORDS
from tests.support.fake_engine import Engine, serving
from tests.support.prometheus_process import prometheus
from tests.support.sample_records import finished
from tests.support.sidecar_process import SLOS, Running, sidecar
from tests.support.waiting import until

OK = "llm_requests_total{all,chat_completions,tiny,ok,false,other}"
ERRORS = "llm_sidecar_log_errors_total{}"
CONNECTIONS = "llm_sidecar_client_connections{relay-0}"
DROPPED = "llm_sidecar_dropped_log_lines_total{chat_completions,no_space}"


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


async def send_records(folder: Path, count: int) -> asyncio.StreamWriter:
    """Send this many records to the exporter of the sidecar with this folder for temporary files, as a relay does."""
    (socket,) = folder.glob("*/records.sock")  # noqa: ASYNC240 - a local folder
    _, writer = await asyncio.open_unix_connection(socket)
    writer.write(frame(Hello("relay-1", "run")))
    for first in range(1, count + 1, 100):
        writer.write(frame(Batch(first, [finished(request_class="all", tenant="other") for _ in range(100)])))
    await writer.drain()
    return writer


async def test_lines_dropped_on_a_full_disk_are_counted_exactly_and_raise_a_ticket(
    tools: Tools, tmp_path: Path
) -> None:
    spec = slos.loads(SLOS)
    (tmp_path / "rules.yaml").write_text(to_yaml(rules(spec)))
    records = MAX_PENDING_RECORDS + LINES_OVER_THE_LIMIT
    with tempfile.TemporaryDirectory() as short:  # the path of a socket has at most 107 bytes
        async with (
            serving(Engine()) as engine,
            sidecar(  # each write fails with ENOSPC
                tmp_path, engine.url, "--request-log", "/dev/full", with_log=False, variables={"TMPDIR": short}
            ) as running,
            prometheus(
                tools.prometheus, tmp_path, running.metrics_port, job=slos.SIDECAR_JOB, rules=tmp_path / "rules.yaml"
            ) as url,
        ):
            server = Prometheus(url)

            async def scraped() -> bool:
                return await _scraped(running, url)

            await until(scraped)
            await running.shows(f"llm_engine_up{{127.0.0.1:{engine.port}}}", 1)
            writer = await send_records(Path(short), records)
            await running.shows("llm_sidecar_dropped_log_lines_total{chat_completions,no_space}", LINES_OVER_THE_LIMIT)
            await running.shows("llm_requests_total{all,chat_completions,tiny,ok,true,other}", records)

            def fired() -> bool:
                return any(
                    alert.state == "firing"
                    and alert.labels["alertname"] == AlertName.LOG_LINES
                    and alert.labels["reason"] == "no_space"
                    for alert in server.alerts()
                )

            await until(fired)
            assert await running.ready()
            writer.close()


async def _scraped(running: Running, url: str) -> bool:
    """Whether Prometheus has a sample of the counter before it increases."""
    query = {"query": "llm_sidecar_dropped_log_lines_total == 0"}
    try:
        async with running.session.get(f"{url}/api/v1/query", params=query) as response:
            return response.status == 200 and bool((await response.json())["data"]["result"])
    except aiohttp.ClientError:
        return False
