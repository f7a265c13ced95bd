"""The scraper against small engines over real sockets."""

import asyncio
import contextlib
import gzip
import json
import socket
import ssl
import time
import zlib
from collections.abc import AsyncIterator, Sequence

import aiohttp
import pytest
from aiohttp import web

from exporters import signals
from exporters.engines.engine_state import FAILED, UNUSABLE, collect
from exporters.engines.scrape_targets import Target, targets
from exporters.engines.scraper import LARGEST_PAGE, Scraper
from tests.contract.expositions import PAGES
from tests.support.fake_engine import CACHING_OFF, CACHING_ON, Engine, serving
from tests.support.waiting import HANG

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
NO_ERRORS = dict.fromkeys((*FAILED, *UNUSABLE), 0)
TLS = ssl.create_default_context()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=HANG)) as session:
        yield session


def scraper_of(engine: Engine, models: list[str] | None = None, metrics: Sequence[str] = ()) -> Scraper:
    (target,) = targets(engine.url, metrics)
    return Scraper(target, 1.0, (models if models is not None else []).extend, TLS)


def exposed(scraper: Scraper) -> dict[str, dict[str, float]]:
    """Samples by name; rows by the values of their labels, the engine's address left out."""
    found: dict[str, dict[str, float]] = {}
    for family in collect([scraper.state], scraper.state.good_at or 0.0):
        for sample in family.samples:
            assert sample.labels["engine"] == scraper.state.name
            row = " ".join(value for label, value in sample.labels.items() if label != "engine")
            found.setdefault(sample.name, {})[row] = sample.value
    return found


def errors(scraper: Scraper) -> dict[str, int]:
    return {reason: count for reason, count in scraper.state.errors.items() if count}


