"""A sidecar with the shipped SLO file exposes at most 2,500 series, and all that rules and dashboards read."""

import re
from collections.abc import Iterator
from itertools import product
from math import inf
from pathlib import Path

import pytest

from alerts.rule_file import render
from dashboards.command import GENERATED
from exporters.engines.normalisation import normalise
from exporters.exposition.histogram_bounds import gap_bounds
from exporters.records.messages import Finished, Footprint, Hello, Snapshot
from exporters.sidecar.exporter import Exporter
from exporters.sidecar.http_api.http_server import exposition
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label, Outcome, OutputKind, OutputResult, Signal, Verdict
from exporters.vocabulary.slo_file import SHIPPED, load
from tests.contract.expositions import PAGES
from tests.support.child_configs import exporter_config
from tests.support.sample_records import finished

MOST = 2_500
SLOS = load(SHIPPED)
OUTCOMES = (Outcome.OK, Outcome.CLIENT_ABORT, Outcome.UPSTREAM_ERROR, Outcome.CLIENT_ERROR)
OF_SPANS = {"queue": 0.1, "prefill": 0.1, "decode": 0.5}
OF_OPTIONS = {
    "structured_kind": OutputKind.JSON,
    "structured_result": OutputResult.VALID,
    "shareable_tokens": 16,
    **OF_SPANS,
}
BY_FLAG = re.compile(
    "llm_(load|roofline)_|llm_sidecar_(certificate|follow|exported_spans|dropped_spans|unjoined|refused_otlp)"
)
"""Series of the load generator and of flags with a file, a collector or a port."""

UNREAD = {
    signals.SIDECAR_RECORDED: "docs/sidecar.md, accounts of requests",
    signals.SIDECAR_MODELS_OVER_LIMIT: "why requests of a model count as `other`",
    signals.SIDECAR_LOG_ERRORS: "failed writes that were repeated",
    signals.SIDECAR_RELOAD_TIME: "which SLO file is in use",
    signals.SIDECAR_CLOSED_CONNECTIONS: "scrapes that were rejected",
    signals.SIDECAR_REJECTED_CONNECTIONS: "why clients get status 503",
    signals.SIDECAR_BUFFERED: "with its limit: why uploads wait",
    signals.SIDECAR_BUFFERED_LIMIT: "with the bytes: why uploads wait",
}
"""Exposed from the start although neither a rule nor a dashboard reads them, with their use: one series per process."""


def requests(**fields: object) -> Iterator[Finished]:
    """Streams and unary requests of each class with four outcomes and three lengths of prompts."""
    for name, outcome, stream, tokens in product(SLOS.class_names, OUTCOMES, (True, False), (60, 900, 9_000)):
        times = {"ttft": 0.2, "ttft_answer": 0.4, "tpot": 0.01, "gap_counts": {gap_bounds(SLOS)[1]: 3, inf: 1}}
        answer = {"completion_tokens": tokens, "cached_tokens": 16, "reasoning_tokens": 8, **(times if stream else {})}
        failure = {"wait_at_least": 1.0} if stream else {}
        common = {"request_class": name, "tenant": "other", "outcome": outcome, "stream": stream}
        hashes = {"prompt_tokens": tokens, "prompt_repeat": True, "body_repeat": True}
        yield finished(**common, **hashes, **(answer if outcome is Outcome.OK else failure), **fields)


@pytest.fixture
def exporter(tmp_path: Path) -> Iterator[Exporter]:
    exporter = Exporter(exporter_config(request_log=str(tmp_path / "log"), models=("tiny",)))
    exporter.record_receiver.hello(Hello("relay-0", "a", 2))
    footprint = Footprint(12.5, 48 * 1024**2)
    exporter.request_metrics.snapshot("relay-0", Snapshot([], 0.0, 4, draining=False, footprint=footprint))
    (state,) = exporter.engines.states
    state.metrics, state.up = normalise(PAGES["vllm-0.32.0-recorded"]), True
    state.watch.observe(state.metrics.settings, None, 1795227400.0)
    yield exporter
    assert exporter.request_log is not None
    exporter.request_log.close()


def exposed(exporter: Exporter, **fields: object) -> list[str]:
    """Samples after requests with these `fields`."""
    for record in requests(**fields):
        exporter.request_metrics.record(record)
    return [line for line in exposition(exporter.collect(), "")[0].decode().splitlines() if not line.startswith("#")]


def name_of(line: str) -> str:
    return re.sub(r"_(bucket|sum|count)$", "", re.split("[ {]", line, maxsplit=1)[0])


def read() -> set[str]:
    """The series in rules and dashboards."""
    texts = [render(SLOS), *(path.read_text() for path in GENERATED.glob("*.json"))]
    return {name_of(name) for text in texts for name in re.findall(r"\bllm_\w+\b", text)}


@pytest.mark.parametrize("fields", [pytest.param({}, id="default"), pytest.param(OF_SPANS, id="with --engine-spans")])
def test_a_sidecar_with_four_classes_exposes_few_series(exporter: Exporter, fields: dict[str, float]) -> None:
    lines = exposed(exporter, slo={"ttft": Verdict.GOOD}, **fields)
    assert len(lines) <= MOST, {name: names.count(name) for names in [[*map(name_of, lines)]] for name in {*names}}


def of_sidecar(signal: Signal) -> bool:
    return Label.ENGINE not in signal.labels and BY_FLAG.match(signal.name) is None


def test_every_series_that_a_rule_or_a_dashboard_reads_is_exposed(exporter: Exporter) -> None:
    needed = {signal.name for signal in signals.SIGNALS if of_sidecar(signal)} & read()
    assert len(needed) > 40
    assert needed - {name_of(line) for line in exposed(exporter, **OF_OPTIONS)} == set()


def test_what_neither_a_rule_nor_a_dashboard_reads_is_exposed_once_it_occurs_or_has_another_reader(
    exporter: Exporter,
) -> None:
    unread = {signal.name for signal in signals.SIGNALS if of_sidecar(signal)} - read()
    at_start = {name_of(line) for line in exposition(exporter.collect(), "")[0].decode().splitlines()}
    assert unread & at_start == {signal.name for signal in UNREAD}
