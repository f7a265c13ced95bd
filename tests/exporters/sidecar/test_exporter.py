"""The exposition of the exporter has the series that `exporters.vocabulary.signals` declares, in both formats."""

import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestServer
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families as parse_text

from exporters.engines.normalisation import normalise
from exporters.records.messages import Footprint, Hello, OpenRequests, Snapshot, Waits
from exporters.sidecar.exporter import Exporter
from exporters.sidecar.http_api.http_server import application
from exporters.vocabulary import signals
from exporters.vocabulary.ceilings import Ceilings
from exporters.vocabulary.signals import Outcome, OutputKind, OutputResult, Signal
from tests.contract.expositions import PAGES
from tests.support.child_configs import exporter_config
from tests.support.fake_engine import CACHING_OFF
from tests.support.openmetrics import parse_openmetrics, whole
from tests.support.sample_records import finished

SPECULATING = """
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="tiny"} 100
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="tiny"} 60
"""
TRANSFERRING = """
vllm:num_requests_kv_fetch_by_stage{engine="0",model_name="tiny",stage="in_progress"} 1
vllm:nixl_bytes_transferred_sum{engine="0",model_name="tiny"} 4096
vllm:nixl_num_failed_transfers_total{engine="0",model_name="tiny"} 1
vllm:nixl_num_kv_expired_reqs_total{engine="0",model_name="tiny"} 2
vllm:nixl_xfer_time_seconds_bucket{engine="0",model_name="tiny",le="0.005"} 3
vllm:nixl_xfer_time_seconds_bucket{engine="0",model_name="tiny",le="+Inf"} 4
vllm:nixl_xfer_time_seconds_sum{engine="0",model_name="tiny"} 0.02
vllm:kv_offload_store_bytes_total{engine="0",model_name="tiny"} 8192
vllm:kv_offload_load_bytes_total{engine="0",model_name="tiny"} 2048
vllm:kv_offload_cpu_cache_usage_perc{engine="0",model_name="tiny"} 0.25
"""
EVERYTHING = PAGES["vllm-0.32.0-recorded"] + PAGES["vllm-0.32.0-lora-recorded"] + SPECULATING + TRANSFERRING
DECLARED = {signal.name: signal for signal in signals.SIGNALS}

NOT_HERE = {
    signals.SIDECAR_EXPORTED_SPANS.name: "only with --otlp, and counted by the exporter of spans",
    signals.SIDECAR_DROPPED_SPANS.name: "only with --otlp, and counted by the exporter of spans",
    signals.SIDECAR_UNJOINED_SPANS.name: "only with --engine-spans",
    signals.SIDECAR_REFUSED_MESSAGES.name: "only with --engine-spans",
    signals.SIDECAR_CERTIFICATE_EXPIRY.name: "only with --tls-cert",
    signals.SIDECAR_CERTIFICATE_RELOAD.name: "only with --tls-cert",
    signals.ENGINE_PROBES.name: "only with --probe",
    signals.FOLLOWED_LINES.name: "only with --follow",
    signals.FOLLOW_UP.name: "only with --follow",
    signals.FOLLOW_LAG.name: "only with --follow",
    **dict.fromkeys((signal.name for signal in signals.LOAD_SIGNALS), "exposed by the load generator"),
}
"""Signals that an exporter without tracing and TLS does not expose, with the reason."""


EVERY_VALUE = finished(
    request_class="siso",
    tenant="other",
    outcome=Outcome.TRUNCATED,
    unparsed="too_large",
    refused="body_too_large",
    dropped_values=[signals.QUEUE.name],
    prompt_tokens=100,
    completion_tokens=20,
    ttft=0.2,
    ttft_answer=0.4,
    queue=0.1,
    prefill=0.1,
    decode=1.0,
    prompt_repeat=True,
    body_repeat=True,
    shareable_tokens=16,
    structured_kind=OutputKind.JSON,
    structured_result=OutputResult.VALID,
)


