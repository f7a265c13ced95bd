"""Exceptions in the periodic tasks of the exporter, and the task that makes the counts final."""

import asyncio
import ssl
from functools import partial

import msgspec
import pytest
from aiohttp import ClientSession

from exporters.configuration.otlp_endpoints import receiver
from exporters.engines.group import EngineGroup
from exporters.engines.scrape_targets import targets
from exporters.engines.scraper import Scraper
from exporters.processes import child
from exporters.records.messages import Batch, Hello, Snapshot
from exporters.sidecar import exporter as exporter_module
from exporters.sidecar.exporter import Exporter, _count_last_requests
from exporters.sidecar.ingest.receiver import RecordReceiver
from tests.support.child_configs import exporter_config
from tests.support.openmetrics import whole
from tests.support.sample_records import finished
from tests.support.waiting import until


@pytest.fixture
def exporter() -> Exporter:
    return Exporter(exporter_config())


@pytest.mark.parametrize(
    "owner, name, task",
    [(Scraper, "scrape", "scraping an engine"), (RecordReceiver, "check_timeouts", "checking timeouts")],
)
async def test_an_exception_in_a_periodic_task_is_counted_and_the_task_goes_on(
    exporter: Exporter,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    owner: type,
    name: str,
    task: str,
) -> None:
    def fail(*_: object) -> None:
        raise LookupError("a fault")

    monkeypatch.setattr(child, "RESTART_SECONDS", 0.0)
    monkeypatch.setattr(exporter_module, "TIMEOUT_CHECK_SECONDS", 0.0)
    monkeypatch.setattr(owner, name, fail)
    tasks = [asyncio.ensure_future(each) for each in exporter.periodic_tasks()]
    await until(lambda: exporter.task_errors.count > 2)
    for each in tasks:
        each.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    (message,) = [each for each in caplog.messages if "the metrics of engine" not in each]  # there is no engine
    assert message.startswith(f"{task} failed and continues: LookupError at {__file__}:")
    exporter.request_metrics.snapshot("relay-0", Snapshot([], 0.0, 0, draining=False, task_errors=7))
    (family,) = [each for each in whole(exporter.collect()) if each.name == "llm_sidecar_task_errors"]
    counts = {sample.labels["process"]: sample.value for sample in family.samples}
    assert counts == {"exporter": exporter.task_errors.count, "relay-0": 7}


async def test_an_exception_in_one_scraper_does_not_stop_those_of_other_engines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(child, "RESTART_SECONDS", 0.0)
    scraped: list[str] = []

    async def scrape(scraper: Scraper, _session: ClientSession) -> None:
        scraped.append(scraper.state.name)
        if scraper.state.name == "a":
            raise LookupError("a fault")

    monkeypatch.setattr(Scraper, "scrape", scrape)
    group = EngineGroup(
        targets("http://gateway", ["http://a/metrics", "http://b/metrics"]),
        0.001,
        lambda _models: None,
        ssl.create_default_context(),
    )
    running = asyncio.ensure_future(group.run(partial(child.TaskErrors().keep_running, "scraping an engine")))
    await until(lambda: min(scraped.count("a"), scraped.count("b")) > 2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def requests(exporter: Exporter) -> float:
    (family,) = [each for each in whole(exporter.collect()) if each.name == "llm_requests"]
    return sum(sample.value for sample in family.samples)


async def test_a_request_that_waits_for_its_span_is_counted_before_the_counts_are_final() -> None:
    config = exporter_config(engine_spans=(receiver("http://127.0.0.1:4318"),))
    exporter = Exporter(msgspec.structs.replace(config, drain_began_at=1.0, relays_exited_at=8.5))
    exporter.record_receiver.hello(Hello("relay-0", "a"))
    record = finished(request_class="siso", tenant="other", span_id="0123456789abcdef")
    exporter.record_receiver.receive("a", Batch(1, [record]))
    task = asyncio.create_task(_count_last_requests(exporter))
    await asyncio.sleep(0)
    assert (exporter.drain.counts_are_final, requests(exporter)) == (False, 0)  # the last relay is still connected
    exporter.record_receiver.disconnected("relay-0")
    await task
    assert (exporter.drain.counts_are_final, requests(exporter)) == (True, 1)
    assert await exporter.drain.request() == 7.5
    assert exporter.otlp_receiver is not None
    await exporter.otlp_receiver.close()
