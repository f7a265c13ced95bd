"""`python -m tests.bench.fleet`: what one real Prometheus needs to scrape many sidecars and evaluate the shipped rules.

A real sidecar in front of a simulated engine serves a few requests of each class. Its page is then served once for each
simulated sidecar, with another engine name and with counters that grow, by one process. `--replay` sends such pages to
Prometheus and to VictoriaMetrics instead, as fast as both store them.
"""

import argparse
import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from alerts.rule_file import render
from compose.lab.ports import HOST
from compose.programs.tools import Tools
from exporters.analysis.prometheus_api import Prometheus, PrometheusError
from exporters.vocabulary import slo_file
from tests.bench import machine
from tests.bench.fleet_pages import FleetPages, serving
from tests.bench.fleet_replay import compare
from tests.support.ports import free_port
from tests.support.prometheus_blocks import tools_in
from tests.support.prometheus_server import prometheus_server
from tests.support.promtool import ROOT
from tests.support.sidecar_process import sidecar
from tests.support.simulator import simulator
from tests.support.waiting import wait_until

SLOS = ROOT / "alerts/slos.yaml"
SCRAPE = 15
WARM_UP = 120
"""Seconds that are not measured, in which Prometheus creates the series."""


async def page_of_a_sidecar() -> tuple[str, str]:
    """The name of the engine, and the text of /metrics after requests of each class, with and without a stream."""
    with tempfile.TemporaryDirectory() as name:
        async with simulator() as engine, sidecar(Path(name), engine, slo_file=SLOS.read_text()) as running:
            for each in slo_file.load(SLOS).classes:
                for stream in (True, False):
                    body = {
                        "model": "tiny",
                        "stream": stream,
                        "max_tokens": 20,
                        "messages": [{"role": "user", "content": "hello"}],
                    }
                    headers = {"x-request-class": each.name}
                    async with running.session.post(running.completions, json=body, headers=headers) as response:
                        assert response.status == 200, await response.text()
                        await response.read()
            await running.fetch("/metrics")  # which has first counts at 0
            _, text = await running.fetch("/metrics")
            return urlsplit(engine).netloc, text


@contextmanager
def prometheus(tools: Tools, folder: Path, pages: FleetPages, port: int) -> Iterator[tuple[int, str]]:
    """The process id and the URL of a Prometheus that scrapes every page and evaluates the shipped rules."""
    (folder / "rules.yaml").write_text(render(slo_file.load(SLOS)))
    targets = [
        {"targets": [f"{HOST}:{port}"], "labels": {"instance": f"{name}:9464", "__metrics_path__": f"/{name}"}}
        for name in pages.names
    ]
    config = {
        "global": {"scrape_interval": f"{SCRAPE}s", "evaluation_interval": f"{SCRAPE}s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [{"job_name": "vllm-slo-sidecar", "static_configs": targets}],
    }
    with prometheus_server(tools, folder, config) as running:
        yield running


def measure(pages: FleetPages, tools: Tools, minutes: float) -> Iterator[str]:
    """The lines of the report."""
    port = free_port()
    with (
        tempfile.TemporaryDirectory() as name,
        serving(pages, port),
        prometheus(tools, Path(name), pages, port) as (pid, url),
    ):
        server = Prometheus(url, timeout=60.0)

        def value(query: str) -> float:
            (sample,) = server.query(query)
            return sample.value

        up = f"sum(up) == {len(pages.names)}"
        assert wait_until(lambda: _answers(server, up)), (Path(name) / "log").read_text()
        time.sleep(WARM_UP)
        cpu, began, totals = machine.cpu_seconds(pid), time.monotonic(), _totals(url)
        time.sleep(minutes * 60)
        seconds = time.monotonic() - began
        cpu = machine.cpu_seconds(pid) - cpu
        appended, evaluating = (now - before for now, before in zip(_totals(url), totals, strict=True))
        window = f"[{seconds:.0f}s]"
        version = server.get("/api/v1/status/buildinfo", {})["version"]
        recorded = value("count({__name__=~'.+:.+'})")
        rules = sum(len(group["rules"]) for group in server.get("/api/v1/rules", {})["groups"])
        missed = value(f"sum(count_over_time(up{window}) - sum_over_time(up{window}))")
        firing = sorted({each.labels["alertname"] for each in server.alerts() if each.state == "firing"})
        head = server.get("/api/v1/status/tsdb", {})["headStats"]["numSeries"]
        yield f"Prometheus {version}: {len(pages.names)} sidecars every {SCRAPE} s, {rules} rules, {seconds:.0f} s"
        series = value("max(scrape_samples_post_metric_relabeling)")
        yield f"series of a sidecar: {series:,.0f}; {pages.moving:,} of them change in each scrape"
        yield f"series of all sidecars: {value('sum(scrape_samples_post_metric_relabeling)'):,.0f}"
        yield f"series recorded by the rules: {recorded:,.0f}; series in the head: {head:,}"
        yield f"samples appended: {appended / seconds:,.0f} per second"
        yield f"evaluation of the rules: {evaluating * 60 / seconds:.2f} s per minute"
        yield f"CPU of Prometheus: {cpu / seconds:.3f} cores"
        yield f"memory of Prometheus: {machine.memory_mb(pid):,.0f} MB (PSS), after {seconds + WARM_UP:.0f} s"
        yield f"failed scrapes: {missed:.0f}; alerts that fire: {', '.join(firing)}"


def _totals(url: str) -> tuple[float, float]:
    """The appended samples, and the seconds of evaluated rules, since the start of the Prometheus."""
    return (
        machine.page_sum(url, "prometheus_tsdb_head_samples_appended_total.*"),
        machine.page_sum(url, "prometheus_rule_evaluation_duration_seconds_sum"),
    )


def cost_by_family(page: str) -> list[tuple[str, int]]:
    """The number of series of each family of a page, the largest first."""
    series: Counter[str] = Counter()
    family = ""
    for line in page.splitlines():
        if line.startswith("# TYPE "):
            family = line.split(" ")[2]
        elif not line.startswith("#"):
            series[family] += 1
    return series.most_common()


def _answers(server: Prometheus, query: str) -> bool:
    try:
        return bool(server.query(query))
    except PrometheusError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sidecars", type=int, default=100, help="0: print only what each family costs")
    parser.add_argument(
        "--minutes", type=float, default=6, help="measured, after a warm-up of 2 (default: %(default)s)"
    )
    parser.add_argument("--replay", type=float, metavar="HOURS", help="compare VictoriaMetrics, over so many hours")
    parser.add_argument("--batch", type=int, default=1, choices=(1, 2, 4), help="with --replay: scrapes in a request")
    parser.add_argument("--tools", type=Path, help="folder of prometheus and promtool (default: the installed ones)")
    options = parser.parse_args()
    engine, page = asyncio.run(page_of_a_sidecar())
    costs = cost_by_family(page)
    print(f"{sum(series for _, series in costs):,} series of a sidecar")
    for family, series in costs:
        print(f"{series:6} {family}")
    if not options.sidecars:
        return
    names = tuple(f"sidecar-{number}" for number in range(options.sidecars))
    tools = tools_in(options.tools)
    replayed = options.replay and compare(page, engine, names, tools, options.replay, options.batch)
    for line in replayed or measure(FleetPages(page, engine, names), tools, options.minutes):
        print(line, flush=True)


if __name__ == "__main__":
    main()
