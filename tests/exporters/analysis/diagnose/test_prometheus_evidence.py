"""Prometheus as a source of evidence: a real one with a quarter of an hour of generated samples."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from compose.programs.tools import Tools
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Signal
from tests.exporters.analysis.diagnose.workload_logs import START, log, stream
from tests.exporters.analysis.sample_series import EVERY, counter, lines
from tests.support.command_line import CommandLine
from tests.support.ports import free_port
from tests.support.prometheus_blocks import prometheus_over

STEPS = 60
END = START + EVERY * STEPS

LABELS = 'model="m",class="siso"'
ENGINE = 'engine="e",rank="0",model="m"'


def buckets(signal: Signal, labels: str, below: float, above: float) -> dict[str, float]:
    """Each scrape, 15 observations between two bounds, evenly distributed."""
    inner = f"{{{labels},le=" if labels else "{le="
    return {
        f'{signal.bucket}{inner}"{below}"}}': 0.0,
        f'{signal.bucket}{inner}"{above}"}}': 15.0,
        f'{signal.bucket}{inner}"+Inf"}}': 15.0,
        f"{signal.count}{{{labels}}}": 15.0,
        f"{signal.sum}{{{labels}}}": 15.0 * (below + above) / 2,
    }


COUNTERS: dict[str, float] = {
    f'{signals.REQUESTS.name}{{{LABELS},outcome="ok",stream="true"}}': 15.0,
    f'{signals.REQUESTS.name}{{{LABELS},outcome="client_abort",stream="true"}}': 5.0,
    f'{signals.WITHOUT_FIRST_TOKEN.name}{{{LABELS},outcome="client_abort"}}': 4.0,
    f'{signals.SLO_EVENTS.name}{{{LABELS},slo="ttft"}}': 15.0,
    f'{signals.SLO_BAD.name}{{{LABELS},slo="ttft"}}': 7.5,
    f"{signals.GOODPUT_EVENTS.name}{{{LABELS}}}": 15.0,
    f"{signals.GOODPUT_REQUESTS.name}{{{LABELS}}}": 7.5,
    f"{signals.PROMPT_TOKENS.name}{{{LABELS}}}": 1000.0,
    f"{signals.COMPLETION_TOKENS.name}{{{LABELS}}}": 300.0,
    f"{signals.CACHED_TOKENS.name}{{{LABELS}}}": 100.0,
    f"{signals.SHAREABLE_PROMPT_TOKENS.name}{{{LABELS}}}": 800.0,
    f"{signals.PROMPT_REPEATS.name}{{{LABELS}}}": 2.0,
    f"{signals.REQUESTS_WITH_ENGINE_TIMES.name}{{{LABELS}}}": 15.0,
    f"{signals.ENGINE_PREEMPTIONS.name}{{{ENGINE}}}": 0.1,
    f"{signals.ENGINE_CACHE_QUERIES.name}{{{ENGINE}}}": 1000.0,
    f"{signals.ENGINE_CACHE_HITS.name}{{{ENGINE}}}": 100.0,
    **buckets(signals.TTFT, LABELS, 4.0, 8.0),
    **buckets(signals.QUEUE, LABELS, 4.0, 6.0),
    **buckets(signals.PREFILL, LABELS, 0.5, 1.5),
    **buckets(signals.DURATION, LABELS, 8.0, 16.0),
}

GAUGES = {
    f'{signals.IN_FLIGHT.name}{{{LABELS},phase="waiting"}}': 7.0,
    f'{signals.IN_FLIGHT.name}{{{LABELS},phase="streaming"}}': 3.0,
    f"{signals.OLDEST_WAIT.name}{{{LABELS}}}": 20.0,
    f"{signals.ENGINE_WAITING.name}{{{ENGINE}}}": 40.0,
    f"{signals.ENGINE_RUNNING.name}{{{ENGINE}}}": 16.0,
    f"{signals.ENGINE_KV_USAGE.name}{{{ENGINE}}}": 0.5,
    f'{signals.ENGINE_SETTING_INFO.name}{{engine="e",setting="max_num_seqs",value="16"}}': 1.0,
    f'{signals.ENGINE_SETTING_INFO.name}{{engine="e",setting="enable_prefix_caching",value="True"}}': 1.0,
}


@pytest.fixture(scope="module")
def prometheus(tools: Tools) -> Iterator[str]:
    series = {name: counter(each) for name, each in COUNTERS.items()}
    series |= {name: partial(lambda value, _: value, each) for name, each in GAUGES.items()}
    with prometheus_over(lines(series, START, range(STEPS + 1)), free_port(), tools) as url:
        yield url


def known(figures: dict[str, Any]) -> dict[str, float]:
    return {name: each["value"] for name, each in figures.items() if each["value"] is not None}


def test_counters_and_histograms_give_the_figures_that_they_have(prometheus: str, cli: CommandLine) -> None:
    found = cli.json("diagnose", "--prometheus", prometheus, "--since", str(START), "--until", str(END))
    (siso,) = found["classes"]
    assert known(siso["figures"]) == pytest.approx(
        {
            "requests": 1200,
            "goodput": 0.5,
            "first_token_burn": 10.0,
            "rejected": 0.0,
            "failed": 0.0,
            "client_errors": 0.0,
            "aborted": 0.05,
            "no_first_token": 0.2,
            "open_waiting": 7,
            "oldest_wait": 20.0,
            "engine_times": 0.75,
            "ttft": 6.0,
            "queue": 5.0,
            "prefill": 1.0,
            "queue_share": 5 / 6,
            "prefill_share": 1 / 6,
            "e2e": 12.0,
            "decode_share": 0.5,
            "repeated_prompts": 0.1,
            "possible_hits": 0.8,
            "actual_hits": 0.1,
        },
        rel=0.01,
    )
    assert known(found["engine"]["figures"]) == pytest.approx(
        {
            "waiting": 40,
            "running": 16,
            "running_p50": 16,
            "kv_use": 0.5,
            "preemptions": 0.005,
            "possible_hits": 0.8,
            "cache_hits": 0.1,
            "max_num_seqs": 16,
        },
        rel=0.01,
    )
    assert found["engine"]["settings"] == {"enable_prefix_caching": "True", "max_num_seqs": "16"}
    assert siso["figures"]["longest"]["unknown"] == "diagnose --request-log FILE"
    assert found["engine"]["figures"]["kv_capacity"]["unknown"] == (
        "Prometheus has no llm_engine_kv_cache_capacity_tokens"
    )


def test_the_same_rules_decide(prometheus: str, cli: CommandLine) -> None:
    found = cli.json("diagnose", "--prometheus", prometheus, "--since", str(START), "--until", str(END))
    (siso,) = found["classes"]
    assert (siso["binding"], siso["lever"]["name"]) == ("queue", "keep prefixes in the cache")


def test_a_log_has_the_requests_and_prometheus_the_engine(prometheus: str, tmp_path: Path, cli: CommandLine) -> None:
    requests = (stream(each, queue=0.1, prefill=5, output=9, prompt_tokens=50) for each in range(0, 900, 10))
    path = log(tmp_path, requests)
    found = cli.json("diagnose", "--request-log", path, "--prometheus", prometheus)
    (siso,) = found["classes"]
    assert found["sources"] == [path, prometheus]
    assert siso["figures"]["requests"]["value"] == 90
    assert siso["figures"]["open_waiting"]["value"] == 7  # not in the log
    assert found["engine"]["figures"]["running"] == {
        "value": 16.0,
        "unit": "count",
        "from": signals.ENGINE_RUNNING.name,
    }
    assert (siso["binding"], siso["lever"]["name"]) == ("prefill", "faster prefill")
