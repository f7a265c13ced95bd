"""The series generated from records: they start at 0, count once, and have the declared labels."""

import itertools
from collections.abc import Iterable
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.core import Metric
from prometheus_client.samples import Exemplar

from exporters.exposition.accumulators import Accumulator
from exporters.exposition.histogram_bounds import bounds, gap_bounds
from exporters.records.messages import UNMETERED, Judged, OpenRequests, Record, Refused, Snapshot
from exporters.relay.metering.gaps import Gaps
from exporters.sidecar.ingest.request_metrics import RequestMetrics
from exporters.text.names import cut
from exporters.vocabulary import signals, slo_file
from exporters.vocabulary.signals import (
    Endpoint,
    Kind,
    Label,
    Outcome,
    OutputKind,
    OutputResult,
    Phase,
    Signal,
    Verdict,
)
from tests.support.openmetrics import whole
from tests.support.sample_records import SLOS, finished

Row = frozenset[tuple[str, str]]

NOW = 1000.0
OF_EMBEDDINGS = "route", "embeddings"


def values(families: Iterable[Metric | Accumulator]) -> dict[tuple[str, Row], float]:
    """All samples by name and labels; asserts that no series is exposed twice."""
    samples_by_row: dict[tuple[str, Row], float] = {}
    for family in whole(families):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in samples_by_row
            samples_by_row[key] = sample.value
    return samples_by_row


def family_name(family: Metric | Accumulator) -> str:
    return str((family.head() if isinstance(family, Accumulator) else family).name)


class Fed:
    """Request metrics after some records."""

    def __init__(self, *records: Record, models: Iterable[str] = ("tiny",)) -> None:
        self.series = RequestMetrics(SLOS)
        for model in models:
            self.series.add_model(model)
        for record in records:
            self.series.record(record)

    def value(self, name: str, **labels: str) -> float:
        wanted = {"model": "tiny", "class": "short", **labels}
        if name == "llm_requests_total":
            wanted.setdefault("route", "chat_completions")
        families = (each for each in self.series.collect(NOW) if name.startswith(family_name(each)))
        return values(families).get((name, frozenset((k, v) for k, v in wanted.items() if v)), 0.0)

    def rows(self, name: str) -> dict[Row, float]:
        """All samples of this name that are not 0, by labels."""
        return {
            row: value for (sample, row), value in values(self.series.collect(NOW)).items() if sample == name and value
        }

    def moved(self, *prefixes: str) -> dict[str, float]:
        """The sums over all labels of the counters and counts that are not 0; with prefixes, of their families only."""
        sums: dict[str, float] = {}
        families = (each for each in self.series.collect(NOW) if family_name(each).startswith(prefixes or ("",)))
        for sample in (sample for family in whole(families) for sample in family.samples if sample.value):
            if not sample.name.endswith(("_bucket", "_sum")):
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
        return sums


def combinations(signal: Signal) -> set[Row]:
    """All label combinations of a signal with two models, computed independently of the code under test."""
    rows: set[Row] = set()
    for name in ("short", "long", "other"):
        values: dict[Label, tuple[str, ...]] = {
            Label.MODEL: ("tiny", "other"),
            Label.CLASS: (name,),
            Label.TENANT: ("team-a", "other"),
            Label.STREAM: ("true", "false"),
            Label.ROUTE: ("chat_completions",),
            Label.OUTCOME: tuple(Outcome),
            Label.PHASE: tuple(Phase),
            Label.SLO: tuple(slo.name for slo in SLOS.slos_of(name)),
        }
        products = itertools.product(*(values[label] for label in signal.labels))
        rows |= {frozenset(zip(signal.labels, row, strict=True)) for row in products}
    return rows


OF_REQUESTS = [
    signal for signal in signals.SIGNALS if Label.MODEL in signal.labels and Label.ENGINE not in signal.labels
]


@pytest.fixture(scope="module")
def at_start() -> dict[tuple[str, Row], float]:
    return values(Fed().series.collect(NOW))


