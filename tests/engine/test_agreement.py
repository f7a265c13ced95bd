"""Client, sidecar and a real vLLM (its community CPU build) agree on the same requests."""

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from compose.lab.rewrite_config import COMPOSE_DIRECTORY
from compose.lab.services import DASHBOARDS, OURS
from compose.vllm_cpu.launch import MODEL, NAME
from exporters.vocabulary.signals import Outcome
from tests.engine.live_lab import Increase, Lab, running
from tests.engine.mixed_client import ClientResponse, mixed, send_all
from tests.support.otlp_collectors import attributes
from tests.support.waiting import wait_until

pytestmark = pytest.mark.engine

REQUESTS, ABORTS, AT_ONCE = 140, 14, 7  # the engine runs 4 at a time, so some wait

FINISHED_ONLY = (
    "vllm:request_queue_time_seconds_count",
    "vllm:request_prompt_tokens_count",
    "vllm:request_generation_tokens_count",
    "vllm:e2e_request_latency_seconds_count",
    "vllm:request_prefill_time_seconds_count",
    "vllm:request_decode_time_seconds_count",
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """A set of requests as client, sidecar and engine report them; `lines` is the request log by request id."""

    sent: list[ClientResponse]
    lines: dict[str, dict[str, Any]]
    line_count: int
    engine: Increase
    sidecar: Increase

    @property
    def finished(self) -> list[tuple[ClientResponse, dict[str, Any]]]:
        return [(response, self.lines[response.request.request_id]) for response in self.sent if not response.aborted]

    @property
    def aborted(self) -> list[tuple[ClientResponse, dict[str, Any]]]:
        return [(response, self.lines[response.request.request_id]) for response in self.sent if response.aborted]

    def logged(self, name: str, *, aborted: bool | None = None) -> float:
        """The sum of a field of the log."""
        lines = self.finished + self.aborted if aborted is None else self.aborted if aborted else self.finished
        return sum(line[name] or 0 for _, line in lines)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with running(tmp_path_factory.mktemp("engine")) as lab:
        yield lab


def gather(lab: Lab, seed: int, count: int, aborts: int) -> Evidence:
    before = len(lab.lines())
    engine, sidecar = lab.engine(), lab.sidecar()
    sent = asyncio.run(send_all(lab.ports.url("relay"), mixed(seed, count, aborts, MODEL), AT_ONCE))
    lab.wait_until_settled(before + count)
    lines = lab.lines()[before:]
    by_id = {line["request_id"]: line for line in lines}
    return Evidence(sent, by_id, len(lines), Increase(engine, lab.engine()), Increase(sidecar, lab.sidecar()))


@pytest.fixture(scope="module")
def mix(lab: Lab) -> Evidence:
    return gather(lab, 67, REQUESTS, ABORTS)


@pytest.fixture(scope="module")
def aborts(lab: Lab) -> Evidence:
    return gather(lab, 68, 10, 10)


def test_the_mix_has_every_kind_of_request(mix: Evidence) -> None:
    assert len(mix.aborted) == ABORTS
    assert len(mix.finished) >= 100
    assert all(response.status == 200 and response.done for response, _ in mix.finished)
    kinds = {(response.request.stream, response.request.endpoint) for response, _ in mix.finished}
    assert len(kinds) == 4
    assert any(response.chunks for response, _ in mix.aborted)  # some were aborted during the response
    assert any(not response.chunks for response, _ in mix.aborted)  # and some before the first token


def test_requests_sent_counted_and_logged_agree(mix: Evidence) -> None:
    assert mix.sidecar("llm_requests_total") == len(mix.sent) == mix.line_count == len(mix.lines) == REQUESTS
    assert mix.sidecar("llm_requests_total", outcome=Outcome.OK) == len(mix.finished)
    assert mix.sidecar("llm_requests_total", outcome=Outcome.CLIENT_ABORT) == len(mix.aborted)
    assert mix.sidecar("llm_requests_total", model=MODEL) == REQUESTS


def test_a_client_receives_usage_only_if_requested(mix: Evidence) -> None:
    assert [
        response.request.request_id
        for response, _ in mix.finished
        if bool(response.usage) != response.request.requests_usage
    ] == []


@pytest.mark.parametrize(
    "name, own",
    [
        ("prompt_tokens", lambda response: response.prompt_ids),
        ("completion_tokens", lambda response: response.output_ids),
    ],
)
def test_tokens_of_each_finished_request_agree(mix: Evidence, name: str, own: Any) -> None:
    """The client's own count of token ids, the usage that it received, and the request log."""
    wrong = [
        (line["request_id"], own(response), (response.usage or {}).get(name), line[name])
        for response, line in mix.finished
        if {own(response), (response.usage or {name: own(response)})[name]} != {line[name]}
    ]
    assert wrong == []


def test_tokens_of_all_finished_requests_agree_with_the_engines_counters(mix: Evidence) -> None:
    for ours, engines in (
        ("prompt_tokens", "vllm:request_prompt_tokens_sum"),
        ("completion_tokens", "vllm:request_generation_tokens_sum"),
    ):
        assert mix.engine(engines) == mix.logged(ours, aborted=False) > 0
        assert mix.sidecar(f"llm_{ours}_total") == mix.logged(ours)


def test_cached_tokens_agree(mix: Evidence) -> None:
    wrong = [
        (line["request_id"], response.usage, line["cached_tokens"])
        for response, line in mix.finished
        if line["cached_tokens"] is None
        or (response.usage and response.usage["prompt_tokens_details"]["cached_tokens"] != line["cached_tokens"])
    ]
    assert wrong == []
    computed = mix.engine("vllm:request_prefill_kv_computed_tokens_sum")
    cached = mix.engine("vllm:request_prompt_tokens_sum") - computed
    assert cached == mix.logged("cached_tokens", aborted=False) > 0
    assert mix.sidecar("llm_cached_prompt_tokens_total") == mix.logged("cached_tokens")


def test_an_aborted_request_is_a_client_abort_with_its_tokens_so_far(mix: Evidence, aborts: Evidence) -> None:
    for response, line in mix.aborted + aborts.aborted:
        assert line["outcome"] == Outcome.CLIENT_ABORT
        assert line["queue_ms"] is line["prefill_ms"] is line["decode_ms"] is None
        logged = (line["completion_tokens"] or 0) if response.request.stream else 0
        # The relay may receive a chunk that an aborting client does not. Without usage a chunk counts as one token; a
        # token that ends within a character has no text and makes no chunk.
        least = response.usage["completion_tokens"] if response.usage else response.chunks
        assert logged >= least, (response, line)
        assert (line["ttft_ms"] is None) == (logged == 0)
        if line["ttft_ms"] is None and response.request.stream:
            assert line["wait_ms_at_least"] > 0
    assert sum(line["completion_tokens"] or 0 for _, line in aborts.aborted) > 0
    assert aborts.sidecar("llm_completion_tokens_total") == aborts.logged("completion_tokens")


def test_the_engines_finished_counters_exclude_aborted_requests(mix: Evidence, aborts: Evidence) -> None:
    assert len(aborts.aborted) == len(aborts.sent)
    for name in ("vllm:request_success_total", *FINISHED_ONLY):
        assert aborts.engine(name) == 0, name
        assert mix.engine(name) == len(mix.finished), name
    # The engine generated at least the tokens that the client received.
    assert aborts.engine("vllm:generation_tokens_total") >= aborts.logged("completion_tokens")
    assert mix.engine("vllm:generation_tokens_total") >= mix.logged("completion_tokens")


def test_the_engines_queue_times_are_in_the_log_and_add_up_to_its_own_sum(mix: Evidence) -> None:
    assert [line["request_id"] for _, line in mix.finished if line["queue_ms"] is None] == []
    engines = mix.engine("vllm:request_queue_time_seconds_sum")
    assert engines > 0.1  # some requests waited
    assert mix.logged("queue_ms") / 1000 == pytest.approx(engines, rel=0.01)
    assert mix.sidecar("llm_request_queue_seconds_sum") == pytest.approx(engines, rel=0.01)
    assert mix.sidecar("llm_request_queue_seconds_count") == len(mix.finished)


def test_our_ttft_is_between_the_engines_and_the_clients(mix: Evidence) -> None:
    compared = 0
    for response, line in mix.finished:
        if line["ttft_ms"] is not None and response.ttft is not None:
            assert line["queue_ms"] + line["prefill_ms"] <= line["ttft_ms"] <= response.ttft * 1000, line
            compared += 1
    assert compared >= 50


def test_the_engines_span_is_a_child_of_the_sidecars_and_has_the_same_times(lab: Lab, mix: Evidence) -> None:
    spans = [span for span in await_spans(lab, len(mix.finished)) if span.name != "queue"]
    ours = {span.span_id: attributes(span) for span in spans if "vllm_slo.outcome" in attributes(span)}
    theirs = {span.parent_span_id: span for span in spans if span.name == "llm_request"}
    finished = {key: attributes_ for key, attributes_ in ours.items() if attributes_["vllm_slo.outcome"] == Outcome.OK}
    assert len(finished) >= len(mix.finished)
    assert finished.keys() <= theirs.keys()
    traces = {span.span_id: span.trace_id for span in spans}
    lines = {line["trace_id"]: line for _, line in mix.finished}
    compared = 0
    for key in finished:
        engine, line = attributes(theirs[key]), lines.get(theirs[key].trace_id.hex())
        assert theirs[key].trace_id == traces[key]
        if line is not None:
            compared += 1
            assert engine["gen_ai.usage.completion_tokens"] == line["completion_tokens"]
            assert engine["gen_ai.latency.time_in_queue"] * 1000 == pytest.approx(line["queue_ms"], abs=5)
    assert compared == len(mix.finished)


def await_spans(lab: Lab, count: int) -> list[Span]:
    """The collector's spans, once each finished request has both; both senders batch spans for some seconds."""

    def all_received() -> bool:
        spans = lab.collector.spans
        engine = sum(span.name == "llm_request" for span in spans)
        sidecar = sum(attributes(span).get("vllm_slo.outcome") == Outcome.OK for span in spans)
        return bool(min(engine, sidecar) >= count)

    wait_until(all_received)
    time.sleep(6)  # both senders wait up to 5 s for a full batch
    return lab.collector.spans


def test_no_request_is_open_lost_or_unparsed(lab: Lab, mix: Evidence, aborts: Evidence) -> None:
    scrape = lab.sidecar()
    assert scrape.total("llm_requests_in_flight") == 0
    assert scrape.total("llm_sidecar_dropped_records_total") == 0
    assert scrape.total("llm_sidecar_unparsed_requests_total") == 0
    assert scrape.total("llm_sidecar_unmetered_requests_total") == 0


def test_the_slo_overview_has_no_empty_panel_under_load(lab: Lab, mix: Evidence, tmp_path: Path) -> None:
    load = ("load", "run", "--scenario", NAME, "--target", lab.ports.url("relay"), "--out", str(tmp_path / "load"))
    process = run_command(*load, "--duration", "45s", "--slos", str(COMPOSE_DIRECTORY / "slos.yaml"))
    assert process.returncode == 0, process.stdout
    (tmp_path / "boards").mkdir()
    shutil.copy(DASHBOARDS / "slo-overview.json", tmp_path / "boards")
    audit = ("dashboards", "audit", "--prometheus", lab.ports.url("prometheus"), "--scrape-interval", "1s")
    process = run_command(*audit, "--since", "3m", "--dashboards", str(tmp_path / "boards"))
    problems = {line for line in process.stdout.splitlines() if line.startswith("SLO overview:")}
    # The time at which a budget ends; none does if no request is bad.
    assert problems <= {"SLO overview: Error budget (B): empty"}, process.stdout
    assert process.returncode == bool(problems), process.stdout
    assert f"{len(problems)} empty or failing" in process.stdout


def run_command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*OURS, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )
