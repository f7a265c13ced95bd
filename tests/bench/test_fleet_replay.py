"""The requests of the replay have the samples of a page, as Prometheus reads them."""

import time
from http.client import HTTPConnection
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import pytest

from compose.programs.tools import find_tools
from exporters.analysis.prometheus_api import Prometheus
from tests.bench.fleet_replay import Sidecar
from tests.support.prometheus_blocks import HOUR, SCRAPE
from tests.support.prometheus_server import prometheus_server
from tests.support.remote_write import write

PAGE = """\
# TYPE up_total counter
up_total{engine="10.0.0.1:8000",outcome="ok"} 30
# TYPE open gauge
open{engine="10.0.0.1:8000"} 7.0
"""


@pytest.mark.slow
def test_prometheus_reads_the_samples_of_each_scrape_and_counters_grow(tmp_path: Path) -> None:
    sidecar = Sidecar(PAGE, "10.0.0.1:8000", "a", "cluster-1", Random(1), 4)  # noqa: S311 - reproducible
    begin = int(time.time()) - HOUR
    with prometheus_server(find_tools(), tmp_path, {}, "--web.enable-remote-write-receiver") as (_, url):
        connection = HTTPConnection(urlsplit(url).netloc)
        for minute in (begin, begin + 4 * SCRAPE):
            count, body = sidecar.scrapes(range(minute, minute + 4 * SCRAPE, SCRAPE))
            write(connection, body)
        connection.close()
        assert count == 8
        server, end = Prometheus(url), begin + 7 * SCRAPE
        (gauge,) = server.query(f"count_over_time(open[1h] @ {end})")
        (growth,) = server.query(f'increase(up_total{{outcome="ok"}}[2m] @ {end}) > 0')
    assert gauge.value == 8
    own = {"cluster": "cluster-1", "engine": "a:8000", "instance": "a:9464", "job": "vllm-slo-sidecar"}
    assert growth.labels == {"outcome": "ok", **own}
