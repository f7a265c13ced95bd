"""What an engine's pages tell of its settings: one name each, nothing secret, nothing that only a restart changes."""

import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from exporters.engines.engine_settings import LONGEST, of_models, of_server_info
from exporters.engines.scrape_targets import targets
from exporters.engines.scraper import Scraper
from tests.exporters.engines.test_scraper import TLS
from tests.support.fake_engine import CACHING_OFF, CACHING_ON, Engine, serving
from tests.support.waiting import HANG

BORN = "1.79522669652e+09"


def model(name: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "object": "model", "owned_by": "vllm", "root": name, "parent": None, **fields}


def info(**sections: Any) -> dict[str, Any]:
    return {"vllm_config": sections, "vllm_env": {}}


@pytest.mark.parametrize(
    "listed, settings",
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
            id="an adapter comes and goes while the engine runs",
        ),
        pytest.param([{"id": "llama"}], {"served_model_name": "llama"}, id="an engine that tells the name alone"),
        pytest.param([], {}, id="no models yet"),
    ],
)
def test_the_models_page_tells_what_is_served(listed: list[dict[str, Any]], settings: dict[str, str]) -> None:
    assert of_models({"object": "list", "data": listed}) == settings


@pytest.mark.parametrize(
    "told, settings",
    [
        pytest.param(
            info(
                cache_config={"enable_prefix_caching": True, "num_gpu_blocks": 96, "kv_cache_dtype_skip_layers": []},
                model_config={"model": "tiny", "max_model_len": 2048, "served_model_name": "a"},
            ),
            {
                "enable_prefix_caching": "True",
                "kv_cache_dtype_skip_layers": "[]",
                "model": "tiny",
                "max_model_len": "2048",
            },
            id="what another page shows too has the same name and spelling, and what was profiled is none",
        ),
        pytest.param(
            info(scheduler_config={"policy": "priority", "max_num_seqs": 4, "long_prefill_token_threshold": 0}),
            {"scheduling_policy": "priority", "max_num_seqs": "4", "long_prefill_token_threshold": "0"},
            id="named as the flags are",
        ),
        pytest.param(
            info(
                parallel_config={"tensor_parallel_size": 2, "data_parallel_master_port": 40123, "master_addr": "::1"},
                load_config={"load_format": "auto", "download_dir": "/tmp/x"},  # noqa: S108 - what an engine says
                instance_id="179522",
                compilation_config={"cache_dir": "/root/.cache/7f3a"},
                lora_config=None,
            ),
            {"tensor_parallel_size": "2", "load_format": "auto"},
            id="nothing that differs from start to start",
        ),
        pytest.param(
            info(speculative_config={"model": "draft", "num_speculative_tokens": 3}),
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
            id="the environment, also of a vLLM that tells its configuration as text",
        ),
        pytest.param(
            info(model_config={"hf_token": "s3cret", "dtype": "torch.bfloat16", "hf_overrides": {"a": 1}}),
            {"dtype": "torch.bfloat16"},
            id="no secret",
        ),
        pytest.param(
            info(model_config={"tokenizer": "x" * 500}), {"tokenizer": "x" * LONGEST}, id="a long value is cut"
        ),
    ],
)
def test_server_info_tells_what_somebody_has_set(told: dict[str, Any], settings: dict[str, str]) -> None:
    assert of_server_info(told) == settings


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=HANG)) as session:
        yield session


def scraper_of(engine: Engine, *pages: str) -> Scraper:
    return Scraper(targets(engine.url, pages)[0], 1.0, lambda _: None, TLS)


def born(page: str, start: float) -> str:
    return page.replace(BORN, repr(start))


async def test_one_flip_that_three_pages_show_counts_once(session: aiohttp.ClientSession) -> None:
    def shown(*, caching: bool) -> str:
        return json.dumps(info(cache_config={"enable_prefix_caching": caching}, scheduler_config={"max_num_seqs": 4}))

    async with serving(Engine(metrics=CACHING_ON, server_info=shown(caching=True))) as engine:
        scraper = scraper_of(engine)
        await scraper.scrape(session)
        scraper.state.watch.answered("f-1", time.time())
        await scraper.scrape(session)
        assert scraper.state.watch.settings["max_num_seqs"] == "4"
        start = time.time()
        only = CACHING_ON.replace('enable_prefix_caching="True"', 'enable_prefix_caching="False"')
        engine.metrics, engine.server_info = born(only, start), shown(caching=False)
        await scraper.scrape(session)
        scraper.state.watch.answered("f-2", time.time())
        await scraper.scrape(session)
    changes = [(change.setting, change.old, change.new, change.at) for change in scraper.state.watch.changes]
    assert changes == [("enable_prefix_caching", "True", "False", start)]


async def test_what_an_engine_told_before_its_restart_is_not_taken_for_what_it_tells_now(
    session: aiohttp.ClientSession,
) -> None:
    """The models page fails at the first look at the process, so the flip is seen later, and dated to the start."""
    async with serving(Engine(models_body=json.dumps({"data": [model("tiny", max_model_len=2048)]}))) as engine:
        scraper = scraper_of(engine)
        await scraper.scrape(session)
        start = time.time()
        engine.metrics, engine.models_body = born(CACHING_ON, start), "{half an answ"
        await scraper.scrape(session)
        assert scraper.state.watch.changes == []
        engine.models_body = json.dumps({"data": [model("tiny", max_model_len=1024)]})
        await scraper.scrape(session)
    (change,) = scraper.state.watch.changes
    assert (change.setting, change.old, change.new, change.at) == ("max_model_len", "2048", "1024", start)


async def test_each_engine_behind_a_gateway_is_asked_itself_for_its_settings(session: aiohttp.ClientSession) -> None:
    """The gateway's own list is of no one engine: its change would count at each of them."""
    async with (
        serving(Engine(models_body=json.dumps({"data": [model("one", max_model_len=1024)]}))) as one,
        serving(Engine(metrics=CACHING_OFF, models_body=json.dumps({"data": [model("two")]}))) as two,
        serving(Engine(models=("chat",))) as gateway,
    ):
        names: list[str] = []
        pages = (f"{one.url}/metrics", f"{two.url}/metrics")
        scrapers = [Scraper(target, 1.0, names.extend, TLS) for target in targets(gateway.url, pages)]
        for scraper in scrapers:
            await scraper.scrape(session)
    assert set(names) == {"chat"}
    assert [scraper.state.watch.settings["served_model_name"] for scraper in scrapers] == ["one", "two"]


@dataclass
class Counted(Engine):
    """Counts how often its /server_info is asked for."""

    asked: int = 0

    async def server_info_page(self, request: web.Request) -> web.Response:
        self.asked += 1
        return await super().server_info_page(request)


async def test_server_info_is_asked_for_once_in_the_life_of_a_process(
    session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporters.engines.scraper.IDENTITY_SECONDS", -1.0)  # the other pages: at every look
    engine = Counted()
    async with serving(engine):
        scraper = scraper_of(engine)
        await scraper.scrape(session)
        await scraper.scrape(session)
        assert (engine.asked, scraper.state.up) == (1, True)
        engine.metrics, engine.server_info = born(CACHING_ON, time.time()), json.dumps(info(model_config={"seed": 0}))
        for _ in range(2):
            await scraper.scrape(session)
    assert engine.asked == 2
    assert scraper.state.watch.settings["seed"] == "0"
    assert scraper.state.watch.changes == []
