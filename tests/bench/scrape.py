"""The effect of scraping many series on open streams."""

import contextlib
import gzip
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from tests.bench.generators import CannotMeasureError, Generators
from tests.bench.measures import Effort, log, notes, remember, streams
from tests.bench.proxies import OURS, Proxy, Running, sidecar
from tests.bench.results import Quantity, Result

# About 50,000 series.
CLASSES, TENANTS, MODELS = 11, 20, 3
EVERY = 2.0
"""Seconds between scrapes."""
AS_PROMETHEUS = {"accept": "application/openmetrics-text;version=1.0.0", "accept-encoding": "gzip"}


def crowded() -> Proxy:
    """The sidecar with an SLO file of many classes and tenants."""
    names = ", ".join(f"c{number}" for number in range(CLASSES))
    slos = (
        "version: 1\nperiod: 30d\n"
        f"tenants: {{header: x-tenant, allow: [{', '.join(f't{number}' for number in range(TENANTS))}]}}\n"
        f"classes: [{', '.join(f'{{name: c{number}}}' for number in range(CLASSES))}]\n"
        "slos:\n"
        f"  - {{name: ttft, classes: [{names}], signal: ttft, threshold: 5s, objective: 95%}}\n"
        f"  - {{name: availability, classes: [{names}], signal: availability, objective: 99%}}\n"
    )
    # In addition to the engine's own model.
    models = [f"model-{number}" for number in range(1, MODELS)]
    return sidecar(*(word for model in models for word in ("--model", model)), slos=slos)


def measure(effort: Effort, peer: Running, ours: Running, generators: Generators) -> Result:
    """Measure in turn: the peer, the sidecar, the sidecar while it is scraped."""
    still, scraped = f"{OURS}, not scraped", f"{OURS}, scraped"
    shown = {
        "chunk delay p99": ("delay", "p99"),
        "chunk delay max": ("delay", "max"),
        "inter-chunk p99": ("gap", "p99"),
    }
    log(f"scrape: {effort.streams} streams, with and without scrapes of many series")
    load = streams(effort, effort.streams, tick=False)
    values: dict[str, dict[str, list[float]]] = {name: {peer.name: [], still: [], scraped: []} for name in shown}
    took: list[float] = []
    weak: Counter[str] = Counter()
    for number in range(1, effort.rounds + 1):
        for column, proxy in {peer.name: peer, still: ours, scraped: ours}.items():
            with scraping(ours.metrics_port, took) if column == scraped else contextlib.nullcontext():
                reading = generators.measure(load, proxy.port, proxy.pid)
            for name, (what, which) in shown.items():
                values[name][column].append(reading.milliseconds(what, which))
            summary = ", ".join(f"{name} {readings[column][-1]:.3g} ms" for name, readings in values.items())
            log(f"  round {number}, {column}: {summary}{remember(weak, column, load, reading)}")
    delays = values["chunk delay p99"]
    more = [one - other for one, other in zip(delays[scraped], delays[still], strict=True)]
    quantities = [Quantity(f"{name}, ms", readings) for name, readings in values.items()]
    quantities.append(Quantity("chunk delay p99 added by scrapes, ms", {scraped: more}))
    quantities.append(Quantity("scrape duration, s", {scraped: took}))
    series = sum(not line.startswith(b"#") for line in exposition(ours.metrics_port).splitlines())
    title = f"scrape: {series:,} series scraped every {EVERY:.0f} s; {effort.streams} streams, one chunk every 20 ms"
    return Result(title, quantities, notes(weak, effort.rounds))


def exposition(port: int) -> bytes:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=AS_PROMETHEUS)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return gzip.decompress(response.read())
    except OSError as error:
        raise CannotMeasureError(f"{OURS}: no response from /metrics: {error}") from error


@contextlib.contextmanager
def scraping(port: int, took: list[float]) -> Iterator[None]:
    """Scrape /metrics periodically in this context."""
    done = threading.Event()

    def scrape() -> None:
        while not done.wait(EVERY):
            began = time.monotonic()
            exposition(port)
            took.append(time.monotonic() - began)

    with ThreadPoolExecutor(1) as pool:
        scraper = pool.submit(scrape)
        try:
            yield
        finally:
            done.set()
        scraper.result()
