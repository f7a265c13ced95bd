"""A line of the request log counts in the series as the record from which it was written."""

from typing import Any

import pytest

from exporters.records.messages import Finished
from exporters.requestlog.reader import parse_line
from exporters.requestlog.writer import encode_line
from exporters.sidecar.ingest.logged_records import record_of
from exporters.sidecar.ingest.request_metrics import RequestMetrics
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Endpoint, Outcome, OutputKind, OutputResult, Verdict
from exporters.vocabulary.verdicts import goodput
from tests.support.openmetrics import whole
from tests.support.sample_records import SLOS, finished


def counted(record: Finished) -> dict[str, float]:
    """All series that the record changes."""
    metrics = RequestMetrics(SLOS)
    metrics.add_model("tiny")
    metrics.record(record)
    samples = [sample for family in whole(metrics.collect(0.0)) for sample in family.samples]
    return {f"{sample.name}{sample.labels}": sample.value for sample in samples if sample.value}


VERDICTS = {"ttft": Verdict.BAD, "e2e": Verdict.GOOD, "queue": Verdict.ABANDONED}


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="few fields"),
        pytest.param(
            {
                "ttft": 0.25,
                "ttft_answer": 0.5,
                "tpot": 0.0625,
                "queue": 0.0625,
                "prefill": 0.125,
                "decode": 1.0,
                "before_relay": 0.03125,
                "prompt_tokens": 900,
                "completion_tokens": 20,
                "reasoning_tokens": 7,
                "cached_tokens": 300,
                "slo": VERDICTS,
                "goodput": goodput(VERDICTS.values()),
            },
            id="a stream with all times and tokens",
        ),
        pytest.param(
            {"prompt_tokens": 9, "slo": {"e2e": Verdict.GOOD, "ttft": Verdict.GOOD}, "goodput": True}, id="goodput"
        ),
        pytest.param(
            {"outcome": Outcome.UPSTREAM_ERROR, "status": 502, "stream": False, "slo": {"availability": Verdict.BAD}}
            | {"goodput": False},
            id="an error",
        ),
        pytest.param({"outcome": Outcome.TIMEOUT_FIRST_TOKEN, "wait_at_least": 1.5}, id="no first token"),
        pytest.param({"route": "/v1/embeddings", "api": Endpoint.EMBEDDINGS, "stream": False}, id="embeddings"),
        pytest.param({"route": "/v1/responses", "api": Endpoint.RESPONSES}, id="responses"),
        pytest.param({"route": "/v1/responses", "api": Endpoint.RESPONSES_BACKGROUND}, id="background"),
        pytest.param({"model": "unknown", "tenant": "other", "request_class": "long"}, id="other labels"),
        pytest.param({"prompt_repeat": True, "body_repeat": True, "shareable_tokens": 40}, id="repeats"),
        pytest.param(
            {"structured_kind": OutputKind.TOOL_CALL, "structured_result": OutputResult.INVALID}, id="checked output"
        ),
    ],
)
def test_a_line_counts_as_its_record(fields: dict[str, Any]) -> None:
    record = finished(**fields)
    series = counted(record_of(parse_line(encode_line(record, "run:1", None))))
    assert series == counted(record)
    assert any(name.startswith(signals.REQUESTS.name) for name in series)