SERVED_ONLY = {
    *("llm_time_to_first_token_seconds", "llm_time_per_output_token_seconds", "llm_inter_chunk_seconds"),
    *("llm_request_duration_seconds", "llm_request_prompt_tokens", "llm_request_completion_tokens"),
}
"""At 0 from the start for models that an engine serves, not for `other`."""

WHEN_COUNTED = {
    *("llm_warm_up_requests_total", "llm_requests_without_first_token_total", "llm_requests_by_size_total"),
    *("llm_requests_by_prompt_length_total", "llm_failed_requests_by_prompt_length_total"),
    *("llm_time_to_first_answer_token_seconds", "llm_request_frontend_seconds", "llm_request_queue_seconds"),
    *("llm_request_prefill_seconds", "llm_request_decode_seconds", "llm_shareable_prompt_tokens_total"),
    *("llm_prompt_repeats_total", "llm_body_repeats_total", "llm_structured_requests_total"),
}
"""Not exposed before the first count."""


@pytest.mark.parametrize("signal", OF_REQUESTS, ids=lambda signal: signal.name)
def test_at_the_start_exactly_the_combinations_of_common_requests_are_at_0(
    at_start: dict[tuple[str, Row], float], signal: Signal
) -> None:
    name = signal.count if signal.kind is Kind.HISTOGRAM else signal.name
    rows = {row: value for (sample, row), value in at_start.items() if sample == name}
    expected = set[Row]() if signal.name in WHEN_COUNTED else combinations(signal)
    if signal.name in SERVED_ONLY:
        expected = {row for row in expected if ("model", "tiny") in row}
    assert rows == dict.fromkeys(expected, 0.0)


def test_another_endpoint_is_exposed_with_the_outcomes_that_occurred() -> None:
    embeddings = finished(api=Endpoint.EMBEDDINGS, stream=False)
    rows = Fed(embeddings, embeddings).rows("llm_requests_total")
    assert [value for row, value in rows.items() if OF_EMBEDDINGS in row] == [2]
    of_requests = [signal.name for signal in signals.SIGNALS if Label.ROUTE in signal.labels]
    assert [name for name in of_requests if not name.startswith("llm_sidecar_")] == ["llm_requests_total"]


def test_an_answer_that_has_to_be_json_is_counted_by_kind_and_result() -> None:
    tool = {"structured_kind": OutputKind.TOOL_CALL, "structured_result": OutputResult.INVALID}
    fed = Fed(finished(**tool), finished(**tool), finished())
    assert fed.value("llm_structured_requests_total", kind="tool_call", result="invalid") == 2
    assert fed.moved()["llm_structured_requests_total"] == 2


def test_a_model_added_twice_keeps_its_counts() -> None:
    fed = Fed(finished())
    fed.series.add_model("tiny")
    assert fed.value("llm_requests_total", outcome="ok", tenant="team-a", stream="true") == 1


@pytest.mark.parametrize(
    "signal, threshold",
    [
        pytest.param(signals.TTFT, 0.333, id="ttft"),
        pytest.param(signals.TTFT_ANSWER, 0.999, id="ttft_answer"),
        pytest.param(signals.TPOT, 0.077, id="tpot"),
        pytest.param(signals.INTER_CHUNK, 0.222, id="itl_p95"),
        pytest.param(signals.DURATION, 7.0, id="e2e"),
        pytest.param(signals.QUEUE, 3.0, id="queue"),
        pytest.param(signals.PREFILL, 6.0, id="prefill"),
        pytest.param(signals.DECODE, 9.0, id="decode"),
    ],
)
def test_the_threshold_of_an_slo_is_a_bound_of_its_histogram_only(signal: Signal, threshold: float) -> None:
    assert bounds(signal, SLOS) == tuple(sorted({*signal.bounds, threshold}))


def test_token_histograms_keep_their_declared_bounds() -> None:
    assert bounds(signals.REQUEST_PROMPT_TOKENS, SLOS) == signals.TOKENS
    assert gap_bounds(SLOS) == bounds(signals.INTER_CHUNK, SLOS)


