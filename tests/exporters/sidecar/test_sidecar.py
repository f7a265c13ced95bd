"""`vllm-slo sidecar` end to end: processes, signals and sockets."""

import contextlib
import fcntl
import json
import os
import signal
from pathlib import Path

import aiohttp
import pytest

from exporters.requestlog.rotation import rotated_files
from exporters.requestlog.standard_output import PIPE_SIZE
from tests.support.fake_engine import Engine, serving
from tests.support.openmetrics import parse_openmetrics
from tests.support.ports import free_port
from tests.support.sidecar_process import RUN, START, alive, sidecar
from tests.support.waiting import HANG, until

SLOW_RESTARTS = f"{START}supervisor.RESTART_PAUSE = supervisor.LONGEST_PAUSE = 10 * {HANG}; {RUN}"
OK = "llm_requests_total{all,chat_completions,tiny,ok,false,other}"


async def test_a_request_is_relayed_logged_and_counted(tmp_path: Path) -> None:
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url) as running:
        assert await running.status("/healthz") == 200
        await running.shows(f"llm_engine_up{{127.0.0.1:{engine.port}}}", 1)
        assert await running.ask("one") == 200
        await running.shows(OK, 1)
        await running.logs("one")
        (line,) = running.lines()
        assert (line["outcome"], line["prompt_tokens"], line["slo"]) == ("ok", 3, {"availability": "good"})
        assert line["config_revision"] is not None
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
    engine = Engine(port=free_port())
    up = f"llm_engine_up{{127.0.0.1:{engine.port}}}"
    async with sidecar(tmp_path, engine.url) as running:
        await running.shows(up, 0)
        body = {"model": "tiny", "messages": []}
        async with running.session.post(f"{running.url}/v1/chat/completions", json=body) as response:
            assert response.status == 502
            assert response.content_type == "application/json"
            message = f"vllm-slo: the engine at 127.0.0.1:{engine.port} cannot be reached: "
            error = (await response.json())["error"]
            assert error.pop("message").startswith(message)
            assert error == {"type": "upstream_error", "param": None, "code": "upstream_unreachable"}
        await running.shows("llm_requests_total{all,chat_completions,other,upstream_unreachable,false,other}", 1)
        await running.shows("llm_slo_bad_events_total{all,other,availability,other}", 1)
        async with serving(engine):
            await running.shows(up, 1)
            assert await running.ask("back") == 200
            await running.shows(OK, 1)


async def test_models_over_the_limit_are_other_and_counted(tmp_path: Path) -> None:
    adapters = tuple(f"adapter-{number}" for number in range(3000))
    flags = ("--max-models", "3", "--model", "named")
    async with serving(Engine(models=("tiny", *adapters))) as engine, sidecar(tmp_path, engine.url, *flags) as running:
        await running.shows("llm_sidecar_models_over_limit{}", 2999)
        for number, model in enumerate(("named", "tiny", "adapter-0", "adapter-1", "adapter-2999")):
            assert await running.ask(f"r-{number}", model=model) == 200
        await running.shows("llm_requests_total{all,chat_completions,other,ok,false,other}", 2)
        samples = await running.samples()
        named = [
            f"llm_requests_total{{all,chat_completions,{model},ok,false,other}}"
            for model in ("named", "tiny", "adapter-0")
        ]
        assert [samples[name] for name in named] == [1, 1, 1]
        await running.logs(*(f"r-{number}" for number in range(5)))
        models = [line["model"] for line in running.lines()]  # of the requests, not of the label
        assert sorted(models) == ["adapter-0", "adapter-1", "adapter-2999", "named", "tiny"]
        reason = "because --max-models is 3 or their names are longer than 252 bytes"
        assert running.log_lines().count(f"WARNING exporter: 2999 models count as `other`, {reason}") == 1


