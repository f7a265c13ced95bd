"""A rolling update of the SLO file: sidecars with the old and the new file behind one Prometheus with the new rules."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from alerts.rule_file import render
from compose.programs.tools import Tools
from exporters.analysis.prometheus_api import Prometheus, Sample
from exporters.vocabulary.slo_file import loads
from tests.support.fake_engine import serving, streaming_engine
from tests.support.ports import free_port
from tests.support.prometheus_process import prometheus
from tests.support.sidecar_process import Running, sidecar
from tests.support.waiting import until

OLD = """
version: 1
period: 12h
scrape_interval: 1s
classes: [{name: short, max_tokens: "<=10"}, {name: long}]
slos:
  - {name: e2e, classes: [short, long], signal: e2e, threshold: 61ms, objective: 95%}
"""
NEW = OLD.replace("name: long", "name: chat").replace("[short, long]", "[short, chat]").replace("61ms", "67ms")
"""A renamed class and another threshold; a stream takes at least 100 ms, so all are bad by both files."""

BOTH_NAMES = NEW.replace("{name: chat}", "{name: chat}, {name: long}").replace("chat]", "chat, long]")
"""The class under its new and its old name."""

REQUESTS = 6


@dataclass
class Update:
    """Both sidecars, and the Prometheus that scrapes them."""

    old: Running
    new: Running
    series: Prometheus

    async def streams(self) -> None:
        """One stream at each sidecar."""
        await asyncio.gather(self.old.stream(), self.new.stream())

    async def shows(self, expression: str, is_expected: Callable[[list[float]], bool]) -> None:
        """Send streams until the values of a query are as expected."""

        async def shown() -> bool:
            await self.streams()
            return is_expected([each.value for each in await self.query(expression)])

        await until(shown)

    async def query(self, expression: str) -> list[Sample]:
        return await asyncio.to_thread(self.series.query, expression)


@contextlib.asynccontextmanager
async def update(tools: Tools, folder: Path, new_file: str = NEW) -> AsyncIterator[Update]:
    """An engine with a sidecar of each file, and the rules of the new file."""
    ports = [free_port(), free_port()]
    rules = folder / "rules.yaml"
    rules.write_text(render(loads(new_file)))
    for name in ("old", "new"):
        (folder / name).mkdir()
    async with (
        serving(streaming_engine()) as engine,
        prometheus(tools.prometheus, folder, *ports, job="vllm-slo-sidecar", rules=rules) as url,
        sidecar(folder / "old", engine.url, slo_file=OLD, metrics_port=ports[0]) as old,
        sidecar(folder / "new", engine.url, slo_file=new_file, metrics_port=ports[1]) as new,
    ):
        yield Update(old, new, Prometheus(url))


@pytest.mark.parametrize(
    "new_file, burns",
    [
        pytest.param(NEW, False, marks=pytest.mark.long, id="only the new name"),
        pytest.param(BOTH_NAMES, True, marks=pytest.mark.long, id="both names"),
    ],
)
async def test_no_event_is_lost_and_the_old_name_of_a_class_has_a_burn_rate_if_the_new_file_has_it_too(
    tools: Tools, tmp_path: Path, new_file: str, *, burns: bool
) -> None:
    async with update(tools, tmp_path, new_file) as both:
        burning = 'llm_slo:error_budget:burn_rate{slo="e2e", class="%s"} > 0'
        await both.shows(burning % "chat", any)
        await both.shows('llm_slo:bad_events:ratio{slo="e2e", class="long"} > 0', any)
        if burns:
            await both.shows(burning % "long", any)
        assert bool(await both.query(burning % "long")) == burns
        requests = len(both.old.lines()) + len(both.new.lines())

        async def counted() -> bool:
            (events,) = await both.query('sum(llm_slo_bad_events_total{slo="e2e"})')
            return events.value == len(both.old.lines()) + len(both.new.lines()) >= requests

        await until(counted)


@pytest.mark.long
async def test_a_quantile_over_both_is_at_most_one_bucket_off(tools: Tools, tmp_path: Path) -> None:
    async with update(tools, tmp_path) as both:
        for _ in range(REQUESTS):
            await both.streams()
        count = "sum(llm_request_duration_seconds_count)"

        async def counted() -> bool:
            return [each.value for each in await both.query(count)] == [2 * REQUESTS]

        await until(counted)
        times = sorted(line["e2e_ms"] / 1000 for each in (both.old, both.new) for line in each.lines())
        (median,) = await both.query("histogram_quantile(0.5, sum by (le) (llm_request_duration_seconds_bucket))")
        assert times[REQUESTS - 1] / 1.2 <= median.value <= times[REQUESTS] * 1.2