def test_a_value_equal_to_a_bound_is_in_its_bucket() -> None:
    fed = Fed(finished(ttft=0.333))
    assert fed.value("llm_time_to_first_token_seconds_bucket", le="0.25") == 0
    assert fed.value("llm_time_to_first_token_seconds_bucket", le="0.333") == 1
    assert fed.value("llm_time_to_first_token_seconds_bucket", le="+Inf") == 1


@pytest.mark.parametrize(
    "relays",
    [
        pytest.param((*(n / 50 for n in range(1, 12)), 0.222, *range(1, 40)), id="more bounds"),
        pytest.param((0.222,), id="fewer bounds"),
    ],
)
def test_gaps_that_a_relay_has_counted_by_another_slo_file_are_counted(relays: tuple[float, ...]) -> None:
    gaps = Gaps(relays)
    gaps.recent.extend([0.2, 0.35, 99.0])
    _, counts, total = gaps.summary()
    fed = Fed(finished(request_class="long", gap_counts=counts, gap_sum=total))
    kind = {"class": "long", "model": "tiny"}
    assert fed.value("llm_inter_chunk_seconds_count", **kind) == 3
    assert fed.value("llm_inter_chunk_seconds_sum", **kind) == total
    assert fed.value("llm_inter_chunk_seconds_bucket", le="0.222", **kind) == 1


def test_a_finished_request_moves_exactly_the_series_that_it_has_values_for() -> None:
    fed = Fed(
        finished(
            prompt_tokens=100,
            completion_tokens=20,
            cached_tokens=64,
            reasoning_tokens=15,
            ttft=0.25,
            ttft_answer=0.4,
            tpot=0.01,
            queue=0.1,
            prefill=0.1,
            decode=1.0,
            gap_counts={gap_bounds(SLOS)[1]: 3, inf: 1},
            gap_sum=12.5,
            slo={"ttft": Verdict.GOOD, "availability": Verdict.GOOD},
            goodput=True,
        )
    )
    assert fed.moved() == {
        "llm_requests_total": 1,
        "llm_requests_with_engine_times_total": 1,
        "llm_requests_by_size_total": 1,
        "llm_requests_by_prompt_length_total": 1,
        "llm_request_duration_seconds_count": 1,
        "llm_time_to_first_token_seconds_count": 1,
        "llm_time_to_first_answer_token_seconds_count": 1,
        "llm_time_per_output_token_seconds_count": 1,
        "llm_inter_chunk_seconds_count": 4,
        "llm_request_frontend_seconds_count": 1,
        "llm_request_queue_seconds_count": 1,
        "llm_request_prefill_seconds_count": 1,
        "llm_request_decode_seconds_count": 1,
        "llm_prompt_tokens_total": 100,
        "llm_completion_tokens_total": 20,
        "llm_cached_prompt_tokens_total": 64,
        "llm_reasoning_tokens_total": 15,
        "llm_request_prompt_tokens_count": 1,
        "llm_request_completion_tokens_count": 1,
        "llm_slo_events_total": 2,
        "llm_goodput_events_total": 1,
        "llm_goodput_requests_total": 1,
        "llm_goodput_tokens_total": 20,
    }
    assert fed.value("llm_inter_chunk_seconds_sum") == 12.5
    assert fed.value("llm_time_to_first_answer_token_seconds_sum") == 0.4
    assert fed.value("llm_request_frontend_seconds_sum") == pytest.approx(0.05)
    assert fed.value("llm_requests_total", outcome="ok", tenant="team-a", stream="true") == 1
    assert fed.value("llm_request_duration_seconds_sum") == 1.5


@pytest.mark.parametrize("outcome", Outcome)
def test_only_requests_that_ended_with_ok_have_a_duration(outcome: Outcome) -> None:
    fed = Fed(finished(outcome=outcome, ttft=0.25))
    assert fed.value("llm_request_duration_seconds_count") == (outcome is Outcome.OK)
    assert fed.value("llm_time_to_first_token_seconds_count") == 1


