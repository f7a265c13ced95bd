"""Several engines: their URLs and names, and that a stalled engine does not delay the others."""

import asyncio
import time
from pathlib import Path

import pytest

from exporters.engines.changes.config_changes import revision
from exporters.engines.group import EngineGroup
from exporters.engines.normalisation import normalise
from exporters.engines.scrape_targets import Target, targets
from exporters.engines.scraper import Scraper
from tests.exporters.engines.scraping import HEAD, PAGE, TLS, CountingEngine, raw_server
from tests.support.command_line import CommandLine
from tests.support.fake_engine import Engine, serving
from tests.support.sidecar_process import sidecar
from tests.support.waiting import HANG, until

ADMIN = "s3cret-s3cret-s3cret-s3cret-s3cret"
SEVERAL = "http://a/metrics", "http://b/metrics"


def group_of(*metrics: str, sees_responses: bool = False) -> EngineGroup:
    """The engines behind a gateway, which are not scraped."""
    return EngineGroup(targets("http://gateway", metrics), 1.0, lambda _: None, TLS, sees_responses=sees_responses)


async def test_an_engine_is_scraped_once_per_interval_independent_of_reads() -> None:
    interval, reads = 0.1, 0
    engine = CountingEngine()
    async with serving(engine):
        group = EngineGroup(targets(engine.url, ()), interval, lambda _: None, TLS)
        began = time.monotonic()
        running = asyncio.ensure_future(group.run())
        while engine.scrapes < 4 or reads < 100:
            list(group.collect())
            reads += 1
            await asyncio.sleep(0.001)
        running.cancel()
    assert engine.scrapes <= 1 + (time.monotonic() - began) / interval


async def test_a_stalled_engine_does_not_delay_scrapes_of_others_and_reads() -> None:
    engine = CountingEngine()
    async with raw_server(HEAD + b"\r\n" + PAGE, hangs=True) as hanging, serving(engine):
        group = EngineGroup([hanging.target, *targets(engine.url, ())], 0.05, lambda _: None, TLS)
        group._scrapers[0]._timeout = HANG
        running = asyncio.ensure_future(group.run())
        while hanging.requests < 1 or engine.scrapes < 5:
            await asyncio.sleep(0.01)
            list(group.collect())
        running.cancel()
    assert sum(group.states[0].errors.values()) == 0  # its first scrape is still waiting
    assert [state.up for state in group.states] == [False, True]


async def test_the_revision_of_several_engines_is_a_hash_of_their_revisions() -> None:
    group = group_of(*SEVERAL)
    assert group.revision is None
    for state, block_size in zip(group.states, ("16", "32"), strict=True):
        state.watch.observe({"block_size": block_size}, None, 1.0)
    assert group.revision == revision({"a": revision({"block_size": "16"}), "b": revision({"block_size": "32"})})


@pytest.mark.parametrize(
    "engines, sees_responses",
    [pytest.param(SEVERAL, True, id="several engines"), pytest.param(SEVERAL[:1], False, id="a followed log")],
)
def test_where_no_fingerprint_is_read_the_revision_waits_for_none(
    engines: tuple[str, ...], *, sees_responses: bool
) -> None:
    group = group_of(*engines, sees_responses=sees_responses)
    for state in group.states:
        state.watch.observe({"block_size": "16"}, None, 1.0)
    assert group.revision is not None


def test_an_engine_is_named_after_its_metrics_url() -> None:
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
        ("engine:8000", "'engine:8000' is not a URL; write http://host:port/metrics"),
        ("http:///metrics", "'http:///metrics' is not a URL; write http://host:port/metrics"),
        (
            "http://a:80000/metrics",
            "'http://a:80000/metrics' is not a URL: Port out of range 0-65535; write http://host:port/metrics",
        ),
        (
            "http://a/metrics http://b/metrics http://a/metrics",
            "'http://a/metrics' is given twice; give each engine once",
        ),
        pytest.param(
            "http://a/metrics?engine=1 http://a/metrics?engine=2",
            "'http://a/metrics?engine=1' and 'http://a/metrics?engine=2' would both have the name 'a/metrics'; give "
            "them different paths",
        ),
    ],
)
def test_ambiguous_or_invalid_urls_are_rejected(metrics: str, message: str, cli: CommandLine) -> None:
    flags = [f"--engine-metrics={url}" for url in metrics.split()]
    assert cli.refusal("sidecar", "--upstream", "http://127.0.0.1:1", *flags) == f"--engine-metrics: {message}"


@pytest.mark.slow
async def test_a_sidecar_exposes_every_engine_behind_a_gateway_by_its_name_while_one_is_stalled(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(ADMIN)
    token.chmod(0o600)
    async with (
        serving(Engine()) as one,
        serving(Engine(version="0.33.0")) as two,
        raw_server(HEAD + b"\r\n" + PAGE, hangs=True) as hanging,
    ):
        urls = (f"{one.url}/metrics", f"{two.url}/metrics", hanging.target.metrics_url)
        flags = [f"--engine-metrics={url}" for url in urls]
        flags += [f"--engine-name={urls[0]}=vllm-0", f"--admin-token-file={token}"]
        async with sidecar(tmp_path, one.url, *flags) as running:
            names = ["vllm-0", *(target.name for target in targets(one.url, urls[1:]))]
            for name, up in zip(names, (1, 1, 0), strict=True):
                await running.shows(f"llm_engine_up{{{name}}}", up)
            timeouts = f"llm_engine_scrape_errors_total{{{names[2]},timeout}}"
            before = await running.samples()
            for _ in range(10):
                assert await running.status("/metrics") == 200
            after = await running.samples()
            assert after[timeouts] - before[timeouts] < 10  # 10 if each response waited for the stalled scrape
            await running.shows(f"llm_engine_info{{127.0.0.1:{two.port},vllm,0.33.0}}", 1)
            body = '{"set": {"max_num_seqs": "64"}, "engine": "vllm-0"}'
            status, text = await running.fetch("/admin/flip", "POST", {"Authorization": f"Bearer {ADMIN}"}, body)
            assert (status, '"vllm-0"' in text) == (200, True)


async def test_a_changed_interval_applies_from_the_next_scrape_on() -> None:
    engine = CountingEngine()
    async with serving(engine):
        (target,) = targets(engine.url, ())
        scraper = Scraper(target, 10 * HANG, lambda _: None, TLS, lambda: scraper.set_interval(0.01))
        running = asyncio.ensure_future(scraper.run())
        await until(lambda: engine.scrapes > 2)
        running.cancel()


def test_an_engine_that_is_down_is_a_trouble() -> None:
    group = group_of(*SEVERAL)
    up, down = group.states
    up.up, up.metrics, up.last_success_at = True, normalise(PAGE.decode()), 1.0
    down.failure = "connection"
    for second in (1.0, 1802.0):
        group.observe((), second)
    assert group.troubles(1805.0) == ["b is down for 3 s: it has not answered for longer than a start may take"]
