"""The effect of scraping many series on open streams."""

import contextlib
import gzip
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from exporters.text.errors import UsageError
from tests.bench import measures
from tests.bench.generators import Generators
from tests.bench.measures import Effort, Measure, percentile, streams
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
    shows = {
        "chunk delay p99, ms": percentile("delay", "p99"),
        "chunk delay max, ms": percentile("delay", "max"),
        "inter-chunk p99, ms": percentile("gap", "p99"),
    }
    took: list[float] = []
    result = measures.measure(
        Measure(f"scrape: {effort.streams} streams", streams(effort, effort.streams, tick=False), shows),
        effort,
        [peer, replace(ours, name=still), replace(ours, name=scraped)],
        generators,
        lambda name: scraping(ours.metrics_port, took) if name == scraped else contextlib.nullcontext(),
    )
    delays = result.quantities[0].values
    added = [one - other for one, other in zip(delays[scraped], delays[still], strict=True)]
    result.quantities.append(Quantity("chunk delay p99 added by scrapes, ms", {scraped: added}))
    result.quantities.append(Quantity("scrape duration, s", {scraped: took}))
    series = sum(not line.startswith(b"#") for line in exposition(ours.metrics_port).splitlines())
    title = f"scrape: {series:,} series scraped every {EVERY:.0f} s; {effort.streams} streams, one chunk every 20 ms"
    return replace(result, title=title)


def exposition(port: int) -> bytes:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=AS_PROMETHEUS)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return gzip.decompress(response.read())
    except OSError as error:
        raise UsageError(f"{OURS}: no response from /metrics: {error}") from error


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