@pytest.mark.parametrize("outcome", Outcome)
def test_a_stream_that_ended_without_a_first_token_is_counted_by_outcome(outcome: Outcome) -> None:
    fed = Fed(
        finished(outcome=outcome, wait_at_least=1.5),
        finished(outcome=outcome, ttft=0.25),
        finished(outcome=outcome, stream=False),
        finished(outcome=outcome, metered=False),
    )
    assert fed.value("llm_requests_without_first_token_total", outcome=outcome) == 1
    assert fed.moved()["llm_requests_without_first_token_total"] == 1


TRACE = "0af7651916cd43dd8448eb211c80319c"
TIMES = {"ttft": 0.2, "ttft_answer": 0.4, "tpot": 0.01, "queue": 0.1, "prefill": 0.1, "decode": 1.0}


@pytest.mark.parametrize(
    "span_id, traced, shown",
    [
        pytest.param("b7ad6b7169203331", True, True, id="the trace is kept"),
        pytest.param("b7ad6b7169203331", False, False, id="the trace is not kept"),
        pytest.param(None, True, False, id="a trace without a span of the sidecar"),
    ],
)
def test_the_histograms_of_a_request_have_an_exemplar_if_its_trace_is_kept(
    span_id: str | None, traced: bool, shown: bool
) -> None:
    series = RequestMetrics(SLOS)
    series.record(finished(trace_id=TRACE, span_id=span_id, **TIMES), traced=traced)
    samples = [sample for family in whole(series.collect(NOW)) for sample in family.samples]
    samples_by_row = {sample.name: sample.exemplar for sample in samples if sample.exemplar is not None}
    named = {
        signals.TTFT: 0.2,
        signals.TTFT_ANSWER: 0.4,
        signals.TPOT: 0.01,
        signals.DURATION: 1.5,
        signals.FRONTEND: 0.0,
        signals.QUEUE: 0.1,
        signals.PREFILL: 0.1,
        signals.DECODE: 1.0,
    }
    ended = 1_700_000_001.75
    wanted = {signal.bucket: Exemplar({"trace_id": TRACE}, value, ended) for signal, value in named.items()}
    assert samples_by_row == (wanted if shown else {})


@pytest.mark.parametrize(
    "fields, prompt, completion",
    [
        pytest.param({"prompt_tokens": 128, "completion_tokens": 129}, "00128", "00512", id="equal to a bound"),
        pytest.param({"prompt_tokens": 9000, "prompt_estimate": 3.0}, "32768", "none", id="usage before the estimate"),
        pytest.param({"prompt_estimate": 128.25, "outcome": Outcome.REJECTED}, "00512", "none", id="no token"),
        pytest.param(
            {"prompt_estimate": 1e9, "completion_tokens": 40_000, "outcome": Outcome.TRUNCATED},
            "above",
            "above",
            id="tokens before a failure",
        ),
    ],
)
def test_a_request_is_counted_by_size_for_any_outcome(fields: dict[str, Any], prompt: str, completion: str) -> None:
    request = finished(**fields)
    assert [dict(row) for row in Fed(request).rows("llm_requests_by_size_total")] == [
        {"model": "tiny", "prompt_size": prompt, "completion_size": completion, "outcome": request.outcome}
    ]


@pytest.mark.parametrize(
    "fields, length, failed",
    [
        pytest.param({"prompt_tokens": 96, "prompt_estimate": 5.0}, "000096", False, id="a bound"),
        pytest.param({"prompt_estimate": 96.5, "outcome": Outcome.CLIENT_ERROR}, "000128", True, id="an estimate"),
        pytest.param({"prompt_tokens": 131_073, "outcome": Outcome.TRUNCATED}, "above", True, id="above all bounds"),
    ],
)
def test_a_request_is_counted_by_prompt_length_and_class(fields: dict[str, Any], length: str, failed: bool) -> None:
    request = finished(**fields)
    fed = Fed(request)
    labels = {"model": "tiny", "class": request.request_class, "prompt_length": length}
    for name, counted in (("llm_requests", True), ("llm_failed_requests", failed)):
        assert [dict(row) for row in fed.rows(f"{name}_by_prompt_length_total")] == ([labels] if counted else [])


