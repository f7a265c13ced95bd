"""Prometheus as a source: a real one with an hour of generated samples, and servers without usable responses."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compose.programs.tools import Tools
from exporters.vocabulary import signals
from tests.exporters.analysis.compare.sample_logs import seeded, traffic, write
from tests.exporters.analysis.sample_series import EVERY, lines
from tests.support.command_line import CommandLine
from tests.support.fake_prometheus import FakePrometheus
from tests.support.ports import free_port
from tests.support.prometheus_blocks import prometheus_over

CHANGE = time.time() // EVERY * EVERY - 1800.0
"""Half an hour ago, at the time of a scrape."""

LABELS = 'model="m",class="siso"'

# Increase per scrape, before and after the change: one request per second, of which 50 % miss their SLO, then 5 %.
COUNTERS: dict[str, tuple[float, float]] = {
    f'{signals.REQUESTS.name}{{{LABELS},outcome="ok"}}': (15.0, 12.0),
    f'{signals.REQUESTS.name}{{{LABELS},outcome="client_error"}}': (0.0, 3.0),
    f'{signals.SLO_EVENTS.name}{{{LABELS},slo="ttft"}}': (10.0, 10.0),
    f'{signals.SLO_BAD.name}{{{LABELS},slo="ttft"}}': (5.0, 0.5),
    f"{signals.GOODPUT_EVENTS.name}{{{LABELS}}}": (10.0, 10.0),
    f"{signals.GOODPUT_REQUESTS.name}{{{LABELS}}}": (5.0, 9.5),
    f"{signals.PROMPT_TOKENS.name}{{{LABELS}}}": (1500.0, 1500.0),
    f"{signals.COMPLETION_TOKENS.name}{{{LABELS}}}": (300.0, 300.0),
    f"{signals.CACHED_TOKENS.name}{{{LABELS}}}": (0.0, 750.0),
    f'{signals.ENGINE_GENERATION_TOKENS.name}{{engine="e"}}': (600.0, 900.0),
    f'{signals.ENGINE_PROMPT_TOKENS.name}{{engine="e"}}': (1500.0, 1500.0),
    f'{signals.ENGINE_CACHE_HITS.name}{{engine="e"}}': (0.0, 750.0),
    f'{signals.ENGINE_PREEMPTIONS.name}{{engine="e"}}': (3.0, 0.0),
    f'{signals.WITHOUT_FIRST_TOKEN.name}{{{LABELS},outcome="truncated"}}': (0.0, 1.5),
    f'{signals.DURATION.bucket}{{{LABELS},le="5.0"}}': (0.0, 12.0),
    f'{signals.DURATION.bucket}{{{LABELS},le="10.0"}}': (15.0, 12.0),
    f'{signals.DURATION.bucket}{{{LABELS},le="+Inf"}}': (15.0, 12.0),
    f'{signals.TTFT.bucket}{{{LABELS},le="0.25"}}': (0.0, 0.0),
    f'{signals.TTFT.bucket}{{{LABELS},le="0.5"}}': (0.0, 15.0),
    f'{signals.TTFT.bucket}{{{LABELS},le="1.0"}}': (0.0, 15.0),
    f'{signals.TTFT.bucket}{{{LABELS},le="2.0"}}': (15.0, 15.0),
    f'{signals.TTFT.bucket}{{{LABELS},le="+Inf"}}': (15.0, 15.0),
}


def counted(before: float, after: float) -> Callable[[int], float]:
    """A counter from half an hour before the change on."""
    return lambda scrape: (min(scrape, 0) + 120) * before + max(scrape, 0) * after


CONFIG = {
    f'{signals.IN_FLIGHT.name}{{{LABELS},phase="waiting"}}': lambda _: 2.0,
    f'{signals.ENGINE_UP.name}{{engine="e"}}': lambda scrape: float(scrape not in {0, 1}),
    f'{signals.ENGINE_CONFIG_INFO.name}{{engine="e",revision="{"a" * 12}"}}': lambda scrape: None if scrape >= 0 else 1,
    f'{signals.ENGINE_CONFIG_INFO.name}{{engine="e",revision="{"b" * 12}"}}': lambda scrape: 1 if scrape >= 0 else None,
    f'{signals.ENGINE_CONFIG_CHANGE.name}{{engine="e",setting="enable_prefix_caching",old="False",new="True"}}': (
        lambda scrape: CHANGE if scrape >= 0 else None
    ),
}


@pytest.fixture(scope="module")
def prometheus(tools: Tools) -> Iterator[str]:
    series = {name: counted(*increases) for name, increases in COUNTERS.items()} | CONFIG
    with prometheus_over(lines(series, CHANGE, range(-120, 110)), free_port(), tools) as url:
        yield url


def compared(cli: CommandLine, url: str, *words: str) -> Any:
    return cli.json("compare", "--prometheus", url, *words)


def test_counters_and_histograms_give_the_figures_that_they_have(prometheus: str, cli: CommandLine) -> None:
    report = compared(cli, prometheus, "--around", "last")
    rows = {row["figure"]: row for row in report["rows"] if row["class"] == "siso"}
    assert {name: row["verdict"] for name, row in rows.items()} == {
        "offered": "no difference shown",
        "completed": "worse",
        "SLO ttft": "better",
        "goodput": "better",
        "TTFT p50": "better",
        "TTFT p95": "no difference shown",
        "E2E p50": "better",
        "E2E p95": "better",
        "client errors": "worse",
        "output tokens": "no difference shown",
        "cache hits": "better",
    }
    values = [rows[name]["after"]["value"] for name in ("offered", "SLO ttft", "output tokens", "cache hits")]
    assert values == pytest.approx([1.0, 0.95, 20.0, 0.5], rel=0.01)
    assert rows["TTFT p95"]["after"]["high"] is None  # 9 % of the streams had no token
    waits = rows["TTFT p50"]
    assert (waits["before"]["low"], waits["before"]["high"]) == (1.0, 2.0)  # the bucket
    assert (waits["after"]["low"], waits["after"]["high"]) == (0.25, 0.5)
    assert waits["before"]["value"] == pytest.approx(1.5)


def test_the_work_of_the_engine_is_compared_by_blocks(prometheus: str, cli: CommandLine) -> None:
    report = compared(cli, prometheus, "--around", "last")
    rows = {row["figure"]: row for row in report["rows"] if row["class"] == "all classes"}
    found = {
        name: (row["before"]["value"], row["after"]["value"], row["verdict"])
        for name, row in rows.items()
        if name not in {"offered", "completed"}
    }
    assert found == {
        "backlog growth": (0.0, 0.0, "no difference shown"),
        "output tokens": (pytest.approx(40, rel=0.02), pytest.approx(60, rel=0.02), "higher"),
        "prompt tokens": (pytest.approx(100, rel=0.02), pytest.approx(50, rel=0.02), "lower"),
        "cached tokens": (0.0, pytest.approx(50, rel=0.02), "higher"),
        "cache hits": (0.0, pytest.approx(0.5), "better"),
        "preemptions": (pytest.approx(0.2, rel=0.02), 0.0, "better"),
    }
    assert report["conclusion"][0].startswith("Changed: completed 100 to 80 %, output tokens 40 to 60 /s (+50%), ")


def test_a_request_log_has_its_preemptions_from_prometheus(prometheus: str, tmp_path: Path, cli: CommandLine) -> None:
    log = write(tmp_path / "requests.jsonl", traffic(seeded(1), CHANGE - 700, 1400.0), None)
    report = compared(cli, prometheus, "--request-log", str(log), "--around", f"{CHANGE:.0f}")
    assert {row["figure"]: row["verdict"] for row in report["rows"]}["preemptions"] == "better"
    assert not any("Preemptions" in note for note in report["notes"])


def test_the_time_of_the_change_is_exact_and_its_restart_is_excluded(prometheus: str, cli: CommandLine) -> None:
    report = compared(cli, prometheus, "--around", "last")
    assert report["change"] == "enable_prefix_caching: False -> True"
    assert report["before"] == {"start": CHANGE - 600, "end": CHANGE}
    assert CHANGE + 28 < report["restart"]["end"] < CHANGE + 30  # the third scrape is the first with an engine
    assert report["after"]["start"] == report["restart"]["end"] + 30


def test_a_time_and_a_revision_find_the_same_change(prometheus: str, cli: CommandLine) -> None:
    windows = [compared(cli, prometheus, "--around", around)["before"] for around in ("last", "bbb", f"{CHANGE:.0f}")]
    assert windows == [windows[0]] * 3


@pytest.mark.parametrize(
    "around, text",
    [
        pytest.param(
            "ccc",
            "--around: no config change to revision 'ccc' found in the last day of {url} "
            "(llm_engine_config_change_timestamp_seconds); known: bbbbbbbbbbbb",
        ),
        pytest.param(
            "1700000000",
            "--prometheus: {url} has no llm_requests_total between 1699998740 and 1700001260 (unix seconds); "
            "is the sidecar scraped?",
        ),
    ],
)
def test_a_change_that_was_not_found(prometheus: str, around: str, text: str, cli: CommandLine) -> None:
    assert cli.refusal("compare", "--prometheus", prometheus, "--around", around) == text.format(url=prometheus)


NO_SAMPLES = b'{"status":"success","data":{"resultType":"matrix","result":[]}}'


@pytest.mark.parametrize(
    "status, body, text",
    [
        pytest.param(
            200,
            NO_SAMPLES,
            "--around: no config change found in the last day of {url} (llm_engine_config_change_timestamp_seconds); "
            "give the time of the change (RFC 3339 or unix seconds)",
            id="no change",
        ),
        (200, b"<html>", "--prometheus: a query of {url} failed: the response is not from Prometheus"),
    ],
)
def test_an_unusable_response_is_rejected(status: int, body: bytes, text: str, cli: CommandLine) -> None:
    with FakePrometheus(lambda _path, _parameters: (status, body)) as server:
        assert cli.refusal("compare", "--around", "last", "--prometheus", server.url) == text.format(url=server.url)


def test_an_unusable_url_is_rejected(cli: CommandLine) -> None:
    assert cli.refusal("compare", "--around", "last", "--prometheus", "127.0.0.1:9090") == (
        "--prometheus: '127.0.0.1:9090' is not a valid URL; write one such as http://127.0.0.1:9090"
    )
    assert cli.refusal("compare", "--around", "last", "--prometheus", "http://127.0.0.1:9", status=3) == (
        "cannot reach Prometheus at http://127.0.0.1:9: connection refused; "
        "set --prometheus to its address, such as http://127.0.0.1:9090"
    )
