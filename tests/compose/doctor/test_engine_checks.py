"""What the engine's flags and files make visible, from the responses of engines and sidecars."""

import asyncio
import json
import re
from collections.abc import Sequence
from functools import partial
from importlib import metadata
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from compose.doctor import engine_reading
from compose.doctor.engine_checks import (
    cached_tokens,
    engine_metrics,
    engine_spans,
    engine_times,
    exposure,
    sidecar,
    upstream,
)
from compose.doctor.engine_reading import Answering, EngineReading, own_addresses, read_engine
from compose.doctor.finding import Place, State, Unread
from compose.doctor.http_fetch import Response
from compose.doctor.sidecar_reading import SidecarPage, SidecarReading, read_sidecar
from exporters.engines.exposition import parse_exposition
from tests.compose.doctor.golden_findings import assert_golden
from tests.support.fake_engine import Engine, serving
from tests.support.fake_prometheus import FakePrometheus
from tests.support.ports import free_port
from tests.support.sidecar_process import sidecar as sidecar_process
from tests.support.simulator import simulator
from tests.support.waiting import until
from tests.support.web_server import served

URL = "http://127.0.0.1:8000"
NOT_READ = Unread(f"{URL}: connection refused", "start it, or set --upstream URL")
NO_SIDECAR = Unread("http://127.0.0.1:9464: connection refused", "start it, or set --sidecar URL")
NOT_ASKED = Unread("no request was sent", f"vllm-slo doctor --upstream {URL} --send-request")
ANSWER = {"usage": {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 0}}, "metrics": {"queue_time_ms": 1}}
BLIND_ANSWER = {"usage": {"prompt_tokens": 3, "prompt_tokens_details": None}, "metrics": None}


def reading(
    answer: dict[str, Any] | Unread = NOT_ASKED,
    observability: dict[str, Any] | Unread = NOT_READ,
    answering: Sequence[Answering] | Unread = NOT_READ,
) -> EngineReading:
    return EngineReading(
        place=Place(URL, "--upstream", named=False),
        page=NOT_READ,
        metrics=NOT_READ,
        observability=observability,
        answer=answer,
        answering=answering,
    )


def page(*lines: str) -> SidecarPage:
    names = {line.partition("{")[0].partition(" ")[0] for line in lines}
    return SidecarPage(parse_exposition("".join(f"{line}\n" for line in lines), names))


OK_REQUESTS = 'llm_requests_total{outcome="ok",route="chat_completions"} 40'
OTHER_REQUESTS = (
    'llm_requests_total{outcome="ok",route="embeddings"} 7',
    'llm_requests_total{outcome="client_abort",route="chat_completions"} 5',
)
HITS = 'llm_engine_prefix_cache_hits_tokens_total{engine="a"} 512'
CACHED = ('llm_cached_prompt_tokens_total{class="a"} 3', 'llm_cached_prompt_tokens_total{class="b"} 4')
TIMED = 'llm_requests_with_engine_times_total{class="a"} 12'


def test_cached_tokens() -> None:
    cases: dict[str, tuple[dict[str, Any] | Unread, SidecarPage | Unread]] = {
        "a response has them": (ANSWER, NO_SIDECAR),
        "a response has none, though an earlier engine had": (BLIND_ANSWER, page(*CACHED)),
        "the sidecar has counted some": (NOT_ASKED, page(*CACHED)),
        "the engine had hits, the responses none": (NOT_ASKED, page(OK_REQUESTS, HITS)),
        "no hits, so zero proves nothing": (NOT_ASKED, page(OK_REQUESTS)),
        "hits by other traffic only": (NOT_ASKED, page(*OTHER_REQUESTS, HITS)),
        "the request failed": (NOT_READ, page(OK_REQUESTS)),
        "no source": (NOT_ASKED, NO_SIDECAR),
    }
    assert_golden("cached tokens", {name: cached_tokens(reading(each), of) for name, (each, of) in cases.items()})


def test_engine_times() -> None:
    cases: dict[str, tuple[dict[str, Any] | Unread, SidecarPage | Unread]] = {
        "they arrive with the engine's spans": (BLIND_ANSWER, page(TIMED, OK_REQUESTS)),
        "a response has them": (ANSWER, NO_SIDECAR),
        "a response has none": (BLIND_ANSWER, NO_SIDECAR),
        "finished requests have none": (NOT_ASKED, page(OK_REQUESTS, *OTHER_REQUESTS)),
        "no request that could have times": (NOT_ASKED, page(*OTHER_REQUESTS)),
        "no source": (NOT_ASKED, NO_SIDECAR),
    }
    assert_golden("engine times", {name: engine_times(reading(each), of) for name, (each, of) in cases.items()})


