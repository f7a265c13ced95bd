"""A sidecar that follows the request log of another one has the same series, over rotations and kills."""

import random
import signal
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from exporters.requestlog.writer import encode_line
from exporters.sidecar.follow.follower import absent
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Outcome, Signal, Verdict
from tests.support.fake_engine import Engine, serving
from tests.support.sample_records import finished
from tests.support.sidecar_process import SLOS, Running, following_sidecar, sidecar
from tests.support.simulator import simulator
from tests.support.waiting import until

pytestmark = pytest.mark.slow

JUDGED = """
version: 1
period: 2h
scrape_interval: 200ms
tenants: {header: x-tenant, allow: [team-a]}
classes:
  - {name: short, max_tokens: "<=8"}
  - {name: all}
slos:
  - {name: ttft, classes: [short, all], signal: ttft, threshold: 5s, objective: 95%}
  - {name: tpot, classes: [all], signal: tpot, threshold: 3ms, objective: 95%}
  - {name: e2e, classes: [short, other], signal: e2e, threshold: 1ms, objective: 95%}
  - {name: queue, classes: [all], signal: queue, threshold: 3s, objective: 95%}
  - {name: availability, classes: [short, all, other], signal: availability, objective: 99%}
"""
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "hi there"}]}
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", CHAT | {"max_tokens": 5}),
    ("/v1/chat/completions", CHAT | {"max_tokens": 20, "stream": True}),
    ("/v1/chat/completions", CHAT | {"max_tokens": 20, "stream": True}),
    ("/v1/chat/completions", CHAT | {"model": "unknown"}),
    ("/v1/completions", {"model": "tiny", "prompt": "a b c", "max_tokens": 4, "stream": True}),
    ("/v1/completions", {"model": "tiny", "prompt": "a b c", "max_tokens": 40}),
    ("/v1/responses", {"model": "tiny", "input": "hello", "max_output_tokens": 9}),
    ("/v1/responses", {"model": "tiny", "input": "hello", "max_output_tokens": 9, "background": True, "store": True}),
    ("/v1/messages", CHAT | {"max_tokens": 9, "stream": True}),
    ("/v1/messages/count_tokens", CHAT),
    ("/v1/embeddings", {"model": "tiny", "input": "hello"}),
    ("/tokenize", {"model": "tiny", "prompt": "hello"}),
    ("/detokenize", {"model": "tiny", "tokens": [1, 2, 3]}),
    ("/sleep", {}),
]

COUNTED = "llm_sidecar_followed_lines_total{counted}"
NOT_FROM_RECORDS = ("llm_engine_", "llm_sidecar_", "llm_roofline_")
NOT_IN_THE_LOG: tuple[Signal, ...] = (
    *absent(None),
    # for a prompt whose tokens are unknown, the relay uses an estimate, which has no field
    *(signals.REQUESTS_BY_SIZE, signals.REQUESTS_BY_LENGTH, signals.FAILED_BY_LENGTH),
)


async def samples(running: Running) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """The samples of requests, by name and labels."""
    _, text = await running.fetch("/metrics")
    absent = tuple(signal.name.removesuffix("_total") for signal in NOT_IN_THE_LOG)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.startswith(NOT_FROM_RECORDS) and family.name not in absent
    }


async def test_a_followed_request_log_gives_the_series_of_the_sidecar_that_wrote_it(tmp_path: Path) -> None:
    async with simulator() as engine, sidecar(tmp_path, engine, slo_file=JUDGED) as relaying:
        await until(lambda: _has_model(relaying))
        for number, (path, body) in enumerate(REQUESTS):
            headers = {"x-tenant": "team-a"} if number % 2 else {}
            async with relaying.session.post(f"{relaying.url}{path}", json=body, headers=headers) as response:
                await response.read()
        async with relaying.session.get(f"{relaying.url}/v1/models") as response:
            await response.read()
        await until(lambda: len(relaying.lines()) == len(REQUESTS) + 1)
        async with following_sidecar(tmp_path, engine, relaying.log, slo_file=JUDGED) as following:
            await following.shows("llm_sidecar_followed_lines_total{counted}", len(REQUESTS) + 1)
            for each in (relaying, following):
                await samples(each)  # the first exposition has the first counts at 0
            written, read = await samples(relaying), await samples(following)
            assert read.keys() == written.keys()
            rounded = {value for entry in relaying.lines() for name, value in entry.items() if name.endswith("_ms")}
            for series, value in written.items():
                bound = float(dict(series[1]).get("le", "-1")) * 1000
                if bound in rounded:  # the value may have been above the bound before the log rounded it
                    continue
                assert read[series] == pytest.approx(value, rel=1e-9, abs=1e-5), series
            found = await following.samples()
            assert found["llm_sidecar_followed_lines_total{bad}"] == 0
            assert found["llm_sidecar_follow_lag_bytes{}"] == 0
            assert found["llm_sidecar_follow_up{}"] == 1
            assert any(name.startswith("llm_engine_up{") for name in found)
            _, text = await following.fetch("/metrics")
            for signal in absent(None):
                assert signal.name not in text
            assert await following.stop() == 0


async def _has_model(running: Running) -> bool:
    return "llm_goodput_events_total{all,tiny,other}" in await running.samples()


