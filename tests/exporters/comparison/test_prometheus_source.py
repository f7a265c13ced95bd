"""Prometheus as the source: a real one with an hour of made samples, and servers that are none."""

import json
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from threading import Thread
from typing import Any

import pytest

from compose.cli import main
from compose.prometheus_tools import Tools
from exporters import signals
from tests.support.ports import free_port
from tests.support.prometheus_blocks import prometheus_over

EVERY = 15
CHANGE = time.time() // EVERY * EVERY - 1800.0
"""Half an hour ago, at a scrape."""

KIND = 'model="m",class="siso"'

# Growth per scrape, before and after the change: one request a second; half of them miss their SLO, then one in twenty.
COUNTERS: dict[str, tuple[float, float]] = {
    f'{signals.REQUESTS.name}{{{KIND},outcome="ok"}}': (15.0, 12.0),
    f'{signals.REQUESTS.name}{{{KIND},outcome="client_error"}}': (0.0, 3.0),
    f'{signals.SLO_EVENTS.name}{{{KIND},slo="ttft"}}': (10.0, 10.0),
    f'{signals.SLO_BAD.name}{{{KIND},slo="ttft"}}': (5.0, 0.5),
    f"{signals.GOODPUT_EVENTS.name}{{{KIND}}}": (10.0, 10.0),
    f"{signals.GOODPUT_REQUESTS.name}{{{KIND}}}": (5.0, 9.5),
    f"{signals.PROMPT_TOKENS.name}{{{KIND}}}": (1500.0, 1500.0),
    f"{signals.COMPLETION_TOKENS.name}{{{KIND}}}": (300.0, 300.0),
    f"{signals.CACHED_TOKENS.name}{{{KIND}}}": (0.0, 750.0),
    f'{signals.TTFT.bucket}{{{KIND},le="0.25"}}': (0.0, 0.0),
    f'{signals.TTFT.bucket}{{{KIND},le="0.5"}}': (0.0, 15.0),
    f'{signals.TTFT.bucket}{{{KIND},le="1.0"}}': (0.0, 15.0),
    f'{signals.TTFT.bucket}{{{KIND},le="2.0"}}': (15.0, 15.0),
    f'{signals.TTFT.bucket}{{{KIND},le="+Inf"}}': (15.0, 15.0),
}


def lines() -> Iterator[str]:
    """All of it in OpenMetrics, one sample each scrape, from an hour before now."""
    families: dict[str, list[str]] = {}

    def sample(series: str, at: float, value: float) -> None:
        families.setdefault(series.partition("{")[0], []).append(f"{series} {value} {at}\n")

    for series, growth in COUNTERS.items():
        total = 0.0
        for step in range(-120, 110):
            sample(series, CHANGE + step * EVERY, total)
            total += growth[step >= 0]
    for step in range(-120, 110):
        at = CHANGE + step * EVERY
        sample(f'{signals.IN_FLIGHT.name}{{{KIND},phase="waiting"}}', at, 2)
        sample(f'{signals.ENGINE_UP.name}{{engine="e"}}', at, float(step not in {0, 1}))
        revision = ("b" if step >= 0 else "a") * 12
        sample(f'{signals.ENGINE_CONFIG_INFO.name}{{engine="e",revision="{revision}"}}', at, 1)
        if step >= 0:
            setting = 'engine="e",setting="enable_prefix_caching",old="False",new="True"'
            sample(f"{signals.ENGINE_CONFIG_CHANGE.name}{{{setting}}}", at, CHANGE)
    return chain.from_iterable(families.values())


@pytest.fixture(scope="module")
def prometheus(tools: Tools) -> Iterator[str]:
    with prometheus_over(lines(), free_port(), tools) as url:
        yield url


