"""Settings in an engine's responses have one name, no secrets, and do not change with a restart alone."""

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from exporters.engines.scrape_targets import targets
from exporters.engines.scraper import Scraper
from exporters.engines.server_info import TRIES
from exporters.engines.settings import MAX_VALUE_LENGTH, models_settings, server_info_settings
from tests.exporters.engines.scraping import TLS, CountingEngine, scraper_of
from tests.support.fake_engine import CACHING_OFF, CACHING_ON, Engine, serving, with_start_time
from tests.support.waiting import until


def model(name: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "object": "model", "owned_by": "vllm", "root": name, "parent": None, **fields}


def server_info(**sections: Any) -> dict[str, Any]:
    return {"vllm_config": sections, "vllm_env": {}}


@pytest.mark.parametrize(
    "models, settings",
    [
        pytest.param(
            [model("tiny", root="/models/tiny", max_model_len=2048)],
            {"served_model_name": "tiny", "model": "/models/tiny", "max_model_len": "2048"},
            id="one model",
        ),
        pytest.param(
            [model("gpt-4", root="m", max_model_len=2048), model("chat", root="m", max_model_len=2048)],
            {"served_model_name": "chat,gpt-4", "model": "m", "max_model_len": "2048"},
            id="one model under two names, in any order",
        ),
        pytest.param(
            [model("tiny", max_model_len=2048), model("sql-lora", root="/adapters/sql", parent="tiny")],
            {"served_model_name": "tiny", "model": "tiny", "max_model_len": "2048"},
            id="an adapter is not a setting",
        ),
        pytest.param([{"id": "llama"}], {"served_model_name": "llama"}, id="an engine that shows only the name"),
        pytest.param([], {}, id="no models yet"),
    ],
)
def test_the_models_response_has_the_settings_of_the_served_model(
    models: list[dict[str, Any]], settings: dict[str, str]
) -> None:
    assert models_settings({"object": "list", "data": models}) == settings


@pytest.mark.parametrize(
    "response, settings",
    [
        pytest.param(
            server_info(
                cache_config={"enable_prefix_caching": True, "num_gpu_blocks": 96, "kv_cache_dtype_skip_layers": []},
                model_config={"model": "tiny", "max_model_len": 2048, "served_model_name": "a"},
            ),
            {
                "enable_prefix_caching": "True",
                "kv_cache_dtype_skip_layers": "[]",
                "model": "tiny",
                "max_model_len": "2048",
            },
            id="the same names and spellings as in other responses, without profiled values",
        ),
        pytest.param(
            server_info(scheduler_config={"policy": "priority", "max_num_seqs": 4, "long_prefill_token_threshold": 0}),
            {"scheduling_policy": "priority", "max_num_seqs": "4", "long_prefill_token_threshold": "0"},
            id="the names of the flags",
        ),
        pytest.param(
            server_info(
                parallel_config={"tensor_parallel_size": 2, "data_parallel_master_port": 40123, "master_addr": "::1"},
                load_config={"load_format": "auto", "download_dir": "/tmp/x"},  # noqa: S108 - a value of an engine
                instance_id="179522",
                compilation_config={"cache_dir": "/root/.cache/7f3a"},
                lora_config=None,
            ),
            {"tensor_parallel_size": "2", "load_format": "auto"},
            id="nothing that differs at each start",
        ),
        pytest.param(
            server_info(speculative_config={"model": "draft", "num_speculative_tokens": 3}),
            {"speculative_config.model": "draft", "speculative_config.num_speculative_tokens": "3"},
            id="a draft model is not the model",
        ),
        pytest.param(
            {
                "vllm_config": "model='tiny', seed=0",
                "vllm_env": {
                    "VLLM_USE_V1": True,
                    "VLLM_ATTENTION_BACKEND": "FLASHINFER",
                    "VLLM_PORT": 4711,
                    "VLLM_HOST_IP": "10.0.0.7",
                    "VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME": "vllm_mm_GtUer1_JS3aNNMLYTCqPSA",
                    "VLLM_DP_RANK_LOCAL": 0,
                    "VLLM_S3_SECRET": "s3cret",
                    "VLLM_API_KEY": "s3cret",
                    "VLLM_PLUGINS": ["a"],
                },
            },
            {"VLLM_USE_V1": "True", "VLLM_ATTENTION_BACKEND": "FLASHINFER"},
            id="the environment, also of a version with its configuration as text",
        ),
        pytest.param(
            server_info(model_config={"hf_token": "s3cret", "dtype": "torch.bfloat16", "hf_overrides": {"a": 1}}),
            {"dtype": "torch.bfloat16"},
            id="no secret",
        ),
        pytest.param(
            server_info(model_config={"tokenizer": "x" * 500}),
            {"tokenizer": "x" * MAX_VALUE_LENGTH},
            id="a long value is truncated",
        ),
    ],
)
def test_server_info_has_the_settings_of_operators(response: dict[str, Any], settings: dict[str, str]) -> None:
    assert server_info_settings(response) == settings


async def test_one_config_change_in_three_sources_counts_once(session: aiohttp.ClientSession) -> None:
    def response(*, caching: bool) -> str:
        return json.dumps(
            server_info(cache_config={"enable_prefix_caching": caching}, scheduler_config={"max_num_seqs": 4})
        )

    async with serving(Engine(metrics=CACHING_ON, server_info=response(caching=True))) as engine:
        scraper = scraper_of(engine)
        await scraper.scrape(session)
        scraper.state.watch.observe_fingerprint("f-1", time.time())
        await scraper.scrape(session)
        assert scraper.state.watch.settings["max_num_seqs"] == "4"
        start = time.time()
        off = CACHING_ON.replace('enable_prefix_caching="True"', 'enable_prefix_caching="False"')
        engine.metrics, engine.server_info = with_start_time(off, start), response(caching=False)
        await scraper.scrape(session)
        scraper.state.watch.observe_fingerprint("f-2", time.time())
        await scraper.scrape(session)
    changes = [(change.setting, change.old, change.new, change.at) for change in scraper.state.watch.changes]
    assert changes == [("enable_prefix_caching", "True", "False", start)]


