"""What the engine's flags and files make visible, from the responses of engines and sidecars."""

import asyncio
import json
import re
from collections.abc import Sequence
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
from compose.doctor.finding import Finding, Place, State, Unread
from compose.doctor.http_fetch import Response
from compose.doctor.sidecar_reading import SidecarPage, SidecarReading, read_sidecar
from exporters.engines.exposition import parse_exposition
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
ASK = f"vllm-slo doctor --upstream {URL} --send-request"
NOT_ASKED = Unread("no request was sent", ASK)
CACHED_FLAG = "vllm serve MODEL --enable-prompt-tokens-details"
TIMES_FLAG = "vllm serve MODEL --enable-per-request-metrics (vLLM 0.25 or newer)"
CACHED_COST = "cached tokens are unknown: no hit ratio per class, and no cost of uncached tokens"
TIMES_COST = "it is unknown whether a slow request waited, prefilled or decoded; SLOs on queue time have no events"
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


@pytest.mark.parametrize(
    "answer,sidecar_page,expected",
    [
        pytest.param(
            ANSWER,
            NO_SIDECAR,
            Finding(State.OK, "usage of a response", "a response has prompt_tokens_details"),
            id="a response has them",
        ),
        pytest.param(
            BLIND_ANSWER,
            page('llm_cached_prompt_tokens_total{class="a"} 3'),
            Finding(
                State.WARNING,
                "usage of a response",
                "a response has no prompt_tokens_details",
                CACHED_COST,
                CACHED_FLAG,
            ),
            id="a response has none, though an earlier engine had",
        ),
        pytest.param(
            NOT_ASKED,
            page('llm_cached_prompt_tokens_total{class="a"} 3', 'llm_cached_prompt_tokens_total{class="b"} 4'),
            Finding(State.OK, "llm_cached_prompt_tokens_total", "responses reported 7 cached tokens"),
            id="the sidecar has counted some",
        ),
        pytest.param(
            NOT_ASKED,
            page(OK_REQUESTS, HITS),
            Finding(
                State.WARNING,
                "llm_cached_prompt_tokens_total",
                "40 responses reported none, and the engine found 512 prompt tokens in its cache",
                CACHED_COST,
                CACHED_FLAG,
            ),
            id="the engine had hits, the responses none",
        ),
        pytest.param(
            NOT_ASKED,
            page(OK_REQUESTS),
            Finding(
                State.NOT_CHECKED, "llm_cached_prompt_tokens_total", "no request has hit the prefix cache", fix=ASK
            ),
            id="no hits, so zero proves nothing",
        ),
        pytest.param(
            NOT_ASKED,
            page(*OTHER_REQUESTS, HITS),
            Finding(
                State.NOT_CHECKED, "llm_cached_prompt_tokens_total", "no request has hit the prefix cache", fix=ASK
            ),
            id="hits by other traffic only",
        ),
        pytest.param(
            NOT_READ,
            page(OK_REQUESTS),
            Finding(State.NOT_CHECKED, "llm_cached_prompt_tokens_total", NOT_READ.reason, fix=NOT_READ.fix),
            id="the request failed",
        ),
        pytest.param(
            NOT_ASKED,
            NO_SIDECAR,
            Finding(State.NOT_CHECKED, "llm_cached_prompt_tokens_total", NO_SIDECAR.reason, fix=ASK),
            id="no source",
        ),
    ],
)
def test_cached_tokens(answer: dict[str, Any] | Unread, sidecar_page: SidecarPage | Unread, expected: Finding) -> None:
    assert cached_tokens(reading(answer), sidecar_page) == expected


@pytest.mark.parametrize(
    "answer,sidecar_page,expected",
    [
        pytest.param(
            BLIND_ANSWER,
            page('llm_requests_with_engine_times_total{class="a"} 12', OK_REQUESTS),
            Finding(State.OK, "llm_requests_with_engine_times_total", "12 requests have times of the engine"),
            id="they arrive with the engine's spans",
        ),
        pytest.param(
            ANSWER,
            NO_SIDECAR,
            Finding(State.OK, "metrics of a response", "a response has times of the engine"),
            id="a response has them",
        ),
        pytest.param(
            BLIND_ANSWER,
            NO_SIDECAR,
            Finding(
                State.WARNING, "metrics of a response", "a response has no times of the engine", TIMES_COST, TIMES_FLAG
            ),
            id="a response has none",
        ),
        pytest.param(
            NOT_ASKED,
            page(OK_REQUESTS, *OTHER_REQUESTS),
            Finding(
                State.WARNING,
                "llm_requests_with_engine_times_total",
                "0 of 40 finished requests have times",
                TIMES_COST,
                TIMES_FLAG,
            ),
            id="finished requests have none",
        ),
        pytest.param(
            NOT_ASKED,
            page(*OTHER_REQUESTS),
            Finding(State.NOT_CHECKED, "llm_requests_with_engine_times_total", "no request has finished", fix=ASK),
            id="no request that could have times",
        ),
        pytest.param(
            NOT_ASKED,
            NO_SIDECAR,
            Finding(State.NOT_CHECKED, "llm_requests_with_engine_times_total", NO_SIDECAR.reason, fix=ASK),
            id="no source",
        ),
    ],
)
def test_engine_times(answer: dict[str, Any] | Unread, sidecar_page: SidecarPage | Unread, expected: Finding) -> None:
    assert engine_times(reading(answer), sidecar_page) == expected


