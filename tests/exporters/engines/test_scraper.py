"""The scraper against fake engines over real sockets."""

import asyncio
import gzip
import json
import re
import time
import zlib

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from exporters.engines.scrape_targets import Target, targets
from exporters.engines.scraper import MAX_RESPONSE_BYTES, Scraper
from exporters.engines.state import FAILURES, FAULTS, collect
from exporters.text.names import MAX_BYTES, cut
from tests.contract.expositions import PAGES
from tests.exporters.engines.scraping import (
    HEAD,
    PAGE,
    TLS,
    CountingEngine,
    raw_server,
    scrape_once,
    scraped,
    scraper_of,
)
from tests.support.fake_engine import CACHING_ON, Engine, serving, with_start_time
from tests.support.ports import free_port
from tests.support.unreachable_engines import (
    Behaviour,
    behaving,
    close_at_once,
    close_in_the_server_hello,
    stop_in_the_server_hello,
)
from tests.support.waiting import HANG, until

GAUGES_OF_A_RUNNING_ENGINE = {
    "llm_engine_requests_running",
    "llm_engine_requests_waiting",
    "llm_engine_kv_cache_usage_ratio",
    "llm_engine_kv_cache_capacity_tokens",
    "llm_engine_start_time_seconds",
    "llm_engine_signal_exposed",
    "llm_engine_token_counts_live",
    "llm_engine_info",
}
NO_ERRORS = dict.fromkeys((*FAILURES, *FAULTS), 0)


def exposed(scraper: Scraper, later: float = 0.0) -> dict[str, dict[str, float]]:
    """Samples by name, then by the values of their labels without the engine's address, after the last success."""
    samples: dict[str, dict[str, float]] = {}
    for family in collect([scraper.state], (scraper.state.last_success_at or 0.0) + later):
        for sample in family.samples:
            assert sample.labels["engine"] == scraper.state.name
            row = " ".join(value for label, value in sample.labels.items() if label != "engine")
            samples.setdefault(sample.name, {})[row] = sample.value
    return samples


def errors(scraper: Scraper) -> dict[str, int]:
    return {reason: count for reason, count in scraper.state.errors.items() if count}


async def test_a_fingerprint_during_the_first_scrape_of_a_process_is_a_change_at_its_start(
    session: aiohttp.ClientSession,
) -> None:
    async with serving(Engine()) as engine:
        scraper = scraper_of(engine)
        await scraper.scrape(session)
        watch = scraper.state.watch
        watch.observe_fingerprint("one", time.time())
        started = time.time()
        engine.metrics = with_start_time(CACHING_ON, started)
        engine.on_models_request = lambda: watch.observe_fingerprint("two", time.time())
        await scraper.scrape(session)
    (change,) = watch.changes
    assert (change.setting, change.old, change.new, change.at) == ("system_fingerprint", "one", "two", started)