async def read(engine: Engine, *, send_request: bool = False) -> EngineReading:
    place = Place(engine.url, "--upstream", named=True)
    return await asyncio.to_thread(read_engine, place, {}, send_request=send_request)


def info(config: object) -> str:
    return json.dumps({"vllm_config": config, "vllm_env": {}})


async def test_engine_spans() -> None:
    found = {
        "set": engine_spans(reading(observability={"otlp_traces_endpoint": "grpc://127.0.0.1:4317"})),
        "not set": engine_spans(reading(observability={"otlp_traces_endpoint": None})),
        "not read": engine_spans(reading()),
    }
    responses = {"not in dev mode": None, "old version": info("a text, as in old versions"), "no JSON": "<html>"}
    places = {}
    for name, server_info in responses.items():
        async with serving(Engine(server_info=server_info)) as engine:
            found[name] = engine_spans(await read(engine))
            places[engine.url] = "URL"
    assert_golden("engine spans", found, places)


async def test_an_engine_is_read_from_its_responses() -> None:
    engine = Engine(server_info=info({"observability_config": {"otlp_traces_endpoint": None}}))
    async with serving(engine):
        found = await read(engine, send_request=True)
    metrics_finding = engine_metrics(found)
    assert (metrics_finding.state, metrics_finding.looked_at) == (State.OK, f"{engine.url}/metrics")
    assert re.fullmatch(r"vllm, \d+ of our series", metrics_finding.found)
    assert engine_spans(found).state is State.WARNING
    assert cached_tokens(found, NO_SIDECAR).state is State.WARNING
    assert isinstance(found.page, Response)
    assert found.page.date is not None


async def test_without_the_flag_no_request_is_sent() -> None:
    async with serving(Engine()) as engine:
        await read(engine)
        assert engine.heads == []
        await read(engine, send_request=True)
        assert len(engine.heads) == 1


async def test_engine_metrics() -> None:
    engines = {
        "needs a token": Engine(metrics_status=401),
        "no such page": Engine(metrics_status=404),
        "another program": Engine(metrics="<html>"),
        "without statistics": Engine(metrics="process_cpu_seconds_total 3\n"),
    }
    found, places = {}, {}
    for name, each in engines.items():
        async with serving(each) as engine:
            found[name] = engine_metrics(await read(engine))
            places[engine.url] = "URL"
    url = f"http://127.0.0.1:{free_port()}"
    for named in (True, False):
        place = Place(url, "--upstream", named)
        found[f"not there, named: {named}"] = engine_metrics(read_engine(place, {}, send_request=False))
    assert_golden("engine metrics", found, places | {url: "URL"})


@pytest.mark.parametrize("models_body", ['{"data": []}', "<html>"])
async def test_without_a_model_no_request_is_sent(models_body: str) -> None:
    async with serving(Engine(models_body=models_body)) as engine:
        found = await read(engine, send_request=True)
    assert found.answer == Unread(f"{engine.url}/v1/models lists no model", "wait until the engine has loaded one")
    assert engine.heads == []


def sidecar_reading(url: str, *, named: bool = True) -> SidecarReading:
    return read_sidecar(Place(url, "--sidecar", named))


def metrics(version: str, reloaded: int) -> bytes:
    build = f'llm_sidecar_build_info{{version="{version}"}} 1\n'
    return f"{build}llm_sidecar_config_last_reload_successful {reloaded}\n".encode()


def answer(pages: dict[str, tuple[int, bytes]], path: str, _: dict[str, str]) -> tuple[int, bytes]:
    return pages[path]


OURS = metadata.version("vllm-slo")


def test_the_sidecar() -> None:
    cases = {
        "ready": (200, 200, metrics(OURS, 1)),
        "draining": (503, 200, metrics(OURS, 1)),
        "invalid SLO file": (200, 200, metrics(OURS, 0)),
        "another version": (200, 200, metrics("0.1.0", 1)),
        "another program": (200, 200, b"up 1\n"),
        "a page": (200, 200, b"<html>"),
        "needs credentials": (200, 401, b""),
    }
    found, places = {}, {OURS: "VERSION"}
    for name, (ready, status, body) in cases.items():
        pages = {"/readyz": (ready, b"draining\n"), "/metrics": (status, body)}
        with FakePrometheus(partial(answer, pages)) as fake:
            found[name] = sidecar(sidecar_reading(fake.url))
            places[fake.url] = "URL"
    url = f"http://127.0.0.1:{free_port()}"
    for named in (True, False):
        found[f"not there, named: {named}"] = sidecar(sidecar_reading(url, named=named))
    assert_golden("sidecar", found, places | {url: "URL"})