@pytest.fixture
def exporter(tmp_path: Path) -> Iterator[Exporter]:
    config = exporter_config(
        restarts={"exporter": 1, "relay-0": 2},
        request_log=str(tmp_path / "log"),
        models=("tiny",),
        check_structured_output=True,
        log_prefix_hashes=True,
        roofline=Ceilings(30_000.0, {1: 160.0, 50: 8_000.0}, 500_000),
    )
    exporter = Exporter(config)
    yield exporter
    assert exporter.request_log is not None
    exporter.request_log.close()


def feed(exporter: Exporter) -> None:
    """Fill all series."""
    exporter.record_receiver.hello(Hello("relay-0", "a", 2))
    exporter.record_receiver.hello(Hello("relay-0", "b", 3))
    exporter.request_metrics.snapshot(
        "relay-0",
        Snapshot(
            [OpenRequests("tiny", "siso", 2, 1, time.monotonic() - 3)],
            0.002,
            4,
            draining=False,
            footprint=Footprint(12.5, 48 * 1024**2),
        ),
    )
    exporter.request_metrics.record(EVERY_VALUE)
    exporter.request_metrics.record(finished(request_class="warm-up"))
    exporter.request_metrics.record(finished(request_class="siso", tenant="other", wait_at_least=1.0))
    exporter.request_metrics.record(finished(request_class="siso", tenant="other", unmetered="KeyError"))
    (state,) = exporter.engines.states
    for text, now in ((CACHING_OFF, 1795227300.0), (EVERYTHING, 1795227400.0)):
        state.metrics = normalise(text)
        state.watch.observe(state.metrics.settings, None, now)
    state.watch.observe_fingerprint("vllm-f-1", 1795227500.0)
    now = time.monotonic()
    state.up, state.version, state.last_success_at = True, "0.32.0", now
    exporter.engines.observe([Waits(output_at=now)], now)


@pytest.fixture
async def page(exporter: Exporter) -> AsyncIterator[str]:
    feed(exporter)
    async with TestServer(application(exporter.collect, exporter.why_not_ready)) as server:
        yield f"http://127.0.0.1:{server.port}"


async def fetch(url: str, accept: str | None = None) -> tuple[str, str]:
    headers = {"accept": accept} if accept else {}
    async with ClientSession() as session, session.get(url, headers=headers) as response:
        assert response.status == 200
        return response.headers["content-type"], await response.text()


def shapes(families: list[Metric]) -> dict[str, tuple[str, str, frozenset[str]]]:
    """Type, help and labels of families by signal name."""
    shapes = {}
    for family in families:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {frozenset(sample.labels) - {"le"} for sample in family.samples}
        assert len(labels) == 1, name
        shapes[name] = family.type, family.documentation, labels.pop()
    return shapes


def declared(signal: Signal) -> tuple[str, str, frozenset[str]]:
    return signal.kind.value, signal.help, frozenset(str(label) for label in signal.labels)


EXPECTED = {name: declared(signal) for name, signal in DECLARED.items() if name not in NOT_HERE}


OPENMETRICS = "application/openmetrics-text"
OF_PROMETHEUS = (
    f"{OPENMETRICS};version=1.0.0;escaping=allow-utf-8;q=0.6,"
    f"{OPENMETRICS};version=0.0.1;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.3"
)


async def test_the_text_exposition_has_the_declared_families(page: str) -> None:
    kind, text = await fetch(f"{page}/metrics")
    assert kind.startswith("text/plain; version=")
    assert shapes(list(parse_text(text))) == EXPECTED


@pytest.mark.parametrize("accept", [f"{OPENMETRICS}; version=1.0.0", OF_PROMETHEUS, OF_PROMETHEUS.title()])
async def test_the_openmetrics_exposition_has_the_declared_families(page: str, accept: str) -> None:
    kind, text = await fetch(f"{page}/metrics", accept)
    assert kind.startswith(f"{OPENMETRICS}; version=1.0.0")
    assert text.endswith("# EOF\n")
    assert shapes(parse_openmetrics(text)) == EXPECTED