def compared(capsys: pytest.CaptureFixture[str], url: str, *words: str) -> dict[str, Any]:
    assert main(["compare", "--prometheus", url, "--format", "json", *words]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


@pytest.mark.lab
def test_counters_and_histograms_give_what_they_can(prometheus: str, capsys: pytest.CaptureFixture[str]) -> None:
    report = compared(capsys, prometheus, "--around", "last")
    rows = {row["figure"]: row for row in report["rows"]}
    assert {name: row["verdict"] for name, row in rows.items()} == {
        "offered": "no difference shown",
        "SLO ttft": "better",
        "goodput": "better",
        "TTFT p50": "better",
        "TTFT p95": "better",
        "client errors": "worse",
        "tokens": "no interval",
        "cache hits": "no interval",
    }
    assert [rows[name]["after"]["value"] for name in ("offered", "SLO ttft", "tokens", "cache hits")] == pytest.approx(
        [1.0, 0.95, 120.0, 0.5], rel=0.01
    )
    waits = rows["TTFT p50"]
    assert (waits["before"]["low"], waits["before"]["high"]) == (1.0, 2.0)  # the bucket, and no narrower
    assert (waits["after"]["low"], waits["after"]["high"]) == (0.25, 0.5)
    assert waits["before"]["value"] == pytest.approx(1.5)


@pytest.mark.lab
def test_the_change_is_exact_and_its_restart_left_out(prometheus: str, capsys: pytest.CaptureFixture[str]) -> None:
    report = compared(capsys, prometheus, "--around", "last")
    assert report["change"] == "enable_prefix_caching: False -> True"
    assert report["before"] == {"start": CHANGE - 600, "end": CHANGE}
    assert CHANGE + 28 < report["restart"]["end"] < CHANGE + 30  # until the third scrape, which has an engine
    assert report["after"]["start"] == report["restart"]["end"] + 30


@pytest.mark.lab
def test_a_time_and_a_revision_find_the_same_change(prometheus: str, capsys: pytest.CaptureFixture[str]) -> None:
    windows = [
        compared(capsys, prometheus, "--around", around)["before"] for around in ("last", "bbb", f"{CHANGE:.0f}")
    ]
    assert windows == [windows[0]] * 3


@pytest.mark.lab
@pytest.mark.parametrize(
    "around, text",
    [
        pytest.param(
            "ccc",
            "--around: nothing changed to a revision 'ccc' in the last day of {url}, which holds aaaaaaaaaaaa, "
            "bbbbbbbbbbbb; write `last`, a time, or a revision that it changed to",
            id="no such revision",
        ),
        pytest.param(
            "1700000000",
            "--prometheus: {url} has no llm_requests_total between 1699998740 and 1700001260 (unix seconds); "
            "is the sidecar scraped?",
            id="a time without samples",
        ),
    ],
)
def test_a_change_that_is_not_there(
    prometheus: str, around: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "--prometheus", prometheus, "--around", around]) == 2
    assert capsys.readouterr().err == f"vllm-slo: {text.format(url=prometheus)}\n"


@pytest.fixture
def server() -> Iterator[Callable[[int, bytes], str]]:
    """A web server that gives one answer to everything."""
    started: list[tuple[ThreadingHTTPServer, Thread]] = []

    def start(status: int, body: bytes) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
                pass

        http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        started.append((http, thread))
        return f"http://127.0.0.1:{http.server_port}"

    yield start
    for http, thread in started:
        http.shutdown()
        thread.join()
        http.server_close()


NOTHING = b'{"status":"success","data":{"resultType":"matrix","result":[]}}'


@pytest.mark.parametrize(
    "status, body, text",
    [
        pytest.param(
            200,
            NOTHING,
            "--around: no change found in {url}: no sample of llm_engine_config_change_timestamp_seconds in the last "
            "day; give the time of the change (RFC 3339 or unix seconds) to compare around it all the same",
            id="no change",
        ),
        pytest.param(
            200,
            b"<html>",
            "--prometheus: a query of {url} failed: the response is not from Prometheus",
            id="a web page",
        ),
        pytest.param(
            400,
            b'{"status":"error","error":"query timed out"}',
            "--prometheus: a query of {url} failed: query timed out",
            id="an error of Prometheus",
        ),
        pytest.param(502, b"", "--prometheus: a query of {url} failed: HTTP 502 Bad Gateway", id="a proxy's error"),
    ],
)
def test_an_answer_of_no_use(
    server: Callable[[int, bytes], str], status: int, body: bytes, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url = server(status, body)
    assert main(["compare", "--around", "last", "--prometheus", url]) == 2
    assert capsys.readouterr().err == f"vllm-slo: {text.format(url=url)}\n"


@pytest.mark.parametrize(
    "url, text",
    [
        pytest.param(
            "127.0.0.1:9090",
            "--prometheus: '127.0.0.1:9090' is no web address; write one such as http://127.0.0.1:9090",
            id="no scheme",
        ),
        pytest.param(
            "http://127.0.0.1:9",
            "cannot reach Prometheus at http://127.0.0.1:9: connection refused; give the address of its web page to "
            "--prometheus, such as http://127.0.0.1:9090",
            id="nobody there",
        ),
    ],
)
def test_an_address_of_no_use(url: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--around", "last", "--prometheus", url]) == 2
    assert capsys.readouterr().err == f"vllm-slo: {text}\n"
