"""The scraper against a small engine over a real socket."""

import socket
import time
from collections.abc import AsyncIterator

import aiohttp
import pytest

from exporters.engines.scraper import Scraper
from tests.sidecar.engine import CACHING_OFF, CACHING_ON, Engine, serving

GAUGES_OF_A_RUNNING_ENGINE = {
    "llm_engine_requests_running",
    "llm_engine_requests_waiting",
    "llm_engine_kv_cache_usage_ratio",
    "llm_engine_kv_cache_capacity_tokens",
    "llm_engine_start_time_seconds",
    "llm_engine_info",
}


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=0.3)) as session:
        yield session


def scraper_of(engine: Engine, models: list[str] | None = None, metrics_url: str | None = None) -> Scraper:
    return Scraper(engine.url, metrics_url, 1.0, (models if models is not None else []).extend)


def exposed(scraper: Scraper) -> dict[str, dict[str, float]]:
    """Samples by name; rows by the values of their labels, the engine's address left out."""
    found: dict[str, dict[str, float]] = {}
    for family in scraper.state.collect():
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
    assert found == {
        "llm_engine_up": {"": 1.0},
        "llm_engine_scrape_errors_total": {"connection": 0, "timeout": 0, "status": 0, "parse": 0},
        "llm_engine_requests_running": {"0 tiny": 0.0},
        "llm_engine_requests_waiting": {"0 tiny": 0.0},
        "llm_engine_kv_cache_usage_ratio": {"0 tiny": 0.0},
        "llm_engine_preemptions_total": {"0 tiny": 2.0},
        "llm_engine_prefix_cache_queries_tokens_total": {"0 tiny": 7039.0},
        "llm_engine_prefix_cache_hits_tokens_total": {"0 tiny": 928.0},
        "llm_engine_prompt_tokens_total": {"0 tiny": 7039.0},
        "llm_engine_generation_tokens_total": {"0 tiny": 13331.0},
        "llm_engine_kv_cache_capacity_tokens": {"0": 3072.0},
        "llm_engine_start_time_seconds": {"": 1795226696.52},
        "llm_engine_info": {"vllm 0.32.0": 1.0},
        "llm_engine_config_info": {revision: 1.0},
    }


async def test_before_any_look_the_engine_is_down_and_nothing_else_is_claimed() -> None:
    scraper = scraper_of(Engine(port=1))
    assert exposed(scraper) == {
        "llm_engine_up": {"": 0.0},
        "llm_engine_scrape_errors_total": {"connection": 0, "timeout": 0, "status": 0, "parse": 0},
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
        pytest.param({"metrics_status": 404}, "status", id="no such page"),
        pytest.param({"metrics_status": 500}, "status", id="a failing page"),
        pytest.param({"metrics_wait": 5.0}, "timeout", id="no answer in time"),
    ],
)
async def test_a_failed_look_is_counted_by_its_reason(
    session: aiohttp.ClientSession, broken: dict[str, object], reason: str
) -> None:
    async with serving(Engine(**broken)) as engine:  # type: ignore[arg-type]  # each row names fields of the engine
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


@pytest.mark.parametrize("body", ["[]", '{"data": 5}', '{"data": [{}]}', "{not json"])
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
        scraper = scraper_of(engine, metrics_url=f"{pages.url}/metrics")
        await scraper.scrape(session)
    assert scraper.state.up