async def test_a_look_at_an_engine_shows_its_state_in_our_words(session: aiohttp.ClientSession) -> None:
    models: list[str] = []
    async with serving(Engine(models=("tiny", "adapter"))) as engine:
        scraper = scraper_of(engine, models)
        await scraper.scrape(session)
        found = exposed(scraper)
    assert models == ["tiny", "adapter"]
    assert scraper.state.name == f"127.0.0.1:{engine.port}"
    revision = scraper.state.watch.revision
    settings = found.pop("llm_engine_setting_info")
    assert settings["enable_prefix_caching True"] == settings["version 0.32.0"] == 1
    assert revision is not None
    there = found.pop("llm_engine_signal_exposed")
    assert (there["llm_engine_requests_running"], there["llm_engine_time_to_first_token_seconds"]) == (1, 0)
    assert found == {
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


async def test_before_any_look_the_engine_is_down_and_nothing_else_is_claimed() -> None:
    scraper = scraper_of(Engine(port=1))
    assert exposed(scraper) == {
        "llm_engine_up": {"": 0.0},
        "llm_engine_scrape_errors_total": NO_ERRORS,
    }


async def test_an_engine_that_goes_down_loses_its_gauges_and_gets_them_back(session: aiohttp.ClientSession) -> None:
    engine = Engine()
    async with serving(engine):
        scraper = scraper_of(engine)
        await scraper.scrape(session)
        before = exposed(scraper)
    await scraper.scrape(session)
    down = exposed(scraper)
    assert down["llm_engine_up"] == {"": 0.0}
    assert errors(scraper) == {"connection": 1}
    assert not GAUGES_OF_A_RUNNING_ENGINE & down.keys()
    assert down["llm_engine_config_info"] == before["llm_engine_config_info"]
    async with serving(engine):
        await scraper.scrape(session)
    after = exposed(scraper)
    assert after["llm_engine_up"] == {"": 1.0}
    assert before.keys() == after.keys()


@pytest.mark.parametrize(
    "broken, reason",
    [
        pytest.param({"metrics": "<html>it works</html>\n"}, "parse", id="a page that is no exposition"),
        pytest.param({"metrics": b"\xff\xfe\x00"}, "parse", id="bytes that are no text"),
        pytest.param({"metrics": PAGES["tgi"].rstrip()[-20:]}, "parse", id="the end of a line"),
        pytest.param({"metrics_status": 404}, "status", id="no such page"),
        pytest.param({"metrics_status": 500}, "status", id="a failing page"),
        pytest.param({"metrics_wait": 5.0}, "timeout", id="no answer in time"),
    ],
)
async def test_a_failed_look_is_counted_by_its_reason(broken: dict[str, object], reason: str) -> None:
    limit = aiohttp.ClientTimeout(total=0.3 if reason == "timeout" else HANG)
    async with (
        serving(Engine(**broken)) as engine,  # type: ignore[arg-type]  # each row names fields of the engine
        aiohttp.ClientSession(timeout=limit) as session,
    ):
        scraper = scraper_of(engine)
        await scraper.scrape(session)
    assert errors(scraper) == {reason: 1}
    assert exposed(scraper)["llm_engine_up"] == {"": 0.0}


async def test_an_address_where_nobody_listens_is_a_connection_error(session: aiohttp.ClientSession) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        scraper = scraper_of(Engine(port=unused.getsockname()[1]))
        await scraper.scrape(session)
    assert errors(scraper) == {"connection": 1}


async def test_a_flip_is_shown_at_the_engines_start(session: aiohttp.ClientSession) -> None:
    async with serving(Engine(metrics=CACHING_OFF)) as engine:
        scraper = scraper_of(engine)
        await scraper.scrape(session)
        started = time.time()
        engine.metrics = CACHING_ON.replace("1.79522669652e+09", repr(started))
        await scraper.scrape(session)
        found = exposed(scraper)
    assert found["llm_engine_config_change_timestamp_seconds"]["enable_prefix_caching False True"] == started
    assert found["llm_engine_setting_info"]["enable_prefix_caching True"] == 1.0
    assert "enable_prefix_caching False" not in found["llm_engine_setting_info"]


async def test_a_restart_with_the_same_settings_is_no_flip(session: aiohttp.ClientSession) -> None:
    async with serving(Engine()) as engine:
        scraper = scraper_of(engine)
        await scraper.scrape(session)
        engine.metrics = CACHING_ON.replace("1.79522669652e+09", repr(time.time()))
        await scraper.scrape(session)
        found = exposed(scraper)
    assert "llm_engine_config_change_timestamp_seconds" not in found


async def test_a_new_engine_process_is_asked_again_for_its_models_and_version(session: aiohttp.ClientSession) -> None:
    models: list[str] = []
    async with serving(Engine()) as engine:
        scraper = scraper_of(engine, models)
        await scraper.scrape(session)
        await scraper.scrape(session)
        assert models == ["tiny"]
        engine.metrics = CACHING_ON.replace("1.79522669652e+09", repr(time.time()))
        engine.models, engine.version = ("large",), "0.33.0"
        await scraper.scrape(session)
        changes = exposed(scraper)["llm_engine_config_change_timestamp_seconds"]
    assert models == ["tiny", "large"]
    assert "version 0.32.0 0.33.0" in changes


async def test_an_engine_without_a_version_page_is_up_and_of_unknown_version(session: aiohttp.ClientSession) -> None:
    async with serving(Engine(version=None)) as engine:
        scraper = scraper_of(engine)
        await scraper.scrape(session)
    assert exposed(scraper)["llm_engine_info"] == {"vllm unknown": 1.0}


@pytest.mark.parametrize("body", ["[]", '{"data": 5}', '{"data": [{}]}', "{not json", '{"data": [{"id": "\\ud800 "}]}'])
async def test_a_models_page_of_another_shape_keeps_the_engine_up_and_is_asked_again(
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


async def test_the_metrics_page_may_be_elsewhere(session: aiohttp.ClientSession) -> None:
    async with serving(Engine()) as pages, serving(Engine(metrics="", metrics_status=404)) as engine:
        scraper = scraper_of(engine, metrics=[f"{pages.url}/metrics"])
        await scraper.scrape(session)
    assert (scraper.state.up, scraper.state.name) == (True, f"127.0.0.1:{pages.port}")


HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"
PAGE = CACHING_ON.encode()


def packed(body: bytes, encoding: bytes = b"gzip") -> bytes:
    return HEAD + b"Content-Encoding: " + encoding + b"\r\n\r\n" + body


@contextlib.asynccontextmanager
async def answering(answer: bytes, *, hangs: bool = False) -> AsyncIterator[Target]:
    """A server that gives these bytes to whoever asks and closes; or hangs after half of them."""
    over = asyncio.Event()
    handlers = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.append(asyncio.current_task())
        with contextlib.suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer[: len(answer) // 2] if hangs else answer)
            if hangs:
                await over.wait()
            writer.close()
            await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield Target("e", f"{url}/metrics", url, f"{url}/v1/models")
        over.set()
        await asyncio.gather(*filter(None, handlers))


async def looked_at(target: Target, session: aiohttp.ClientSession) -> Scraper:
    scraper = Scraper(target, 1.0, lambda _: None, TLS)
    await scraper.scrape(session)
    return scraper


@pytest.mark.parametrize(
    "answer, reason",
    [
        pytest.param(HEAD + b"Content-Length: 9999\r\n\r\n" + PAGE, "payload", id="shorter than it said"),
        pytest.param(HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nvllm:", "payload", id="a chunk that breaks off"),
        pytest.param(packed(b"no gzip at all"), "payload", id="bad compression"),
        pytest.param(packed(gzip.compress(b"\n" * (LARGEST_PAGE + 1))), "size", id="64 MiB that were 64 kB compressed"),
        pytest.param(b"\x16\x03\x01 this is TLS", "status", id="no HTTP"),
        pytest.param(b"", "connection", id="nothing"),
        pytest.param(
            HEAD + b"Content-Type: text/html\r\n\r\n<!doctype html>\n<p>502</p>\n", "parse", id="a page of HTML"
        ),
        pytest.param(b"HTTP/1.1 302 Found\r\nLocation: http://[\r\n\r\n", "connection", id="sent on to nowhere"),
    ],
)
async def test_an_answer_that_is_no_page_is_counted_by_its_reason(
    session: aiohttp.ClientSession, answer: bytes, reason: str
) -> None:
    async with answering(answer) as target:
        scraper = await looked_at(target, session)
    assert errors(scraper) == {reason: 1}
    assert not scraper.state.up


@pytest.mark.parametrize(
    "answer, faults",
    [
        pytest.param(HEAD + b"\r\n" + PAGE, {}, id="without a content type"),
        pytest.param(HEAD + b"Content-Type: application/json\r\n\r\n" + PAGE, {}, id="of the wrong content type"),
        pytest.param(HEAD + b"Content-Type: text/plain; charset=utf-16\r\n\r\n" + PAGE, {}, id="of the wrong charset"),
        pytest.param(packed(gzip.compress(PAGE)), {}, id="gzip"),
        pytest.param(packed(zlib.compress(PAGE), b"deflate"), {}, id="deflate"),
        pytest.param(packed(gzip.compress(PAGE)[:-300]), {"line": 1}, id="gzip that breaks off"),
        pytest.param(HEAD + b"\r\n" + PAGE[:-300], {"line": 1}, id="a page that breaks off"),
        pytest.param(HEAD + b"\r\n" + PAGE + b"}{\n\xff 1\n" * 9, {"line": 1}, id="lines of garbage"),
        pytest.param(
            packed(gzip.compress(b'other_total{a="b",c="d"} 12345.0\n' * 1_500_000 + b"}{\n" + PAGE)),
            {"line": 1},
            id="50 MB that nobody reads before it",
        ),
    ],
)
async def test_what_is_good_of_a_page_is_used_and_a_look_counts_once(
    session: aiohttp.ClientSession, answer: bytes, faults: dict[str, int]
) -> None:
    async with answering(answer) as target:
        scraper = await looked_at(target, session)
    assert errors(scraper) == faults
    assert scraper.state.up
    assert exposed(scraper)["llm_engine_requests_running"] == {"0 tiny": 0.0}


async def test_the_age_of_the_last_good_look_grows_while_looks_fail(session: aiohttp.ClientSession) -> None:
    engine = Engine()
    async with serving(engine):
        scraper = scraper_of(engine)
        await scraper.scrape(session)
    await scraper.scrape(session)
    good_at = scraper.state.good_at
    assert good_at is not None
    ages = [family for family in collect([scraper.state], good_at + 7) if family.name == signals.ENGINE_SCRAPE_AGE.name]
    assert [sample.value for family in ages for sample in family.samples] == [pytest.approx(7.0)]


async def test_a_version_page_that_hangs_holds_up_no_look(
    session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporters.engines.scraper.IDENTITY_PATIENCE", 0.1)
    monkeypatch.setattr("exporters.engines.scraper.HUNG_SECONDS", HANG)
    async with answering(HEAD + b"\r\n{}", hangs=True) as hanging, serving(Engine()) as engine:
        target = Target("e", f"{engine.url}/metrics", hanging.itself, hanging.models)
        scraper = await looked_at(target, session)
        assert scraper.state.up
        monkeypatch.setattr(scraper, "_identify", pytest.fail)  # it is not asked again at once
        await scraper.scrape(session)


async def test_an_engine_without_metrics_is_down_and_its_models_are_known(session: aiohttp.ClientSession) -> None:
    models: list[str] = []
    async with serving(Engine(metrics_status=404)) as engine:
        scraper = scraper_of(engine, models)
        await scraper.scrape(session)
        await scraper.scrape(session)
    assert (scraper.state.up, models) == (False, ["tiny"])


async def test_an_engine_behind_a_gateway_that_is_down_tells_its_version(session: aiohttp.ClientSession) -> None:
    async with serving(Engine()) as engine, answering(b"") as gateway:
        target = Target("e", f"{engine.url}/metrics", engine.url, gateway.models)
        scraper = await looked_at(target, session)
    assert exposed(scraper)["llm_engine_info"] == {"vllm 0.32.0": 1.0}


@pytest.mark.parametrize(
    "page, path, told",
    [
        pytest.param("tgi", "/info", '{"version": "3.3.7"}', id="TGI"),
        pytest.param("llama.cpp", "/props", '{"build_info": "b7000-00dc805"}', id="llama.cpp"),
    ],
)
async def test_a_version_is_asked_for_where_the_engine_tells_it(
    session: aiohttp.ClientSession, page: str, path: str, told: str
) -> None:
    app = web.Application()

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text={"/metrics": PAGES[page], path: told}[request.path])

    app.add_routes([web.get("/metrics", answer), web.get(path, answer)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    (target,) = targets(f"http://127.0.0.1:{runner.addresses[0][1]}", ())
    scraper = await looked_at(target, session)
    await runner.cleanup()
    assert scraper.state.version == json.loads(told).popitem()[1]


@pytest.mark.parametrize("page", ["tgi", "llama.cpp"])
async def test_an_engine_that_names_no_model_has_the_only_one_that_is_listed(
    session: aiohttp.ClientSession, page: str
) -> None:
    async with serving(Engine(metrics=PAGES[page])) as engine:
        scraper = scraper_of(engine)
        await scraper.scrape(session)
        assert list(exposed(scraper)["llm_engine_requests_running"]) == ["0 tiny"]
        scraper.state.models = ("one", "two")
    assert list(exposed(scraper)["llm_engine_requests_running"]) == ["0 other"]
