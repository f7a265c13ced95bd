"""`vllm-slo sidecar` end to end: processes, signals and sockets."""

import contextlib
import fcntl
import json
import os
import signal
from functools import partial
from pathlib import Path

import pytest

from exporters.requestlog.rotation import rotated_files
from exporters.requestlog.standard_output import PIPE_SIZE
from tests.support.fake_engine import Engine, serving
from tests.support.openmetrics import parse_openmetrics
from tests.support.ports import free_port
from tests.support.sidecar_process import RUN, START, run_command, sidecar
from tests.support.waiting import HANG, until

pytestmark = pytest.mark.slow

SLOW_RESTARTS = f"{START}supervisor.RESTART_PAUSE = supervisor.LONGEST_PAUSE = 10 * {HANG}; {RUN}"
OK = "llm_requests_total{all,tiny,ok,chat_completions,false,other}"


async def test_the_supervisor_and_the_commands_start_without_importing_an_http_server() -> None:
    modules = "exporters.sidecar.command, exporters.sidecar.drain_command, exporters.sidecar.flip_command"
    code = f"import sys, {modules}; sys.exit('aiohttp' in sys.modules)"
    assert await run_command(code=code) == (0, "", "")


async def test_a_request_is_relayed_logged_and_counted(tmp_path: Path) -> None:
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url) as running:
        assert (await running.status("/healthz"), await running.status("/admin/flips")) == (200, 404)
        await running.shows(f"llm_engine_up{{127.0.0.1:{engine.port}}}", 1)
        assert await running.ask("one") == 200
        await running.shows(OK, 1)
        await running.logs("one")
        (line,) = running.lines()
        assert (line["outcome"], line["prompt_tokens"], line["slo"]) == ("ok", 3, {"availability": "good"})
        assert line["config_revision"] is not None
        await running.shows(f"llm_sidecar_upstream_connect_errors_total{{relay-0,refused,127.0.0.1:{engine.port}}}", 0)
        accept = {"accept": "application/openmetrics-text; version=1.0.0"}
        async with running.session.get(f"{running.pages}/metrics", headers=accept) as response:
            families = {family.name: family for family in parse_openmetrics(await response.text())}
        assert {"llm_requests", "llm_engine_up", "llm_time_to_first_token_seconds"} <= families.keys()
        costs = {sample.labels["process"]: sample.value for sample in families["llm_sidecar_cpu_seconds"].samples}
        assert costs.keys() == {"relay-0", "exporter"}
        assert 0 not in costs.values()
        async with running.session.get(f"{running.url}/metrics") as response:
            assert response.status == 403
        assert await running.stop() == 0
        assert running.log_lines() == [
            (
                f"INFO supervisor: relaying 127.0.0.1:{running.port} -> {engine.url}, "
                f"metrics on 127.0.0.1:{running.metrics_port}/metrics"
            ),
            "INFO supervisor: SIGTERM: /readyz fails, no new connections after 0 s, open requests have 15 s more",
            "INFO supervisor: drained",
        ]


async def test_without_an_engine_it_responds_with_502_until_the_engine_is_up(tmp_path: Path) -> None:
    """Also after a SIGHUP, which has no effect without a log."""
    engine = Engine(port=free_port())
    up = f"llm_engine_up{{127.0.0.1:{engine.port}}}"
    async with sidecar(tmp_path, engine.url, with_log=False) as running:
        await running.shows(up, 0)
        exporter = running.exporter
        running.process.send_signal(signal.SIGHUP)
        body = {"model": "tiny", "messages": []}
        async with running.session.post(f"{running.url}/v1/chat/completions", json=body) as response:
            assert response.status == 502
            assert response.content_type == "application/json"
            message = f"vllm-slo: the engine at 127.0.0.1:{engine.port} cannot be reached: "
            error = (await response.json())["error"]
            assert error.pop("message").startswith(message)
            assert error == {"type": "upstream_error", "param": None, "code": "upstream_unreachable"}
        await running.shows("llm_requests_total{all,other,upstream_unreachable,chat_completions,false,other}", 1)
        address = f"127.0.0.1:{engine.port}"
        metrics = f"the metrics of engine {address} at http://{address}/metrics"
        await running.logs_line(f"WARNING exporter: {metrics} cannot be read: connection refused")
        await running.logs_line(f"WARNING relay-0: the engine at {address} cannot be reached: connection refused")
        await running.shows("llm_slo_bad_events_total{all,other,availability,other}", 1)
        async with serving(engine):
            await running.shows(up, 1)
            assert await running.ask("back") == 200
            await running.shows(OK, 1)
            ends = [line.partition(", after")[0] for line in running.log_lines() if "again" in line]
            assert sorted(ends) == [
                f"INFO exporter: {metrics} can be read again",
                f"INFO relay-0: the engine at {address} can be reached again",
            ]
            assert running.exporter == exporter


