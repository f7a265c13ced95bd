"""Hours of scrapes of a fleet, sent to Prometheus and to VictoriaMetrics by the same remote write requests.

Each request has one or several scrapes of a sidecar. It goes to both, one after the other, so that other work on the
machine disturbs both alike. Another request has the recorded series that dashboards read, once a minute. Then both
load every dashboard.
"""

import json
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from random import Random
from statistics import median
from urllib.parse import urlsplit
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from compose.programs.tools import Tools
from exporters.vocabulary.signals import Label
from exporters.vocabulary.slo_file import SHIPPED, load
from tests.bench import machine
from tests.bench.dashboards import Measured, label_sets, values
from tests.bench.first_load import Revision, read_revision
from tests.bench.fleet_pages import GROWING, PERIOD
from tests.support.prometheus_blocks import HOUR, SCRAPE
from tests.support.prometheus_server import prometheus_server
from tests.support.promtool import ROOT
from tests.support.remote_write import WriteRequest, write
from tests.support.victoriametrics import victoria_metrics

CLUSTERS = 10
RECORDED_EVERY = 60
ROUNDS = 3
"""The fastest run of each query counts."""


@dataclass
class Store:
    """A server that receives the samples, and what it has needed."""

    name: str
    pid: int
    url: str
    data: Path
    waited: float = 0.0
    resident: list[float] = field(default_factory=list)
    """MB once a minute of the replay."""

    def __post_init__(self) -> None:
        self._connection = HTTPConnection(urlsplit(self.url).netloc)

    def receive(self, body: bytes) -> None:
        began = time.perf_counter()
        write(self._connection, body)
        self.waited += time.perf_counter() - began

    @property
    def disk(self) -> int:
        """Bytes of all files."""
        return sum(each.stat().st_size for each in self.data.rglob("*") if each.is_file())

    def report(self, samples: int, cpu: float) -> str:
        peak, now = machine.resident_mb(self.pid, "VmHWM"), self.resident[len(self.resident) // 2 :]
        return (
            f"{self.name}: {cpu * 1e6 / samples:.2f} CPU s per million samples, "
            f"{samples / self.waited:,.0f} samples/s by one connection; resident {median(now):,.0f} MB in the second "
            f"half, at most {peak:,.0f} MB; disk {self.disk / 1e6:,.0f} MB, {self.disk / samples:.2f} bytes a sample"
        )


class Sidecar:
    """The page of a sidecar whose counters grow unevenly; counts are whole numbers, so buckets stay in order."""

    def __init__(self, page: str, engine: str, name: str, cluster: str, random: Random, batch: int) -> None:
        families = list(text_string_to_metric_families(page))
        every = [(each, family.type in GROWING) for family in families for each in family.samples]
        own = {Label.INSTANCE: f"{name}:9464", "job": "vllm-slo-sidecar", "cluster": cluster}
        self._request = WriteRequest(
            ({"__name__": each.name, **_of_engine(each.labels, engine, f"{name}:8000"), **own} for each, _ in every),
            batch,
        )
        self._first = [(float(each.value), grows, float(each.value).is_integer()) for each, grows in every]
        self._random, self._grown = random, 1.0

    def scrapes(self, times: Sequence[int]) -> tuple[int, bytes]:
        """The number of samples, and the request."""
        return len(times) * len(self._first), self._request.at((when, self._scrape()) for when in times)

    def _scrape(self) -> list[float]:
        self._grown += 2 * self._random.random() * SCRAPE / PERIOD
        grown = self._grown
        return [
            value if not grows else value * grown // 1 if whole else value * grown
            for value, grows, whole in self._first
        ]


class RecordedSeries:
    """The recorded series that dashboards read, with random values."""

    def __init__(self, revision: Revision, value_of: Mapping[str, tuple[str, ...]], random: Random) -> None:
        names = sorted(revision.recorded & revision.ages(HOUR).keys())
        series = [{"__name__": name, **each} for name in names for each in label_sets(revision, name, value_of)]
        self._request, self._count, self._random = WriteRequest(series), len(series), random

    def scrapes(self, times: Sequence[int]) -> tuple[int, bytes]:
        """One sample of each."""
        return self._count, self._request.at([(times[0], [self._random.random() for _ in range(self._count)])])


def compare(page: str, engine: str, names: Iterable[str], tools: Tools, hours: float, batch: int) -> Iterator[str]:
    """The lines of the report."""
    random, named = Random(1), tuple(names)  # noqa: S311 - reproducible
    classes = load(SHIPPED).class_names
    revision = read_revision(ROOT, {"class": classes, "active_class": classes})
    value_of = {**values(len(named), 0), Label.CLASS: classes, Label.MODEL: ("tiny",)}
    value_of[Label.INSTANCE] = tuple(f"{name}:9464" for name in named)
    recorded = RecordedSeries(revision, value_of, random)
    sidecars: list[Sidecar | RecordedSeries] = [
        Sidecar(page, engine, name, f"cluster-{number % CLUSTERS}", random, batch) for number, name in enumerate(named)
    ]
    end = int(time.time()) // RECORDED_EVERY * RECORDED_EVERY
    begin = end - round(hours * HOUR) // RECORDED_EVERY * RECORDED_EVERY
    with ExitStack() as stack:
        stores = list(_stores(stack, tools))
        cpu = [machine.cpu_seconds(each.pid) for each in stores]
        samples = 0
        for when in range(begin, end, batch * SCRAPE):
            minutely = when % RECORDED_EVERY == 0
            for target in (*sidecars, *[recorded] * minutely):
                count, body = target.scrapes(range(when, when + batch * SCRAPE, SCRAPE))
                samples += count
                for store in stores:
                    store.receive(body)
            for store in stores if minutely else ():
                store.resident.append(machine.resident_mb(store.pid, "VmRSS"))
        with urlopen(f"{stores[1].url}/internal/force_flush"):
            pass
        spent = [machine.cpu_seconds(each.pid) - before for each, before in zip(stores, cpu, strict=True)]
        yield f"{len(named)} sidecars in {CLUSTERS} clusters, {hours:g} h every {SCRAPE} s, {batch} in a request"
        yield f"{samples:,} samples"
        for store, seconds in zip(stores, spent, strict=True):
            yield store.report(samples, seconds)
        for block in stores[0].data.glob("*/meta.json"):
            stored = json.loads(block.read_text())["stats"]["numSamples"]
            size = sum(each.stat().st_size for each in block.parent.rglob("*") if each.is_file())
            yield f"{stores[0].name}: a block of {stored:,} samples, {size / stored:.2f} bytes each"
        loads = [Measured(each.name, each.url, revision.loads) for each in stores]
        for title in (*revision.loads,) * ROUNDS:
            for measured in loads:
                measured.open(title, end)
        for store, measured in zip(stores, loads, strict=True):
            measured.report(0)
            yield f"{store.name}: resident after all queries at most {machine.resident_mb(store.pid, 'VmHWM'):,.0f} MB"


def _stores(stack: ExitStack, tools: Tools) -> Iterator[Store]:
    """Prometheus and VictoriaMetrics, which caches no results of queries."""
    folders = [Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(2)]
    receiver = prometheus_server(tools, folders[0], {}, "--web.enable-remote-write-receiver")
    yield Store("Prometheus", *stack.enter_context(receiver), folders[0] / "data")
    victoria = stack.enter_context(victoria_metrics(folders[1], "-search.disableCache"))
    yield Store("VictoriaMetrics", *victoria, folders[1] / "vm-data")


def _of_engine(labels: Mapping[str, str], engine: str, name: str) -> dict[str, str]:
    return {label: value.replace(engine, name) for label, value in labels.items()}