async def test_a_scrape_exposes_the_state_of_an_engine_as_our_series(session: aiohttp.ClientSession) -> None:
    models: list[str] = []
    engine = Engine(models=("tiny", "adapter"))
    scraper = await scraped(engine, session, models)
    samples = exposed(scraper)
    assert models == ["tiny", "adapter"]
    assert scraper.state.name == f"127.0.0.1:{engine.port}"
    revision = scraper.state.watch.revision
    settings = samples.pop("llm_engine_setting_info")
    assert settings["enable_prefix_caching True"] == settings["version 0.32.0"] == 1
    assert revision is not None
    exposed_signals = samples.pop("llm_engine_signal_exposed")
    assert exposed_signals["llm_engine_requests_running"] == 1
    assert exposed_signals["llm_engine_time_to_first_token_seconds"] == 0
    assert samples == {
        "llm_engine_up": {"": 1.0},
        "llm_engine_scrape_errors_total": NO_ERRORS,
        "llm_engine_requests_running": {"0 tiny": 0.0},
        "llm_engine_requests_waiting": {"0 tiny": 0.0},
        "llm_engine_requests_deferred": {"0 tiny": 0.0},
        "llm_engine_kv_cache_usage_ratio": {"0 tiny": 0.0},
        "llm_engine_preemptions_total": {"0 tiny": 2.0},
        "llm_engine_prefix_cache_queries_tokens_total": {"0 tiny": 7039.0},
        "llm_engine_prefix_cache_hits_tokens_total": {"0 tiny": 928.0},
        "llm_engine_prompt_tokens_total": {"0 tiny": 7039.0},
        "llm_engine_generation_tokens_total": {"0 tiny": 13331.0},
        "llm_engine_kv_cache_capacity_tokens": {"0": 3072.0},
        "llm_engine_start_time_seconds": {"": 1795226696.52},
        "llm_engine_last_good_scrape_age_seconds": {"": 0.0},
        "llm_engine_token_counts_live": {"": 1.0},
        "llm_engine_info": {"vllm 0.32.0": 1.0},
        "llm_engine_config_info": {revision: 1.0},
    }


async def test_before_the_first_scrape_the_engine_is_down_and_has_no_other_series() -> None:
    expected = {"llm_engine_up": {"": 0.0}, "llm_engine_scrape_errors_total": NO_ERRORS}
    assert exposed(scraper_of(Engine(port=1))) == expected


async def test_the_gauges_of_an_engine_are_absent_while_it_is_down(session: aiohttp.ClientSession) -> None:
    engine = Engine()
    scraper = await scraped(engine, session)
    before = exposed(scraper)
    await scraper.scrape(session)
    down = exposed(scraper, later=7)
    assert down["llm_engine_up"] == {"": 0.0}
    assert down["llm_engine_last_good_scrape_age_seconds"] == {"": pytest.approx(7.0)}
    assert errors(scraper) == {"connection": 1}
    assert not GAUGES_OF_A_RUNNING_ENGINE & down.keys()
    assert down["llm_engine_config_info"] == before["llm_engine_config_info"]
    async with serving(engine):
        await scraper.scrape(session)
    after = exposed(scraper)
    assert after["llm_engine_up"] == {"": 1.0}
    assert before.keys() == after.keys()


async def test_a_scrape_without_a_response_in_time_is_a_timeout() -> None:
    async with (
        raw_server(HEAD + b"\r\n" + PAGE, hangs=True) as server,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=0.1)) as session,
    ):
        scraper = await scrape_once(server.target, session)
    assert errors(scraper) == {"timeout": 1}
    assert not scraper.state.up


async def test_models_and_version_are_requested_again_from_another_process(session: aiohttp.ClientSession) -> None:
    models: list[str] = []
    async with serving(Engine()) as engine:
        scraper = scraper_of(engine, models)
        await scraper.scrape(session)
        await scraper.scrape(session)
        assert models == ["tiny"]
        started = time.time()
        engine.metrics = with_start_time(CACHING_ON, started)
        engine.models, engine.version = ("large",), "0.33.0"
        await scraper.scrape(session)
        samples = exposed(scraper)
    assert models == ["tiny", "large"]
    assert samples["llm_engine_config_change_timestamp_seconds"]["version 0.32.0 0.33.0"] == started
    assert [name for name in samples["llm_engine_setting_info"] if "version" in name] == ["version 0.33.0"]


async def test_long_names_of_an_engine_are_cut_in_labels(session: aiohttp.ClientSession) -> None:
    long = "é" * 5_000
    page = CACHING_ON.replace('model_name="tiny"', f'model_name="{long}"').replace(
        'block_size="32"', f'block_size="{long}"'
    )
    scraper = await scraped(Engine(metrics=page, version=long * 100, models=(long * 100,)), session)
    family_labels = [sample.labels for family in collect([scraper.state], 0.0) for sample in family.samples]
    assert max(len(value.encode()) for labels in family_labels for value in labels.values()) == MAX_BYTES
    assert exposed(scraper)["llm_engine_requests_running"] == {f"0 {cut(long)}": 0.0}
    assert exposed(scraper)["llm_engine_info"] == {f"vllm {cut(long)}": 1.0}