@pytest.mark.slow
async def test_a_real_sidecar_before_a_simulated_engine_shows_both_flags(tmp_path: Path) -> None:
    async with simulator() as engine, sidecar_process(tmp_path, engine) as running:
        place = Place(running.url, "--upstream", named=True)
        before = await asyncio.to_thread(sidecar_reading, running.pages)
        relay = await asyncio.to_thread(read_engine, place, {}, send_request=True)

        async def counted() -> bool:
            page = (await asyncio.to_thread(sidecar_reading, running.pages)).page
            return engine_times(reading(), page).state is State.OK

        await until(counted)
        after = await asyncio.to_thread(sidecar_reading, running.pages)
    assert sidecar(before).state is State.OK
    assert engine_times(reading(), before.page).state is State.NOT_CHECKED
    assert engine_times(reading(), after.page).found == "1 requests have times of the engine"
    assert cached_tokens(relay, after.page).state is State.OK
    found = {"metrics": engine_metrics(relay), "spans": engine_spans(relay), "exposure": exposure(relay)}
    assert_golden("engine behind a sidecar", found, {running.url: "URL"})


def connect_errors(reason: str, count: int) -> str:
    labels = f'process="relay-0",reason="{reason}",upstream="vllm:8000"'
    return f"llm_sidecar_upstream_connect_errors_total{{{labels}}} {count}"


def engine_is(state: str, up: int, engine: str = "vllm:8000") -> tuple[str, ...]:
    return (
        f'llm_engine_up{{engine="{engine}"}} {up}',
        f'llm_engine_state{{engine="{engine}",state="{state}"}} 1',
        f'llm_engine_state{{engine="{engine}",state="paused"}} 0',
        f'llm_engine_state_reason{{engine="{engine}",reason="no_response"}} 1',
    )


def test_upstream() -> None:
    cases: dict[str, SidecarPage | Unread] = {
        "serving": page(*engine_is("serving", 1), connect_errors("lookup", 0)),
        "wedged": page(*engine_is("wedged", 0)),
        "down, though its metrics can be read": page(*engine_is("down", 1)),
        "it was down": page(*engine_is("serving", 1), connect_errors("refused", 7), OK_REQUESTS),
        "its name cannot be resolved": page('llm_engine_up{engine="vllm:8000"} 0', connect_errors("lookup", 3)),
        "metrics of another address": page('llm_engine_up{engine="other:8000"} 1', connect_errors("refused", 3)),
        "no sidecar": NO_SIDECAR,
    }
    assert_golden("upstream", {name: upstream(each) for name, each in cases.items()})


@pytest.mark.slow
async def test_a_sidecar_with_a_dead_upstream_is_found(tmp_path: Path) -> None:
    port = free_port()
    async with sidecar_process(tmp_path, f"http://127.0.0.1:{port}") as running:
        await running.shows(f"llm_engine_up{{127.0.0.1:{port}}}", 0)
        await running.ask("lost")
        await running.logs("lost")
        reading = await asyncio.to_thread(read_sidecar, Place(running.pages, "--sidecar", named=True))
    finding = upstream(reading.page)
    assert finding.state is State.FAILED
    assert finding.found.startswith(f"the sidecar cannot read the metrics of 127.0.0.1:{port}")


def at(address: str, *, beside: bool = False, models: bool = True, metrics: bool = True) -> Answering:
    return Answering(address=address, beside=beside, models=models, metrics=metrics)


def test_exposure() -> None:
    cases: dict[str, Sequence[Answering] | Unread] = {
        "public": [at("10.0.0.5", beside=True), at("2606:4700::1111", beside=True)],
        "public, with a key for /v1 only": [at("8.8.8.8", models=False)],
        "all interfaces, though the sidecar is on this machine": [at("10.0.0.5", beside=True)],
        "another machine in a private network": [at("10.0.0.5")],
        "public, behind a proxy with a key": [at("8.8.8.8", models=False, metrics=False)],
        "loopback only": [],
        "it does not respond": NOT_READ,
    }
    assert_golden("engine exposure", {name: exposure(reading(answering=each)) for name, each in cases.items()})


@pytest.mark.parametrize(
    "host, expected",
    [
        pytest.param("0.0.0.0", [at("127.0.0.2", beside=True, metrics=False)], id="all interfaces"),
        pytest.param("127.0.0.1", [], id="loopback"),
    ],
)
async def test_the_other_addresses_of_this_machine_are_tried(
    host: str, expected: list[Answering], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_reading, "own_addresses", lambda: iter(["127.0.0.2"]))

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": []})

    app = web.Application()
    app.router.add_get("/v1/models", models)
    port = free_port()
    async with served(app, port, host=host):
        place = Place(f"http://127.0.0.1:{port}", "--upstream", named=True)
        found = await asyncio.to_thread(read_engine, place, {}, send_request=False)
    assert found.answering == expected


def test_own_addresses_are_not_loopback() -> None:
    assert not any(ip_address(address).is_loopback for address in own_addresses())