async def test_settings_from_before_a_restart_are_not_attributed_to_the_next_process(
    session: aiohttp.ClientSession,
) -> None:
    """The models request fails at the first scrape of the process, so the change is detected later."""
    async with serving(Engine(models_body=json.dumps({"data": [model("tiny", max_model_len=2048)]}))) as engine:
        scraper = scraper_of(engine)
        await scraper.scrape(session)
        start = time.time()
        engine.metrics, engine.models_body = with_start_time(CACHING_ON, start), "{half an answ"
        await scraper.scrape(session)
        assert scraper.state.watch.changes == []
        engine.models_body = json.dumps({"data": [model("tiny", max_model_len=1024)]})
        await scraper.scrape(session)
    (change,) = scraper.state.watch.changes
    assert (change.setting, change.old, change.new, change.at) == ("max_model_len", "2048", "1024", start)


async def test_the_settings_of_an_engine_behind_a_gateway_come_from_that_engine(session: aiohttp.ClientSession) -> None:
    """A change of the gateway's list would count at each engine."""
    async with (
        serving(Engine(models_body=json.dumps({"data": [model("one", max_model_len=1024)]}))) as one,
        serving(Engine(metrics=CACHING_OFF, models_body=json.dumps({"data": [model("two")]}))) as two,
        serving(Engine(models=("chat",))) as gateway,
    ):
        names: list[str] = []
        urls = (f"{one.url}/metrics", f"{two.url}/metrics")
        scrapers = [Scraper(target, 1.0, names.extend, TLS) for target in targets(gateway.url, urls)]
        for scraper in scrapers:
            await scraper.scrape(session)
    assert set(names) == {"chat"}
    assert [scraper.state.watch.settings["served_model_name"] for scraper in scrapers] == ["one", "two"]


async def test_server_info_is_requested_once_per_process(
    session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The other requests: at every scrape.
    monkeypatch.setattr("exporters.engines.scraper.IDENTITY_SECONDS", -1.0)
    engine = CountingEngine()
    async with serving(engine):
        scraper = scraper_of(engine)
        await scraper.scrape(session)
        await scraper.scrape(session)
        assert (engine.info_requests, scraper.state.up) == (1, True)
        engine.metrics, engine.server_info = (
            with_start_time(CACHING_ON, time.time()),
            json.dumps(server_info(model_config={"seed": 0})),
        )
        for _ in range(2):
            await scraper.scrape(session)
    assert engine.info_requests == 2
    assert scraper.state.watch.settings["seed"] == "0"
    assert scraper.state.watch.changes == []


@dataclass
class BusyEngine(CountingEngine):
    """Answers a request for /server_info only when `idle` is set."""

    idle: asyncio.Event = field(default_factory=asyncio.Event)

    async def server_info_page(self, request: web.Request) -> web.Response:
        response = await super().server_info_page(request)
        await self.idle.wait()
        return response


@pytest.mark.slow
async def test_a_slow_server_info_delays_no_scrape_and_is_read_when_it_arrives(
    session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = json.dumps(server_info(scheduler_config={"max_num_seqs": 4}))
    engine = BusyEngine(server_info=body)
    async with serving(engine):
        scraper = scraper_of(engine)
        monkeypatch.setattr("exporters.engines.scraper.IDENTITY_TIMEOUT_SECONDS", 0.5)
        await scraper.scrape(session)
        for _ in range(3):
            await scraper.scrape(session)
        assert (engine.scrapes, engine.info_requests, scraper.state.up) == (4, 1, True)
        watch = scraper.state.watch
        assert ("max_num_seqs" in watch.settings, watch.settings_pending) == (False, True)
        engine.idle.set()

        async def read() -> bool:
            await scraper.scrape(session)
            return watch.settings.get("max_num_seqs") == "4"

        await until(read)
        assert (engine.info_requests, watch.settings_pending, watch.changes) == (1, False, [])


async def test_a_server_info_that_never_arrives_is_requested_a_limited_number_of_times(
    session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporters.engines.server_info.TIMEOUT_SECONDS", 0.05)
    engine = BusyEngine(server_info="{}")
    async with serving(engine):
        scraper = scraper_of(engine)

        async def given_up() -> bool:
            await scraper.scrape(session)
            return not scraper.state.watch.settings_pending

        await until(given_up)
        engine.idle.set()
        await scraper.scrape(session)
    assert engine.info_requests <= TRIES


@pytest.mark.slow
async def test_the_server_info_of_an_earlier_process_is_not_attributed_to_the_next(
    session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporters.engines.scraper.IDENTITY_TIMEOUT_SECONDS", 0.5)
    engine = BusyEngine(server_info=json.dumps(server_info(model_config={"seed": 1})))
    async with serving(engine):
        scraper = scraper_of(engine)
        await scraper.scrape(session)
        engine.metrics, engine.server_info = with_start_time(CACHING_ON, time.time()), None
        engine.idle.set()
        await scraper.scrape(session)
        await scraper.scrape(session)
    assert "seed" not in scraper.state.watch.settings
    assert not scraper.state.watch.settings_pending