@pytest.mark.parametrize("body", ["[]", '{"data": 5}', '{"data": [{}]}', "{not json", '{"data": [{"id": "\\ud800 "}]}'])
async def test_an_invalid_models_response_keeps_the_engine_up_and_is_requested_again(
    session: aiohttp.ClientSession, body: str
) -> None:
    models: list[str] = []
    async with serving(Engine(models_body=body)) as engine:
        scraper = scraper_of(engine, models)
        await scraper.scrape(session)
        assert (scraper.state.up, models) == (True, [])
        engine.models_body = None
        await scraper.scrape(session)
    assert models == ["tiny"]


async def test_the_metrics_may_be_at_another_address(session: aiohttp.ClientSession) -> None:
    async with serving(Engine()) as exporter, serving(Engine(metrics="", metrics_status=404)) as engine:
        scraper = scraper_of(engine, metrics=[f"{exporter.url}/metrics"])
        await scraper.scrape(session)
    assert (scraper.state.up, scraper.state.name) == (True, f"127.0.0.1:{exporter.port}")


def compressed(body: bytes, encoding: bytes = b"gzip") -> bytes:
    return HEAD + b"Content-Encoding: " + encoding + b"\r\n\r\n" + body


@pytest.mark.parametrize(
    "response, reason",
    [
        pytest.param(HEAD + b"Content-Length: 9999\r\n\r\n" + PAGE, "payload", id="shorter than its content length"),
        pytest.param(HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nvllm:", "payload", id="a truncated chunk"),
        pytest.param(compressed(b"no gzip at all"), "payload", id="bad compression"),
        pytest.param(
            compressed(gzip.compress(b"\n" * (MAX_RESPONSE_BYTES + 1))),
            "size",
            id="more than 64 MiB when decompressed",
        ),
        pytest.param(b"\x16\x03\x01 this is TLS", "status", id="no HTTP"),
        pytest.param(b"", "connection", id="nothing"),
        pytest.param(HEAD + b"Content-Type: text/html\r\n\r\n<!doctype html>\n<p>502</p>\n", "parse", id="HTML"),
        pytest.param(HEAD + b"\r\n\xff\xfe\x00", "parse", id="invalid UTF-8"),
        pytest.param(HEAD + b"\r\n" + PAGES["tgi"].rstrip()[-20:].encode(), "parse", id="the end of a line"),
        pytest.param(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "status", id="404"),
        pytest.param(b"HTTP/1.1 500 Error\r\nContent-Length: 0\r\n\r\n", "status", id="500"),
        pytest.param(
            b"HTTP/1.1 302 Found\r\nLocation: http://[\r\n\r\n", "connection", id="a redirect to an invalid address"
        ),
        pytest.param(
            b"HTTP/1.1 302 Found\r\nLocation: http://a..b/\r\n\r\n", "parse", id="a redirect to an invalid host"
        ),
    ],
)
async def test_an_invalid_response_is_counted_by_its_reason(
    session: aiohttp.ClientSession, response: bytes, reason: str
) -> None:
    async with raw_server(response) as server:
        scraper = await scrape_once(server.target, session)
    assert errors(scraper) == {reason: 1}
    assert exposed(scraper)["llm_engine_up"] == {"": 0.0}


@pytest.mark.parametrize(
    "response, faults",
    [
        pytest.param(HEAD + b"\r\n" + PAGE, {}, id="without a content type"),
        pytest.param(HEAD + b"Content-Type: application/json\r\n\r\n" + PAGE, {}, id="wrong content type"),
        pytest.param(HEAD + b"Content-Type: text/plain; charset=utf-16\r\n\r\n" + PAGE, {}, id="wrong charset"),
        pytest.param(compressed(gzip.compress(PAGE)), {}, id="gzip"),
        pytest.param(compressed(zlib.compress(PAGE), b"deflate"), {}, id="deflate"),
        pytest.param(compressed(gzip.compress(PAGE)[:-300]), {"line": 1}, id="truncated gzip"),
        pytest.param(HEAD + b"\r\n" + PAGE[:-300], {"line": 1}, id="a truncated response"),
        pytest.param(HEAD + b"\r\n" + PAGE + b"}{\n\xff 1\n" * 9, {"line": 1}, id="malformed lines"),
        pytest.param(
            compressed(gzip.compress(b'other_total{a="b",c="d"} 12345.0\n' * 300_000 + b"}{\n" + PAGE)),
            {"line": 1},
            id="10 MB of other families before it",
            marks=pytest.mark.slow,
        ),
    ],
)
async def test_the_valid_part_of_a_response_is_used_and_faults_count_once_per_scrape(
    session: aiohttp.ClientSession, response: bytes, faults: dict[str, int]
) -> None:
    async with raw_server(response) as server:
        scraper = await scrape_once(server.target, session)
    assert errors(scraper) == faults
    assert scraper.state.up
    assert exposed(scraper)["llm_engine_requests_running"] == {"0 tiny": 0.0}


async def test_a_stalled_version_response_does_not_delay_later_scrapes(
    session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporters.engines.scraper.IDENTITY_TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr("exporters.engines.scraper.RETRY_SECONDS", 600.0)
    async with raw_server(HEAD + b"\r\n{}", hangs=True) as hanging, serving(Engine()) as engine:
        target = Target("e", f"{engine.url}/metrics", hanging.target.base_url, hanging.target.models_url)
        scraper = await scrape_once(target, session)
        assert scraper.state.up
        requests = hanging.requests
        await scraper.scrape(session)
        assert hanging.requests == requests


async def test_the_models_of_an_engine_without_metrics_are_read(
    session: aiohttp.ClientSession,
) -> None:
    models: list[str] = []
    async with serving(Engine(metrics_status=404)) as engine:
        scraper = scraper_of(engine, models)
        await scraper.scrape(session)
        await scraper.scrape(session)
    assert (scraper.state.up, models) == (False, ["tiny"])


@pytest.mark.parametrize("version", ["0.32.0", None])
async def test_the_version_of_an_engine_is_read_while_its_gateway_is_down(
    session: aiohttp.ClientSession, version: str | None
) -> None:
    async with serving(Engine(version=version)) as engine, raw_server(b"") as gateway:
        target = Target("e", f"{engine.url}/metrics", engine.url, gateway.target.models_url)
        scraper = await scrape_once(target, session)
    assert exposed(scraper)["llm_engine_info"] == {f"vllm {version or 'unknown'}": 1.0}


@pytest.mark.parametrize(
    "page, path, body",
    [("tgi", "/info", '{"version": "3.3.7"}'), ("llama.cpp", "/props", '{"build_info": "b7000-00dc805"}')],
)
async def test_a_version_is_read_from_the_endpoint_of_the_engine_type(
    session: aiohttp.ClientSession, page: str, path: str, body: str
) -> None:
    app = web.Application()

    async def respond(request: web.Request) -> web.Response:
        return web.Response(text={"/metrics": PAGES[page], path: body}[request.path])

    app.add_routes([web.get("/metrics", respond), web.get(path, respond)])
    async with TestServer(app) as server:
        (target,) = targets(str(server.make_url("")), ())
        scraper = await scrape_once(target, session)
    assert scraper.state.version == json.loads(body).popitem()[1]


@pytest.mark.parametrize("page", ["tgi", "llama.cpp"])
async def test_an_engine_without_a_model_label_has_the_only_listed_model(
    session: aiohttp.ClientSession, page: str
) -> None:
    scraper = await scraped(Engine(metrics=PAGES[page]), session)
    assert list(exposed(scraper)["llm_engine_requests_running"]) == ["0 tiny"]
    scraper.state.models = ("one", "two")
    assert list(exposed(scraper)["llm_engine_requests_running"]) == ["0 other"]


@pytest.mark.parametrize(
    "behaviour, reason",
    [(close_at_once, "connection"), (close_in_the_server_hello, "connection"), (stop_in_the_server_hello, "timeout")],
)
async def test_an_engine_that_fails_in_the_tls_handshake_is_down(
    behaviour: Behaviour, reason: str, session: aiohttp.ClientSession
) -> None:
    async with behaving(behaviour) as (port, connections):
        (target,) = targets(f"https://127.0.0.1:{port}", [])
        scraper = Scraper(target, 1.0, lambda _: None, TLS)
        scraper._timeout = 0.1 if reason == "timeout" else HANG
        for number in (1, 2):
            await scraper.scrape(session)
            assert errors(scraper) == {reason: number}
        await until(lambda: not connections)


@pytest.mark.parametrize(
    "response, reason",
    [
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "the response is not HTTP", id="another protocol"),
        pytest.param(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "HTTP 404", id="another server"),
        pytest.param(
            HEAD + b"\r\nup 1\n", "the response has no series of a known engine", id="metrics of another program"
        ),
        pytest.param(HEAD + b"Content-Length: 9\r\n\r\nup", "the response is incomplete", id="cut"),
        pytest.param(b"", "server disconnected", id="closed"),
    ],
)
async def test_a_server_that_is_no_engine_is_logged_once_with_its_url_and_the_reason(
    session: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture, response: bytes, reason: str
) -> None:
    async with raw_server(response) as server:
        scraper = Scraper(server.target, 1.0, lambda _: None, TLS)
        for _ in range(2):
            await scraper.scrape(session)
    url = server.target.metrics_url
    assert caplog.messages == [f"the metrics of engine e at {url} cannot be read: {reason}"]


async def test_the_begin_and_the_end_of_an_outage_are_logged_without_the_secrets_of_the_url(
    session: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "vllm_slo")
    engine = Engine(port=free_port())
    url = f"127.0.0.1:{engine.port}/metrics"
    scraper = scraper_of(engine, metrics=[f"http://me:secret@{url}?key=secret"])
    await scraper.scrape(session)
    async with serving(engine):
        await scraper.scrape(session)
    metrics = f"the metrics of engine 127.0.0.1:{engine.port} at http://{url}"
    assert [re.sub(r"after \d+ s", "after SECONDS", each) for each in caplog.messages] == [
        f"{metrics} cannot be read: connection refused",
        f"{metrics} can be read again, after SECONDS",
    ]


@pytest.mark.parametrize("paused", [True, False, None], ids=["paused", "not paused", "no such endpoint"])
async def test_a_pause_of_generation_is_seen(session: aiohttp.ClientSession, *, paused: bool | None) -> None:
    async with serving(Engine(is_paused=paused)) as engine:
        scraper = await scrape_once(targets(engine.url, ())[0], session)
        assert scraper.state.generation_paused is bool(paused)
        engine.is_paused = not paused
        await scraper.scrape(session)
    assert scraper.state.generation_paused is (paused is False)


async def test_a_hurried_scrape_does_not_wait_for_the_interval() -> None:
    engine = CountingEngine()
    async with serving(engine):
        scraper = scraper_of(engine, [])
        scraper.set_interval(600.0)
        running = asyncio.create_task(scraper.run())
        await until(lambda: scraper.state.up)
        scraper.hurry(age=HANG)  # the last scrape has just begun
        await asyncio.sleep(0.02)
        assert engine.scrapes == 1
        scraper.hurry(age=0.0)
        await until(lambda: engine.scrapes == 2)
        running.cancel()