def test_a_request_without_measurements_is_counted() -> None:
    fed = Fed(finished(model="", request_class="other", tenant="other", stream=False, metered=False))
    assert fed.moved() == {"llm_requests_total": 1, "llm_request_duration_seconds_count": 1}


def test_a_model_that_the_engine_does_not_serve_is_other() -> None:
    fed = Fed(finished(model="../../unknown"))
    assert fed.value("llm_requests_total", model="other", outcome="ok", tenant="team-a", stream="true") == 1
    assert not [row for _, row in values(fed.series.collect(NOW)) if ("model", "../../unknown") in row]


def test_an_added_model_has_its_own_label_value_from_then_on() -> None:
    fed = Fed(finished(), models=())
    fed.series.add_model("tiny")
    assert fed.value("llm_requests_total", outcome="ok", tenant="team-a", stream="true") == 0
    fed.series.record(finished())
    assert fed.value("llm_requests_total", outcome="ok", tenant="team-a", stream="true") == 1


def test_above_the_limit_models_are_other_and_a_model_with_a_label_keeps_it() -> None:
    series = RequestMetrics(SLOS, max_models=2)
    for model in ("first", "second", "third", "other", "first"):
        series.add_model(model)
    assert [model for model in ("first", "second", "third") if series.has_model(model)] == ["first", "second"]
    for model in ("first", "second", "third"):
        series.record(finished(model=model))
    rows = values(series.collect(NOW)).items()
    assert {dict(row)["model"]: value for (name, row), value in rows if name == "llm_requests_total" and value} == {
        "first": 1,
        "second": 1,
        "other": 1,
    }


def test_a_served_model_whose_name_may_be_the_beginning_of_another_is_other() -> None:
    longest, ambiguous = "m" * 252, "m" * 256
    fed = Fed(finished(model=longest), finished(model=cut(f"{ambiguous}{longest}")), models=(longest, ambiguous))
    labels = {"outcome": "ok", "tenant": "team-a", "stream": "true"}
    assert fed.value("llm_requests_total", model=longest, **labels) == 1
    assert fed.value("llm_requests_total", model="other", **labels) == 1


def test_unparsed_and_unmetered_requests_are_counted_by_reason() -> None:
    odd = finished(unmetered="SomeLibraryError")
    fed = Fed(finished(unparsed="too_large"), finished(unmetered="KeyError"), finished(unmetered="KeyError"), odd)
    assert fed.rows("llm_sidecar_unparsed_requests_total") == {frozenset({("reason", "too_large")}): 1}
    unmetered = {frozenset({("reason", reason)}): count for reason, count in (("KeyError", 2), ("other", 1))}
    assert fed.rows("llm_sidecar_unmetered_requests_total") == unmetered
    at_0 = {dict(row)["reason"] for name, row in values(Fed().series.collect(NOW)) if "unmetered" in name}
    assert at_0 == {*UNMETERED}


def test_refusals_are_counted_by_status_and_reason_with_and_without_a_valid_head() -> None:
    refusals = [Refused(400, "bad_host"), Refused(431, "head_too_large"), Refused(431, "head_too_large")]
    fed = Fed(*refusals, finished(status=413, refused="body_too_large"), finished(status=413))
    expected = {(400, "bad_host"): 1, (431, "head_too_large"): 2, (413, "body_too_large"): 1}
    assert fed.rows("llm_sidecar_refused_requests_total") == {
        frozenset({("status", str(status)), ("reason", reason)}): value for (status, reason), value in expected.items()
    }


def test_dropped_values_of_the_engine_are_counted_by_the_series_that_lack_them() -> None:
    queue, tokens = "llm_request_queue_seconds", "llm_prompt_tokens_total"
    fed = Fed(finished(dropped_values=[queue, tokens]), finished(dropped_values=[queue]))
    rows = {frozenset({("signal", queue)}): 2, frozenset({("signal", tokens)}): 1}
    assert fed.rows("llm_sidecar_dropped_engine_values_total") == rows