@pytest.mark.parametrize(
    "observability,expected",
    [
        pytest.param(
            {"otlp_traces_endpoint": "grpc://127.0.0.1:4317"},
            Finding(State.OK, f"{URL}/server_info", "spans go to grpc://127.0.0.1:4317"),
            id="set",
        ),
        pytest.param(
            {"otlp_traces_endpoint": None},
            Finding(
                State.WARNING,
                f"{URL}/server_info",
                "otlp_traces_endpoint is not set",
                "traces end at the sidecar: the engine's span of a request is missing",
                "vllm serve MODEL --otlp-traces-endpoint grpc://HOST:4317, and --engine-spans of the sidecar",
            ),
            id="not set",
        ),
        pytest.param(
            NOT_READ, Finding(State.NOT_CHECKED, f"{URL}/server_info", NOT_READ.reason, fix=NOT_READ.fix), id="unknown"
        ),
    ],
)
def test_engine_spans(observability: dict[str, Any] | Unread, expected: Finding) -> None:
    assert engine_spans(reading(observability=observability)) == expected


async def read(engine: Engine, *, send_request: bool = False) -> EngineReading:
    place = Place(engine.url, "--upstream", named=True)
    return await asyncio.to_thread(read_engine, place, {}, send_request=send_request)


def info(config: object) -> str:
    return json.dumps({"vllm_config": config, "vllm_env": {}})


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


@pytest.mark.parametrize(
    "engine,reason,fix",
    [
        pytest.param(
            Engine(metrics_status=401), "{url}/metrics: HTTP 401", "set --engine-token-file FILE", id="needs a token"
        ),
        pytest.param(Engine(metrics_status=404), "{url}/metrics: HTTP 404", "check --upstream", id="no such page"),
        pytest.param(
            Engine(metrics="<html>"),
            "{url}/metrics is not an exposition: no line is a sample",
            "set --upstream to the URL of an engine",
            id="another program",
        ),
    ],
)
async def test_a_named_engine_that_cannot_be_read_fails(engine: Engine, reason: str, fix: str) -> None:
    async with serving(engine):
        found = await read(engine)
    assert engine_metrics(found) == Finding(
        State.FAILED,
        engine.url,
        reason.format(url=engine.url),
        "engine panels are empty, and alerts on the engine are silent",
        fix,
    )


async def test_an_engine_without_statistics_fails() -> None:
    async with serving(Engine(metrics="process_cpu_seconds_total 3\n")) as engine:
        found = await read(engine)
    assert engine_metrics(found) == Finding(
        State.FAILED,
        f"{engine.url}/metrics",
        "it has no series of a known engine",
        "engine panels are empty, alerts on the engine are silent, and config changes are not detected",
        "start vLLM without --disable-log-stats",
    )


@pytest.mark.parametrize(
    "server_info,reason",
    [
        pytest.param(
            None, "{url}/server_info: HTTP 404; vLLM serves it only with VLLM_SERVER_DEV_MODE=1", id="not in dev mode"
        ),
        pytest.param(
            info("a text, as in old versions"),
            "{url}/server_info has no observability_config.otlp_traces_endpoint in this version",
            id="old version",
        ),
        pytest.param(
            "<html>",
            "{url}/server_info has no observability_config.otlp_traces_endpoint in this version",
            id="no JSON",
        ),
    ],
)
async def test_spans_are_not_checked_without_the_configuration(server_info: str | None, reason: str) -> None:
    async with serving(Engine(server_info=server_info)) as engine:
        found = await read(engine)
    assert engine_spans(found) == Finding(
        State.NOT_CHECKED,
        f"{engine.url}/server_info",
        reason.format(url=engine.url),
        fix="look for --otlp-traces-endpoint in the command line of the engine",
    )