async def test_restarts_include_those_before_the_start_of_this_exporter(page: str) -> None:
    _, text = await fetch(f"{page}/metrics")
    assert 'llm_sidecar_restarts_total{process="exporter"} 1.0\n' in text
    assert 'llm_sidecar_restarts_total{process="relay-0"} 3.0\n' in text


async def test_cpu_and_memory_of_all_processes_are_exposed(page: str) -> None:
    _, text = await fetch(f"{page}/metrics")
    assert 'llm_sidecar_cpu_seconds_total{process="relay-0"} 12.5\n' in text
    assert 'llm_sidecar_memory_bytes{process="relay-0"} 5.0331648e+07\n' in text
    samples = [sample for family in parse_text(text) for sample in family.samples]
    own = {sample.name: sample.value for sample in samples if sample.labels.get("process") == "exporter"}
    assert 0 < own["llm_sidecar_cpu_seconds_total"] <= time.process_time()
    assert own["llm_sidecar_memory_bytes"] > 10 * 1024**2


async def test_the_index_lists_the_endpoints(page: str) -> None:
    assert (await fetch(f"{page}/"))[
        1
    ] == "vllm-slo sidecar\n/metrics\n/engine/livez\n/engine/readyz\n/healthz\n/readyz\n"
    assert (await fetch(f"{page}/healthz"))[1] == "ok\n"
    assert (await fetch(f"{page}/readyz"))[1] == "ready\n"


def test_an_exporter_is_ready_if_all_relays_are_connected_and_none_drains(exporter: Exporter) -> None:
    assert exporter.why_not_ready() == "0 of 1 relays are connected"
    exporter.record_receiver.hello(Hello("relay-0", "a", 2))
    assert exporter.why_not_ready() is None
    exporter.record_receiver.snapshot("relay-0", Snapshot([], 0.0, 0, draining=True))
    assert exporter.why_not_ready() == "draining"
    exporter.record_receiver.disconnected("relay-0")
    assert exporter.why_not_ready() == "0 of 1 relays are connected"


def test_the_limit_of_the_running_requests_is_that_of_all_ranks_of_an_engine_that_is_up(exporter: Exporter) -> None:
    def limits() -> dict[str, float]:
        families = [each for each in exporter.collect() if isinstance(each, Metric)]
        (family,) = [each for each in families if each.name == signals.ROOFLINE_RUNNING.name]
        return {sample.labels["engine"]: sample.value for sample in family.samples}

    feed(exporter)
    (state,) = exporter.engines.states
    state.metrics.values[signals.ENGINE_RUNNING] = {("0", "tiny"): 20.0, ("1", "tiny"): 30.0}
    assert limits() == {state.name: pytest.approx(8_000)}
    state.metrics.values[signals.ENGINE_RUNNING] = {("0", "tiny"): 0.0}
    assert limits() == {state.name: 0}
    state.up = False
    assert limits() == {}


def test_models_over_the_limit_are_other_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    exporter = Exporter(exporter_config(max_models=3, models=("named",)))
    (state,) = exporter.engines.states
    state.models = ("tiny", *(f"adapter-{number}" for number in range(3000)))
    for _ in range(2):
        exporter._add_models(state.models)
    over = {family.name: family for family in whole(exporter.collect())}[signals.SIDECAR_MODELS_OVER_LIMIT.name]
    assert [sample.value for sample in over.samples] == [2999]
    labelled = [model for model in ("named", *state.models) if exporter.request_metrics.has_model(model)]
    assert labelled == ["named", "tiny", "adapter-0"]
    reason = "because --max-models is 3 or their names are longer than 252 bytes"
    assert caplog.messages == [f"2999 models count as `other`, {reason}"]