async def test_a_killed_relay_is_restarted_and_counted(tmp_path: Path) -> None:
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url) as running:
        relay = running.signal_relay(signal.SIGKILL)
        await running.shows("llm_sidecar_restarts_total{relay-0}", 1)
        assert running.relay not in {None, relay}
        await until(running.ready)
        assert await running.ask("after") == 200
        await running.logs("after")
        assert "WARNING supervisor: relay-0 exited by signal 9; restarting it" in running.log_lines()


async def test_sigterm_lets_an_open_stream_finish_and_rejects_new_connections(tmp_path: Path) -> None:
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url) as running:
        async with running.open_stream("open") as stream:
            running.process.send_signal(signal.SIGTERM)
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


async def test_a_stream_that_is_open_after_the_drain_is_ended_and_logged(tmp_path: Path) -> None:
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, "--drain", "100ms") as running:
        async with running.open_stream("open") as stream:
            assert await running.stop() == 0
            with pytest.raises(aiohttp.ClientPayloadError):
                await stream.read()
        assert [line["outcome"] for line in running.lines()] == ["upstream_error"]


async def test_after_a_killed_supervisor_the_children_exit_and_the_log_is_complete(tmp_path: Path) -> None:
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url) as running:
        assert await running.ask("one") == 200
        pids = [running.signal_exporter(0), running.signal_relay(0)]
        running.process.kill()
        await until(lambda: not any(map(alive, pids)))
        assert await running.logged() == ["one"]


async def test_sigterm_to_all_processes_lets_an_open_stream_finish_and_logs_it(tmp_path: Path) -> None:
    """As systemd stops a service."""
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url) as running:
        async with running.open_stream("open") as stream:
            running.process.send_signal(signal.SIGTERM)
            running.signal_exporter(signal.SIGTERM)
            running.signal_relay(signal.SIGTERM)
            await until(running.refuses_connections)
            engine.may_finish.set()
            assert (await stream.read()).endswith(b"data: [DONE]\n\n")
        assert await running.ended() == 0
        assert await running.logged() == ["open"]


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


async def test_the_request_log_on_standard_output_has_each_request_and_nothing_else(tmp_path: Path) -> None:
    output = tmp_path / "output"
    with output.open("wb") as file:
        async with (
            serving(Engine()) as engine,
            sidecar(tmp_path, engine.url, "--request-log", "-", with_log=False, stdout=file.fileno()) as running,
        ):
            await running.shows(f"llm_engine_up{{127.0.0.1:{engine.port}}}", 1)
            assert await running.ask("one") == 200
            await running.shows(OK, 1)
            running.process.send_signal(signal.SIGHUP)
            assert await running.ask("two") == 200
            await running.shows(OK, 2)
            assert await running.stop() == 0
    assert [json.loads(line)["request_id"] for line in output.read_text().splitlines()] == ["one", "two"]


async def test_a_reader_of_standard_output_that_stops_reading_stops_neither_requests_nor_series(tmp_path: Path) -> None:
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

        def read() -> bool:
            nonlocal output
            with contextlib.suppress(BlockingIOError):
                output += os.read(reading, PIPE_SIZE)
            return output.endswith(b"}\n")

        await until(read)
        assert json.loads(output)["request_id"] == "one"
    os.close(reading)
    os.close(writing)


def fill(pipe: int) -> None:
    """Write line breaks until the pipe is full."""
    os.set_blocking(pipe, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(pipe, b"\n" * 4096)
    os.set_blocking(pipe, True)


async def test_sighup_without_a_log_has_no_effect(tmp_path: Path) -> None:
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, with_log=False) as running:
        await running.shows(f"llm_engine_up{{127.0.0.1:{engine.port}}}", 1)
        before = running.exporter
        assert await running.ask("one") == 200
        running.process.send_signal(signal.SIGHUP)
        await running.shows(OK, 1)
        assert await running.ask("two") == 200
        await running.shows(OK, 2)
        assert running.exporter == before
