"""Several engines: where each is, what it is called, and that none waits for another."""

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from compose.cli import main
from exporters.engines.config_changes import revision
from exporters.engines.engine_group import Fleet
from exporters.engines.scrape_targets import Target, targets
from exporters.errors import UsageError
from tests.exporters.engines.test_scraper import HEAD, PAGE, TLS, answering
from tests.support.fake_engine import Engine, serving
from tests.support.sidecar_process import sidecar
from tests.support.waiting import HANG


@dataclass
class Counted(Engine):
    """Counts how often its metrics are asked for."""

    looks: int = 0

    async def metrics_page(self, request: web.Request) -> web.Response:
        self.looks += 1
        return await super().metrics_page(request)


async def test_an_engine_is_asked_once_an_interval_however_many_read() -> None:
    interval, reads = 0.1, 0
    engine = Counted()
    async with serving(engine):
        fleet = Fleet(targets(engine.url, ()), interval, lambda _: None, TLS)
        began = time.monotonic()
        running = asyncio.ensure_future(fleet.run())
        while engine.looks < 4 or reads < 100:
            list(fleet.collect())
            reads += 1
            await asyncio.sleep(0.001)
        running.cancel()
    assert reads >= 100
    assert engine.looks - 1 <= (time.monotonic() - began) / interval


async def test_while_an_engine_hangs_the_others_are_looked_at_and_all_can_be_read() -> None:
    async with answering(HEAD + b"\r\n" + PAGE, hangs=True) as hanging, serving(Engine()) as well:
        (prompt,) = targets(well.url, ())
        fleet = Fleet([hanging, prompt], 0.05, lambda _: None, TLS)
        fleet._scrapers[0]._timeout = aiohttp.ClientTimeout(total=HANG)
        running = asyncio.ensure_future(fleet.run())
        began = time.monotonic()
        while (seen := fleet.states[1].good_at) is None or seen < began + 0.2:  # several intervals
            await asyncio.sleep(0.01)
            list(fleet.collect())
        running.cancel()
    assert [state.up for state in fleet.states] == [False, True]
    assert sum(fleet.states[0].errors.values()) == 0  # its first look is still under way


async def test_the_revision_of_several_engines_is_that_of_all() -> None:
    fleet = Fleet(targets("http://gateway", ["http://a/metrics", "http://b/metrics"]), 1.0, lambda _: None, TLS)
    assert fleet.revision is None
    for state, block_size in zip(fleet.states, ("16", "32"), strict=True):
        state.watch.observe({"block_size": block_size}, None, 1.0)
    assert fleet.revision == revision({"a": revision({"block_size": "16"}), "b": revision({"block_size": "32"})})


def test_an_engine_is_called_by_where_its_metrics_are() -> None:
    assert targets("http://u:8000/v1x/", ()) == (
        Target("u:8000", "http://u:8000/v1x/metrics", "http://u:8000/v1x", "http://u:8000/v1x/v1/models"),
    )
    assert targets("http://u:8000", ["http://me:secret@u:9000/prometheus/metrics"]) == (
        Target("u:9000", "http://me:secret@u:9000/prometheus/metrics", "http://u:8000", "http://u:8000/v1/models"),
    )
    models = "http://gateway/v1/models"
    assert targets("http://gateway", ["https://a/metrics", "http://b/1/metrics?x=y", "http://b/2/metrics"]) == (
        Target("a", "https://a/metrics", "https://a", models),
        Target("b/1/metrics", "http://b/1/metrics?x=y", "http://b", models),
        Target("b/2/metrics", "http://b/2/metrics", "http://b", models),
    )


@pytest.mark.parametrize(
    "metrics, message",
    [
        pytest.param(
            ["engine:8000"],
            "--engine-metrics: 'engine:8000' is no address; write http://host:port/metrics",
            id="no http",
        ),
        pytest.param(
            ["http:///metrics"],
            "--engine-metrics: 'http:///metrics' is no address; write http://host:port/metrics",
            id="no host",
        ),
        pytest.param(
            ["http://a:80000/metrics"],
            "--engine-metrics: 'http://a:80000/metrics' is no address: Port out of range 0-65535; write "
            "http://host:port/metrics",
            id="no such port",
        ),
        pytest.param(
            ["http://a/metrics", "http://b/metrics", "http://a/metrics"],
            "--engine-metrics: 'http://a/metrics' is given twice; name each engine once",
            id="twice",
        ),
        pytest.param(
            ["http://a/metrics?engine=1", "http://a/metrics?engine=2"],
            "--engine-metrics: 'http://a/metrics?engine=1' and another would both be called 'a/metrics'; "
            "give them other paths",
            id="one name",
        ),
    ],
)
def test_pages_that_cannot_be_told_apart_or_reached_are_refused(metrics: list[str], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        targets("http://gateway", metrics)
    assert str(refused.value) == message


async def test_a_sidecar_shows_every_engine_behind_a_gateway_though_one_of_them_hangs(tmp_path: Path) -> None:
    async with (
        serving(Engine()) as one,
        serving(Engine(version="0.33.0")) as two,
        serving(Engine(metrics_wait=9)) as hung,
    ):
        flags = [word for engine in (one, two, hung) for word in ("--engine-metrics", f"{engine.url}/metrics")]
        async with sidecar(tmp_path, one.url, *flags) as running:
            for engine, up in ((one, 1), (two, 1), (hung, 0)):
                await running.shows(f"llm_engine_up{{127.0.0.1:{engine.port}}}", up)
            timeouts = f"llm_engine_scrape_errors_total{{127.0.0.1:{hung.port},timeout}}"
            before = await running.samples()
            for _ in range(10):
                assert await running.status("/metrics") == 200
            shown = await running.samples()
            assert shown[timeouts] - before[timeouts] < 10  # one each, if a page waited for the scrape that hangs
            assert shown[f"llm_engine_info{{127.0.0.1:{two.port},vllm,0.33.0}}"] == 1


def test_a_sidecar_refuses_a_page_without_address(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sidecar", "--upstream", "http://127.0.0.1:1", "--engine-metrics", "engine:8000"]) == 2
    assert capsys.readouterr().err == (
        "vllm-slo: --engine-metrics: 'engine:8000' is no address; write http://host:port/metrics\n"
    )