@pytest.mark.parametrize(
    "verdict, events, bad, abandoned",
    [
        pytest.param(Verdict.GOOD, 1, 0, 0, id="good is an event"),
        pytest.param(Verdict.BAD, 1, 1, 0, id="bad is an event and a bad event"),
        pytest.param(Verdict.ABANDONED, 0, 0, 1, id="abandoned is not an event"),
    ],
)
def test_a_verdict_is_counted_as_event(verdict: Verdict, events: int, bad: int, abandoned: int) -> None:
    fed = Fed(finished(slo={"ttft": verdict}))
    names = ("llm_slo_events_total", "llm_slo_bad_events_total", "llm_slo_abandoned_total")
    assert [fed.value(name, slo="ttft", tenant="team-a") for name in names] == [events, bad, abandoned]


def test_goodput_needs_every_verdict_to_be_good() -> None:
    fed = Fed(finished(goodput=False, completion_tokens=9), finished(goodput=None, completion_tokens=9))
    assert fed.value("llm_goodput_events_total", tenant="team-a") == 1
    assert fed.value("llm_goodput_requests_total", tenant="team-a") == 0
    assert fed.value("llm_goodput_tokens_total", tenant="team-a") == 0


def in_two_records(slo: dict[str, Verdict], early: list[str]) -> list[Record]:
    """The verdicts of a request as a relay sends them, those in `early` before its end."""
    first = {name: slo[name] for name in early}
    lost = Verdict.BAD in first.values()
    judged = [verdict for verdict in slo.values() if verdict is not Verdict.ABANDONED]
    good = all(verdict is Verdict.GOOD for verdict in judged) if judged else None
    whole = finished(slo=slo, counted=early, goodput=good, goodput_counted=lost, completion_tokens=5)
    return [Judged("tiny", "short", "team-a", first, lost), whole] if first else [whole]


NAMES = ["ttft", "e2e", "queue", "availability"]


@settings(max_examples=25)
@given(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(list(Verdict))), st.data())
def test_early_and_late_verdicts_are_counted_once(slo: dict[str, Verdict], data: st.DataObject) -> None:
    early = data.draw(
        st.lists(st.sampled_from([n for n in slo if slo[n] is not Verdict.ABANDONED] or ["-"]), unique=True)
    )
    early = [name for name in early if name != "-"]

    def slo_counts(records: list[Record]) -> dict[str, float]:
        return Fed(*records).moved("llm_slo_", "llm_goodput_")

    assert slo_counts(in_two_records(slo, early)) == slo_counts(in_two_records(slo, []))


def snapshot(*rows: OpenRequests, draining: bool = False) -> Snapshot:
    return Snapshot(list(rows), 0.004, 3, draining=draining)


def test_open_requests_are_summed_over_relays_and_the_oldest_wait_is_the_maximum() -> None:
    fed = Fed()
    fed.series.snapshot("relay-0", snapshot(OpenRequests("tiny", "short", 2, 1, NOW - 5)))
    fed.series.snapshot("relay-1", snapshot(OpenRequests("tiny", "short", 1, 4, NOW - 9)))
    assert fed.value("llm_requests_in_flight", phase="waiting") == 3
    assert fed.value("llm_requests_in_flight", phase="streaming") == 5
    assert fed.value("llm_oldest_wait_seconds") == 9
    assert fed.value("llm_oldest_wait_seconds", model="other") == 0


def test_a_warm_up_is_in_a_series_of_its_own_only() -> None:
    warm_up = finished(request_class="warm-up", ttft=0.1, prompt_tokens=9, completion_tokens=4, refused="too_large")
    fed = Fed(warm_up, finished(request_class="warm-up", outcome=Outcome.TRUNCATED))
    fed.series.snapshot("relay-0", snapshot(OpenRequests("tiny", "warm-up", 2, 1, NOW - 5)))
    assert fed.moved("llm_") == {
        "llm_warm_up_requests_total": 2,
        "llm_sidecar_refused_requests_total": 1,
        "llm_sidecar_client_connections": 3,
        "llm_sidecar_loop_lag_seconds": 0.004,
    }
    assert fed.value("llm_warm_up_requests_total", outcome="truncated", **{"class": ""}) == 1
    assert not [row for _, row in values(fed.series.collect(NOW)) if ("class", "warm-up") in row]