@pytest.mark.parametrize(
    "models_body,reason,fix",
    [
        pytest.param(
            '{"data": []}', "{url}/v1/models lists no model", "wait until the engine has loaded one", id="none"
        ),
        pytest.param("<html>", "{url}/v1/models lists no model", "wait until the engine has loaded one", id="no JSON"),
    ],
)
async def test_without_a_model_no_request_is_sent(models_body: str, reason: str, fix: str) -> None:
    async with serving(Engine(models_body=models_body)) as engine:
        found = await read(engine, send_request=True)
    assert found.answer == Unread(reason.format(url=engine.url), fix)
    assert engine.heads == []


@pytest.mark.parametrize("named,state", [(True, State.FAILED), (False, State.NOT_CHECKED)])
def test_only_a_named_server_has_to_respond(named: bool, state: State) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    found = engine_metrics(read_engine(Place(url, "--upstream", named), {}, send_request=False))
    cost = "engine panels are empty, and alerts on the engine are silent" if named else ""
    assert found == Finding(state, url, f"{url}: connection refused", cost, "start it, or set --upstream URL")
    found = sidecar(read_sidecar(Place(url, "--sidecar", named)))
    cost = "requests are not measured" if named else ""
    assert found == Finding(state, url, f"{url}: connection refused", cost, "start it, or set --sidecar URL")


def sidecar_reading(url: str) -> SidecarReading:
    return read_sidecar(Place(url, "--sidecar", named=True))


def metrics(version: str, reloaded: int) -> bytes:
    return (
        f'llm_sidecar_build_info{{version="{version}"}} 1\nllm_sidecar_config_last_reload_successful {reloaded}\n'
    ).encode()


OURS = metadata.version("vllm-slo")


@pytest.mark.parametrize(
    "ready,body,expected",
    [
        pytest.param(200, metrics(OURS, 1), (State.OK, f"ready, version {OURS}"), id="ready"),
        pytest.param(503, metrics(OURS, 1), (State.FAILED, "not ready: draining"), id="draining"),
        pytest.param(
            200,
            metrics(OURS, 0),
            (State.FAILED, "the last SLO file was invalid; the one before is in use"),
            id="invalid SLO file",
        ),
        pytest.param(
            200,
            metrics("0.1.0", 1),
            (State.WARNING, f"the sidecar is 0.1.0, this program {OURS}"),
            id="another version",
        ),
        pytest.param(
            200, b"up 1\n", (State.FAILED, "{url} is not the metrics port of a sidecar"), id="another program"
        ),
        pytest.param(200, b"<html>", (State.FAILED, "{url} is not the metrics port of a sidecar"), id="a page"),
    ],
)
def test_the_sidecar(ready: int, body: bytes, expected: tuple[State, str]) -> None:
    def respond(path: str, _: dict[str, str]) -> tuple[int, Any]:
        return (ready, b"draining\n") if path == "/readyz" else (200, body)

    with FakePrometheus(respond) as fake:
        finding = sidecar(sidecar_reading(fake.url))
    state, found = expected
    assert (finding.state, finding.found) == (state, found.format(url=fake.url))
    assert bool(finding.cost) == bool(finding.fix) == (state is not State.OK)


def test_a_sidecar_that_needs_credentials_is_not_readable() -> None:
    with FakePrometheus(lambda *_: (401, "")) as fake:
        found = sidecar_reading(fake.url).page
    assert found == Unread(
        f"{fake.url}/metrics: HTTP 401; the sidecar has --metrics-auth-file", "query its series in Prometheus"
    )


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
    assert engine_metrics(relay) == Finding(
        State.NOT_CHECKED,
        f"{running.url}/metrics",
        f"{running.url} is a sidecar, which does not relay /metrics",
        fix="set --upstream to the URL of the engine",
    )
    assert engine_spans(relay).found == f"{running.url} is a sidecar, which does not relay /server_info"


UPSTREAM = "llm_engine_up, llm_engine_state, llm_sidecar_upstream_connect_errors_total"
UPSTREAM_FIX = "correct --upstream and --engine-metrics of the sidecar; its log has each URL and the reason"


def connect_errors(reason: str, count: int) -> str:
    labels = f'process="relay-0",reason="{reason}",upstream="vllm:8000"'
    return f"llm_sidecar_upstream_connect_errors_total{{{labels}}} {count}"


def engine_is(state: str) -> tuple[str, str, str]:
    return (
        f'llm_engine_state{{engine="vllm:8000",state="{state}"}} 1',
        'llm_engine_state{engine="vllm:8000",state="paused"} 0',
        'llm_engine_state_reason{engine="vllm:8000",reason="no_response"} 1',
    )


