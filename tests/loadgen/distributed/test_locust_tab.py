"""The tab of Locust's web page, over HTTP, from a real Locust."""

import json
import math
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from loadgen.results.record import read_records
from loadgen.results.summary import summarise_class
from tests.loadgen.load_process import scripted_server, write_scenario
from tests.loadgen.locust_process import cluster, locust
from tests.support.ports import free_port
from tests.support.waiting import HANG, wait_until

pytestmark = pytest.mark.slow


def read(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=HANG) as response:
            text: str = response.read().decode()
            return text
    except OSError:
        return ""  # not listening yet


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.long)])
def test_the_tab_has_the_figures_of_each_class(tmp_path: Path, workers: int) -> None:
    path, out = write_scenario(tmp_path, "siso", "refuse", rate=40, duration="1s"), tmp_path / "out"
    port = free_port()
    page = f"http://127.0.0.1:{port}"
    flags = ("--autostart", "--users", "1", "--web-host", "127.0.0.1", "--web-port", str(port))
    pages: list[dict[str, Any]] = []

    def ended() -> bool:
        if text := read(f"{page}/stats/requests"):
            pages.append(json.loads(text))
        return any(out.glob("*/summary.json"))

    with scripted_server() as target, ExitStack() as stack:
        variables = {"scenario": str(path), "out": str(out), "target": target}
        if workers:
            stack.enter_context(cluster(tmp_path / "log", variables, *flags, of_workers=[{}] * workers))
        else:
            stack.enter_context(locust(variables, *flags))
        assert wait_until(ended)
        seen = len(pages)
        assert wait_until(lambda: ended() and pages[-1]["state"] == "stopped" and len(pages) > seen)
        html = read(page)

    (folder,) = out.iterdir()
    records = read_records(folder)
    (table,) = pages[-1]["extended_stats"]
    assert table["key"] == "slo"
    rows = {row["class"]: row for row in table["data"]}
    assert list(rows) == ["siso", "refuse", "all"]
    for name, row in rows.items():
        exact = summarise_class(name, [record for record in records if name in {"all", record.request_class}])
        assert (row["offered"], row["open"], row["ok"]) == (exact.offered, 0, exact.ok)
        assert row["failed"] == exact.offered - exact.ok
        assert row["goodput"] == ("-" if exact.goodput is None else round(exact.goodput * 100, 2))
        for key, value in (("ttft50", exact.ttft.p50), ("ttft99", exact.ttft.p99), ("end50", exact.e2e.p50)):
            assert value is not None
            # within 0.1 %, and rounded to 0.1 ms
            assert row[key] == "∞" if value == math.inf else abs(row[key] - value * 1000) <= value + 0.051
    assert '"extended_tabs": [{"key": "slo", "title": "SLO"}]' in html