async def test_sigterm_to_all_processes_lets_an_open_stream_finish_and_logs_it(tmp_path: Path) -> None:
    """As systemd stops a service."""
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url) as running:
        async with running.open_stream("open") as stream:
            running.process.send_signal(signal.SIGTERM)
            running.signal_exporter(signal.SIGTERM)
            running.signal_relay(signal.SIGTERM)
            await until(running.refuses_connections)
            assert await running.status("/readyz") == 503
            assert running.process.returncode is None
            engine.may_finish.set()
            rest = await stream.read()
            assert rest.endswith(b"data: [DONE]\n\n")
            assert b'"usage"' not in rest
        assert await running.ended() == 0
        (line,) = running.lines()
        assert (line["request_id"], line["outcome"], line["completion_tokens"]) == ("open", "ok", 2)


async def test_sigterm_during_the_restart_pause_ends_immediately(tmp_path: Path) -> None:
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, code=SLOW_RESTARTS) as running:
        running.signal_relay(signal.SIGKILL)
        await running.logs_line("WARNING supervisor: relay-0 exited by signal 9; restarting it")
        running.process.send_signal(signal.SIGTERM)
        assert await running.ended() == 0


async def test_the_request_log_is_rotated_and_stays_within_its_total(tmp_path: Path) -> None:
    limits = ("--request-log-max-size", "1500", "--request-log-total", "4000")
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, *limits) as running:
        for number in range(12):
            assert await running.ask(f"r-{number}") == 200

        async def logged() -> bool:
            return "r-11" in await running.logged()

        await until(logged)
        sizes = [file.stat().st_size for file in (running.log, *rotated_files(running.log))]
        assert 2 <= len(sizes) <= 4
        assert max(sizes) <= 1500
        assert sum(sizes) <= 4000


async def test_standard_output_has_each_request_and_a_reader_that_stops_reading_stops_nothing(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
    os.set_blocking(reading, False)
    fill(writing)
    async with (
        serving(Engine()) as engine,
        sidecar(tmp_path, engine.url, "--request-log", "-", with_log=False, stdout=writing) as running,
    ):
        await running.shows(f"llm_engine_up{{127.0.0.1:{engine.port}}}", 1)
        assert await running.ask("one") == 200
        await running.shows(OK, 1)
        assert await running.ready()
        output = b""

        def read(lines: int) -> bool:
            nonlocal output
            with contextlib.suppress(BlockingIOError):
                output += os.read(reading, PIPE_SIZE)
            return output.strip().count(b"\n") == lines - 1 and output.endswith(b"}\n")

        await until(partial(read, 1))
        running.process.send_signal(signal.SIGHUP)
        assert await running.ask("two") == 200
        await until(partial(read, 2))
        assert await running.stop() == 0
    os.close(writing)
    output += os.read(reading, PIPE_SIZE)
    assert [json.loads(line)["request_id"] for line in output.split()] == ["one", "two"]
    os.close(reading)


def fill(pipe: int) -> None:
    """Write line breaks until the pipe is full."""
    os.set_blocking(pipe, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(pipe, b"\n" * 4096)
    os.set_blocking(pipe, True)