def test_a_snapshot_replaces_the_previous_one_and_a_disconnected_relay_has_none() -> None:
    fed = Fed()
    fed.series.snapshot("relay-0", snapshot(OpenRequests("tiny", "short", 2, 0, NOW - 5)))
    fed.series.snapshot("relay-0", snapshot())
    assert fed.value("llm_requests_in_flight", phase="waiting") == 0
    assert fed.value("llm_sidecar_client_connections", process="relay-0", model="", **{"class": ""}) == 3
    fed.series.forget("relay-0")
    assert fed.series.snapshots() == {}
    assert not [name for name, row in values(fed.series.collect(NOW)) if ("process", "relay-0") in row]


def test_open_requests_of_a_model_that_the_engine_does_not_serve_are_other() -> None:
    fed = Fed()
    fed.series.snapshot("relay-0", snapshot(OpenRequests("unknown", "long", 1, 0, NOW)))
    assert fed.value("llm_requests_in_flight", model="other", phase="waiting", **{"class": "long"}) == 1


OTHER_FILE = slo_file.loads(
    """
version: 1
period: 12h
scrape_interval: 1s
tenants: {allow: [team-a, team-b]}
classes: [{name: short, max_tokens: "<=100"}, {name: huge}]
slos:
  - {name: ttft, classes: [short, huge], signal: ttft, threshold: 444ms, objective: 95%}
  - {name: e2e, classes: [short], signal: e2e, threshold: 7s, objective: 95%}
"""
)
"""Without the class `long` and without the SLO `availability`, with another threshold of `ttft`."""


def test_with_another_slo_file_histograms_with_other_bounds_restart_and_other_series_continue() -> None:
    verdicts = {"ttft": Verdict.GOOD, "availability": Verdict.GOOD}
    fed = Fed(finished(ttft=0.2, slo=verdicts), finished(request_class="long", tpot=0.1))
    fed.series.use(OTHER_FILE)
    samples = values(fed.series.collect(NOW))
    ttft = {dict(row)["class"]: n for (name, row), n in samples.items() if name.endswith("first_token_seconds_count")}
    assert ttft == {"short": 0, "huge": 0, "other": 0}
    assert fed.value("llm_time_to_first_token_seconds_bucket", le="0.444") == 0
    assert ("llm_time_to_first_token_seconds_bucket", "0.333") not in {
        (name, dict(row).get("le")) for name, row in samples
    }
    assert fed.value("llm_request_duration_seconds_count") == 1  # the same bounds
    assert fed.value("llm_requests_total", outcome="ok", tenant="team-a", stream="true") == 1
    assert fed.value("llm_slo_events_total", slo="ttft", tenant="team-a") == 1
    assert fed.value("llm_slo_events_total", slo="ttft", tenant="team-b", **{"class": "huge"}) == 0
    assert fed.value("llm_slo_events_total", slo="availability", tenant="team-a") == 1  # removed, but kept
    fed.series.record(
        finished(request_class="long", ttft=0.4, slo={"availability": Verdict.GOOD}, gap_counts={0.222: 1})
    )
    assert fed.value("llm_slo_events_total", slo="availability", tenant="team-a", **{"class": "long"}) == 1
    assert fed.value("llm_time_to_first_token_seconds_bucket", le="0.444", **{"class": "long"}) == 1


def test_open_requests_of_a_class_that_the_slo_file_does_not_have_are_shown() -> None:
    fed = Fed()
    fed.series.use(OTHER_FILE)
    fed.series.snapshot("relay-0", Snapshot([OpenRequests("tiny", "long", 2, 1, NOW - 5)], 0.0, 0, draining=False))
    assert fed.value("llm_requests_in_flight", phase=Phase.WAITING, **{"class": "long"}) == 2
    assert fed.value("llm_requests_in_flight", phase=Phase.STREAMING, **{"class": "long"}) == 1
    assert fed.value("llm_oldest_wait_seconds", **{"class": "long"}) == 5
    assert fed.value("llm_requests_in_flight", phase=Phase.WAITING, **{"class": "huge"}) == 0
