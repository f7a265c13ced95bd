"""Probes are sent only while nothing else proves that an engine works, and their results are evidence."""

import asyncio
import logging
import ssl
import time
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from aiohttp import web

from exporters.engines.condition import probe
from exporters.engines.condition.evidence import Requests
from exporters.engines.condition.probe import Prober, Result
from exporters.engines.condition.rule import Condition, State
from exporters.engines.group import EngineGroup
from exporters.engines.scrape_targets import targets
from exporters.engines.state import EngineState
from exporters.vocabulary import signals
from tests.support.fake_engine import Engine, serving
from tests.support.waiting import until

TLS = ssl.create_default_context()
IDLE = Condition(State.SERVING, process_since=100.0, answered_at=100.0, worked_at=110.0)
UP = EngineState("e", up=True, models=("tiny",))


@dataclass
class ProbedEngine(Engine):
    """Answers completions with these statuses, the last one again and again; it hangs without any."""

    statuses: list[int] = field(default_factory=lambda: [200])
    bodies: list[dict[str, Any]] = field(default_factory=list)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.json())
        if not self.statuses:
            await self.may_finish.wait()
        return web.json_response({}, status=self.statuses[min(len(self.bodies), len(self.statuses)) - 1])


def prober_of(engine: Engine) -> Prober:
    return Prober(targets(engine.url, ())[0], TLS, None)


async def probed(engine: ProbedEngine, times: int = 1) -> Prober:
    """The prober after this many answered probes."""
    async with serving(engine):
        prober = prober_of(engine)
        for number in range(1, times + 1):
            prober.send(IDLE, UP, 200.0)
            await until(lambda: sum(results(prober).values()) >= number)  # noqa: B023
    return prober


def results(prober: Prober) -> dict[str, float]:
    return {labels[0]: value for signal, labels, value in prober.samples(0.0) if signal is signals.ENGINE_PROBES}


@pytest.mark.parametrize(
    "condition, engine, due",
    [
        pytest.param(IDLE, UP, True, id="idle"),
        pytest.param(replace(IDLE, state=State.WEDGED), UP, True, id="wedged"),
        pytest.param(replace(IDLE, worked_at=None), UP, True, id="has not worked yet"),
        pytest.param(replace(IDLE, worked_at=186.0), UP, False, id="has just worked"),
        pytest.param(replace(IDLE, state=State.PAUSED), UP, False, id="paused"),
        pytest.param(replace(IDLE, answered_at=None), UP, False, id="has not answered yet"),
        pytest.param(IDLE, EngineState("e", models=("tiny",)), False, id="cannot be scraped"),
        pytest.param(IDLE, EngineState("e", up=True), False, id="no known model"),
    ],
)
def test_when_a_probe_is_due(condition: Condition, engine: EngineState, *, due: bool) -> None:
    assert prober_of(Engine()).is_due(condition, engine, 200.0) is due


async def test_an_answer_is_output_and_the_next_probe_comes_later() -> None:
    engine = ProbedEngine()
    prober = await probed(engine)
    assert engine.bodies == [{"model": "tiny", "prompt": "1", "max_tokens": 1, "temperature": 0, "priority": 1_000_000}]
    evidence = prober.add_to(Requests(awaited=1, output_at=5.0))
    assert evidence.output_at == pytest.approx(time.monotonic(), abs=30)
    assert (evidence.awaited, evidence.probing, evidence.output_models) == (1, False, frozenset({"tiny"}))
    assert results(prober)[Result.OK] == 1
    assert [prober.is_due(IDLE, UP, at) for at in (214.0, 215.0)] == [False, True]


async def test_an_open_probe_waits_and_no_other_is_sent() -> None:
    async with serving(ProbedEngine(statuses=[])) as engine:
        prober = prober_of(engine)
        prober.send(IDLE, UP, 200.0)
        evidence = prober.add_to(Requests())
        assert (evidence.probing, evidence.models) == (True, frozenset({"tiny"}))
        assert not prober.is_due(IDLE, UP, 300.0)
        prober.close()
        assert not prober.add_to(Requests()).probing


async def test_an_engine_that_refuses_priorities_gets_none() -> None:
    engine = ProbedEngine(statuses=[400, 200])
    prober = await probed(engine, times=2)
    assert [body["priority"] for body in engine.bodies] == [1_000_000, 0, 0]
    assert results(prober)[Result.OK] == 2


async def test_a_process_that_rejects_probes_gets_no_further_one(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "vllm_slo.engines"):
        prober = await probed(ProbedEngine(statuses=[404]))
    assert results(prober)[Result.REJECTED] == 1
    assert not prober.is_due(IDLE, UP, 300.0)
    assert prober.is_due(replace(IDLE, process_since=250.0), UP, 300.0)
    assert "answered a probe with status 404" in caplog.text


async def test_failed_probes_are_failed_requests() -> None:
    prober = await probed(ProbedEngine(statuses=[500]), times=2)
    unreachable = Engine(port=1)
    prober._url = f"{unreachable.url}/v1/completions"
    prober.send(IDLE, UP, 300.0)
    await until(lambda: results(prober)[Result.FAILED] == 3)
    assert prober.add_to(Requests(failed=4)).failed == 7


async def test_a_probe_without_an_answer_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "TIMEOUT_SECONDS", 0.05)
    async with serving(ProbedEngine(statuses=[])) as engine:
        prober = prober_of(engine)
        prober.send(IDLE, UP, 200.0)
        await until(lambda: results(prober)[Result.TIMEOUT] == 1)
        engine.may_finish.set()


async def test_a_fresh_scrape_precedes_each_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scrapes are rare, and the engine may have gone to sleep since the last one."""
    monkeypatch.setattr(probe, "INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr("exporters.engines.group.FRESH_SECONDS", 0.05)
    engine = ProbedEngine()
    async with serving(engine):
        group = EngineGroup(targets(engine.url, ()), 600.0, lambda _: None, TLS, probes=True)
        running = asyncio.create_task(group.run())
        await until(lambda: group.states[0].up)
        scraped_at = group.states[0].last_success_at or 0.0
        await asyncio.sleep(0.1)
        group.observe((), time.monotonic())
        await until(lambda: (group.states[0].last_success_at or 0.0) > scraped_at)
        assert not engine.bodies
        group.observe((), group.states[0].last_success_at or 0.0)
        await until(lambda: len(engine.bodies) == 1)
        running.cancel()


async def test_a_group_probes_nothing_unless_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "INTERVAL_SECONDS", 0.0)
    engine = ProbedEngine()
    async with serving(engine):
        group = EngineGroup(targets(engine.url, ()), 600.0, lambda _: None, TLS)
        running = asyncio.create_task(group.run())
        await until(lambda: group.states[0].up)
        for _ in range(3):
            group.observe((), time.monotonic())
            await asyncio.sleep(0.01)
        running.cancel()
    assert not engine.bodies