def line(number: int) -> bytes:
    verdict = Verdict.BAD if number % 3 == 0 else Verdict.GOOD
    outcome = Outcome.UPSTREAM_ERROR if verdict is Verdict.BAD else Outcome.OK
    record = finished(request_class="all", tenant="other", slo={"availability": verdict}, outcome=outcome, ttft=0.5)
    return encode_line(record, f"run:{number}", None)


@pytest.mark.parametrize("seed, kills", [(1, 1), pytest.param(2, 8, marks=pytest.mark.long)])
async def test_a_killed_exporter_counts_each_line_once(seed: int, kills: int, tmp_path: Path) -> None:
    """The writer appends and rotates; the exporter is killed at random moments and restarted."""
    chance = random.Random(seed)  # noqa: S311 - reproducible choices
    log, written = tmp_path / "requests.jsonl", 0
    log.touch()
    async with serving(Engine()) as engine, following_sidecar(tmp_path, engine.url, log) as following:
        await until((tmp_path / "state").exists)
        for _ in range(kills):
            for _ in range(chance.randint(5, 20)):
                count = chance.randint(1, 400)
                with log.open("ab") as file:
                    file.write(b"".join(line(written + number) for number in range(1, count + 1)))
                written += count
                if chance.random() < 0.3:
                    log.rename(log.with_name(f"requests.jsonl.20261122T{written:06}.000000Z"))
            state = (tmp_path / "state").stat().st_mtime_ns
            await counts(following, chance.randint(0, written))
            if chance.random() < 0.6:
                await until(partial(saved_after, tmp_path / "state", state))
            pid = following.signal_exporter(signal.SIGKILL)
            await until(partial(is_replaced, following, pid))
        log.touch()
        await counts(following, written)
        found = await following.samples()
        bad = written // 3
        assert found[COUNTED] == written
        assert found["llm_requests_total{all,tiny,ok,chat_completions,true,other}"] == written - bad
        assert found["llm_requests_total{all,tiny,upstream_error,chat_completions,true,other}"] == bad
        assert found["llm_slo_events_total{all,tiny,availability,other}"] == written
        assert found["llm_slo_bad_events_total{all,tiny,availability,other}"] == bad
        assert found["llm_time_to_first_token_seconds_count{all,tiny}"] == written
        assert await following.stop() == 0


def saved_after(state: Path, time: int) -> bool:
    return state.stat().st_mtime_ns > time


def is_replaced(following: Running, pid: int) -> bool:
    return following.exporter not in {None, pid}


async def counts(following: Running, lines: int) -> None:
    async def counted() -> bool:
        try:
            return (await following.samples()).get(COUNTED, -1) >= lines
        except aiohttp.ClientError:
            return False

    await until(counted)


async def test_counts_continue_after_a_restart_and_a_changed_slo_file(tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"
    log.write_bytes(line(1) + line(2) + line(3))
    bucket = "llm_time_to_first_token_seconds_count{all,tiny}"
    events = "llm_slo_events_total{all,tiny,availability,other}"
    async with serving(Engine()) as engine:
        async with following_sidecar(tmp_path, engine.url, log) as following:
            await counts(following, 3)
            assert await following.stop() == 0
        with log.open("ab") as file:
            file.write(line(4))
        with_bound = SLOS + "  - {name: ttft, classes: [all], signal: ttft, threshold: 444ms, objective: 95%}\n"
        async with following_sidecar(tmp_path, engine.url, log, slo_file=with_bound) as following:
            await counts(following, 4)
            found = await following.samples()
            assert found[events] == 4
            assert found[bucket] == 1  # its bounds have changed
            (tmp_path / "follow-slos.yaml").write_text(SLOS.replace("availability, classes", "up, classes"))
            following.process.send_signal(signal.SIGHUP)
            await following.shows("llm_slo_events_total{all,tiny,up,other}", 0)
            with log.open("ab") as file:
                file.write(line(5))
            await counts(following, 5)
            found = await following.samples()
            assert found[events] == 4  # the file has no such SLO any more
            assert "INFO supervisor: SLO file reloaded; it applies to lines that are read from now on" in (
                following.log_lines()
            )


async def test_a_log_that_does_not_exist_is_awaited_and_its_bad_lines_are_counted(tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"
    async with (
        serving(Engine()) as engine,
        following_sidecar(tmp_path, engine.url, log, probe="/healthz") as following,
    ):
        await following.logs_line(f"WARNING exporter: --follow: {log} does not exist; trying again")
        assert await following.fetch("/readyz") == (503, f"{log} does not exist\n")
        await following.shows("llm_sidecar_follow_up{}", 0)
        (tmp_path / "complete").write_bytes(line(1) + b"no json\n\x00\xff\n\n{}\n" + line(2) + b'{"time": "cut')
        (tmp_path / "complete").rename(log)
        await counts(following, 2)
        assert await following.status("/readyz") == 200
        await following.logs_line(f"INFO exporter: --follow: reading {log}")
        found = await following.samples()
        assert found["llm_sidecar_followed_lines_total{bad}"] == 4
        assert found["llm_sidecar_follow_lag_bytes{}"] == len(b'{"time": "cut')
        reason = "Object missing required field `time`"
        assert f"WARNING exporter: --follow: {log}: 4 bad lines; the last one: {reason}" in following.log_lines()
        assert await following.stop() == 0