@pytest.mark.parametrize(
    "sidecar_page, expected",
    [
        pytest.param(
            page('llm_engine_up{engine="vllm:8000"} 1', *engine_is("serving"), connect_errors("lookup", 0)),
            Finding(State.OK, UPSTREAM, "vllm:8000 serving"),
            id="serving",
        ),
        pytest.param(
            page('llm_engine_up{engine="vllm:8000"} 0', *engine_is("wedged")),
            Finding(
                State.FAILED,
                UPSTREAM,
                "vllm:8000 is wedged (no_response)",
                "its requests hang or fail, though /health may succeed",
                "look at the GPU and the end of its log, then restart it; /engine/livez has the evidence",
            ),
            id="wedged",
        ),
        pytest.param(
            page(
                'llm_engine_up{engine="vllm:8000"} 1',
                *engine_is("serving"),
                connect_errors("refused", 7),
                OK_REQUESTS,
            ),
            Finding(
                State.OK, UPSTREAM, "vllm:8000 serving; since its start connections to vllm:8000 failed: 7 refused"
            ),
            id="it was down",
        ),
        pytest.param(
            page('llm_engine_up{engine="vllm:8000"} 0', connect_errors("lookup", 3)),
            Finding(
                State.FAILED,
                UPSTREAM,
                "the sidecar cannot read the metrics of vllm:8000; connections to vllm:8000 failed: 3 lookup",
                "if requests fail too, clients get status 502; engine panels are empty",
                UPSTREAM_FIX,
            ),
            id="its name cannot be resolved",
        ),
        pytest.param(
            page('llm_engine_up{engine="other:8000"} 1', connect_errors("refused", 3)),
            Finding(
                State.FAILED,
                UPSTREAM,
                "connections to vllm:8000 failed: 3 refused; no request has succeeded",
                "clients get status 502",
                UPSTREAM_FIX,
            ),
            id="metrics of another address",
        ),
        pytest.param(
            NO_SIDECAR, Finding(State.NOT_CHECKED, UPSTREAM, NO_SIDECAR.reason, fix=NO_SIDECAR.fix), id="no sidecar"
        ),
    ],
)
def test_upstream(sidecar_page: SidecarPage | Unread, expected: Finding) -> None:
    assert upstream(sidecar_page) == expected


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


EXPOSURE = f"{URL}/v1/models and /metrics, without a key"
CLOSE = "a firewall, or vllm serve --host 127.0.0.1 beside its sidecar; with --api-key alone, /metrics stays open"


def at(address: str, *, beside: bool = False, models: bool = True, metrics: bool = True) -> Answering:
    return Answering(address=address, beside=beside, models=models, metrics=metrics)


@pytest.mark.parametrize(
    "answering, expected",
    [
        pytest.param(
            [at("10.0.0.5", beside=True), at("2606:4700::1111", beside=True)],
            Finding(
                State.FAILED,
                EXPOSURE,
                "10.0.0.5, a private address, shows /v1/models and /metrics; "
                "2606:4700::1111, a public address, shows /v1/models and /metrics",
                "anyone can use the GPU, past the sidecar",
                CLOSE,
            ),
            id="public",
        ),
        pytest.param(
            [at("8.8.8.8", models=False)],
            Finding(
                State.WARNING,
                EXPOSURE,
                "8.8.8.8, a public address, shows /metrics",
                "anyone can read the settings, the model and the load of the engine",
                CLOSE,
            ),
            id="public, with a key for /v1 only",
        ),
        pytest.param(
            [at("10.0.0.5", beside=True)],
            Finding(
                State.WARNING,
                EXPOSURE,
                "10.0.0.5, a private address, shows /v1/models and /metrics",
                "clients in this network, or behind a forwarded port, can use the engine past the sidecar",
                CLOSE,
            ),
            id="all interfaces, though the sidecar is on this machine",
        ),
        pytest.param(
            [at("10.0.0.5")],
            Finding(State.OK, EXPOSURE, "10.0.0.5, a private address, shows /v1/models and /metrics"),
            id="another machine in a private network",
        ),
        pytest.param(
            [at("8.8.8.8", models=False, metrics=False)],
            Finding(State.OK, EXPOSURE, "8.8.8.8, a public address, needs a key"),
            id="public, behind a proxy with a key",
        ),
        pytest.param([], Finding(State.OK, EXPOSURE, "it responds on this machine only"), id="loopback only"),
        pytest.param(
            NOT_READ,
            Finding(State.NOT_CHECKED, EXPOSURE, NOT_READ.reason, fix=NOT_READ.fix),
            id="it does not respond",
        ),
    ],
)
def test_exposure(answering: Sequence[Answering] | Unread, expected: Finding) -> None:
    assert exposure(reading(answering=answering)) == expected


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
