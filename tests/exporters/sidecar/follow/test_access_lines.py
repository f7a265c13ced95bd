"""Records from lines of access logs: nginx in detail, and real lines of Envoy and LiteLLM."""

import json
from pathlib import Path
from textwrap import indent

import pytest

from exporters.records.messages import Finished
from exporters.requestlog.reader import BadLineError
from exporters.sidecar.follow.access_fields import SHIPPED, load
from exporters.sidecar.follow.access_lines import AccessLines, judged_by
from exporters.vocabulary.signals import Endpoint, Outcome, Verdict
from exporters.vocabulary.slo_file import loads
from tests.exporters.sidecar.follow.nginx_process import FORMAT
from tests.support.sample_records import SLOS
from tests.support.sidecar_process import ROOT

LINE = {
    "msec": 1_700_000_001.75,
    "request_time": 1.5,
    "status": 200,
    "method": "POST",
    "uri": "/v1/chat/completions",
    "request_id": "r-1",
    "class": "short",
    "tenant": "team-a",
    "content_type": "text/event-stream; charset=utf-8",
    "request_completion": "OK",
    "upstream_status": "200",
    "upstream_header_time": "0.009",
}
NGINX, ENVOY, LITELLM = (load(SHIPPED / f"{name}.yaml") for name in ("nginx", "envoy", "litellm"))
LINES = AccessLines(NGINX, judged_by(NGINX, SLOS))

REAL_LINES = Path(__file__).parent / "lines"


def line(**fields: object) -> bytes:
    return json.dumps(LINE | fields).encode()


def record_of(text: bytes, lines: AccessLines = LINES) -> Finished:
    record = lines.record(text)
    assert record is not None
    return record


def test_a_line_is_the_record_of_a_request() -> None:
    record = record_of(line())
    assert (record.time, record.e2e, record.request_id) == (1_700_000_000.25, 1.5, "r-1")
    assert (record.request_class, record.tenant, record.api) == ("short", "team-a", Endpoint.CHAT_COMPLETIONS)
    assert record.stream
    assert record.slo == {"e2e": Verdict.GOOD, "availability": Verdict.GOOD}
    assert (record.goodput, record.ttft, record.prompt_tokens) == (None, None, None)


@pytest.mark.parametrize(
    "fields, outcome",
    [
        pytest.param({}, Outcome.OK, id="complete"),
        pytest.param({"request_completion": ""}, Outcome.CLIENT_ABORT, id="not complete: most likely the client"),
        pytest.param({"status": 499, "request_completion": ""}, Outcome.CLIENT_ABORT, id="client closed"),
        pytest.param({"status": 404}, Outcome.CLIENT_ERROR, id="404"),
        pytest.param({"status": 429}, Outcome.REJECTED, id="429"),
        pytest.param({"status": 503, "upstream_status": ""}, Outcome.REJECTED, id="503 of nginx"),
        pytest.param({"status": 500}, Outcome.UPSTREAM_ERROR, id="500"),
        pytest.param({"status": 502}, Outcome.UPSTREAM_ERROR, id="502 of the engine"),
        pytest.param({"status": 502, "upstream_header_time": "-"}, Outcome.UPSTREAM_UNREACHABLE, id="502 of nginx"),
        pytest.param(
            {"status": 502, "upstream_status": "502, 502", "upstream_header_time": "0.1, -"},
            Outcome.UPSTREAM_UNREACHABLE,
            id="502 of nginx after a retry",
        ),
        pytest.param({"status": 504, "upstream_header_time": "-"}, Outcome.TIMEOUT_IDLE, id="timeout of nginx"),
    ],
)
def test_the_outcome_follows_from_status_and_completion(fields: dict[str, object], outcome: Outcome) -> None:
    assert record_of(line(**fields)).outcome is outcome


def test_a_path_that_a_sidecar_does_not_relay_and_a_preflight_are_ignored() -> None:
    assert LINES.record(line(uri="/metrics")) is None
    assert LINES.record(line(method="OPTIONS")) is None


def test_the_type_of_a_stream_is_recognised_in_any_case() -> None:
    assert record_of(line(content_type="Text/Event-Stream")).stream


def test_an_allowed_path_is_a_request() -> None:
    record = record_of(line(uri="/custom?x=1"), AccessLines(NGINX, SLOS, ["/custom"]))
    assert (record.route, record.request_class, record.slo) == ("/custom", "other", {})


@pytest.mark.parametrize(
    "classes, expected",
    [
        pytest.param("{name: a, route: embeddings}, {name: b}", "b", id="the first that fits"),
        pytest.param('{name: a, prompt_tokens: "<9"}, {name: b}', "other", id="unknown without the size of the prompt"),
        pytest.param('{name: a}, {name: b, max_tokens: "<9"}', "a", id="a size that does not matter"),
        pytest.param("{name: a, route: embeddings}", "other", id="none"),
    ],
)
def test_without_a_header_the_class_depends_on_the_endpoint(classes: str, expected: str) -> None:
    slos = loads(
        f"version: 1\nperiod: 30d\nclasses: [{classes}]\nslos:\n"
        "  - {name: up, classes: [a], signal: availability, objective: 99%}\n"
    )
    assert record_of(line(**{"class": ""}), AccessLines(NGINX, slos)).request_class == expected


def test_a_warm_up_has_no_verdict() -> None:
    record = record_of(line(**{"class": "warm-up"}))
    assert (record.request_class, record.slo) == ("warm-up", {})


def test_a_slow_request_is_bad_and_a_long_one_is_available() -> None:
    assert record_of(line(request_time=90.0)).slo == {"e2e": Verdict.BAD, "availability": Verdict.GOOD}


def test_invalid_utf_8_from_a_client_does_not_make_a_line_bad() -> None:
    assert record_of(line(tenant="X").replace(b"X", b"\xff\xfe")).tenant == "other"


@pytest.mark.parametrize(
    "text, reason",
    [
        pytest.param(b"", "Input data was truncated", id="empty"),
        pytest.param(b"127.0.0.1 - - [22/Nov/2026]", "Expected `object`, got `float`", id="combined format"),
        pytest.param(b'{"msec": 1.5}', "the field uri is missing", id="other fields"),
        pytest.param(line(status=None), "the field status is missing", id="no status"),
        pytest.param(line(request_time="fast"), "request_time: expected a number, found 'fast'", id="not a number"),
        pytest.param(
            line(request_time=-1), "request_time: expected a number of at least 0, found -1", id="a negative number"
        ),
    ],
)
def test_a_line_of_another_format_is_bad(text: bytes, reason: str) -> None:
    with pytest.raises(BadLineError) as error:
        LINES.record(text)
    assert str(error.value) == reason


def test_the_documented_log_format_is_the_file() -> None:
    documented = (ROOT / "docs" / "follow.md").read_text(encoding="utf-8")
    assert indent(FORMAT.read_text(encoding="utf-8"), "    ") in documented


SIZES = loads(
    """
version: 1
period: 30d
first_token_timeout: 30s
tenants: {header: x-tenant, allow: [team-a]}
classes: [{name: short, max_tokens: "<100"}, {name: long}]
slos:
  - {name: ttft, classes: [short, long], signal: ttft, threshold: 45ms, objective: 95%}
  - {name: tpot, classes: [short, long], signal: tpot, threshold: 25ms, objective: 95%}
  - {name: e2e, classes: [short, long], signal: e2e, threshold: 1s, objective: 95%}
  - {name: queue, classes: [short, long], signal: queue, threshold: 1s, objective: 95%}
"""
)


@pytest.mark.parametrize(
    "name, expected",
    [
        pytest.param(
            "envoy",
            [
                ("/v1/chat/completions", False, 200, Outcome.OK),
                ("/v1/chat/completions", True, 200, Outcome.OK),
                ("/v1/chat/completions", False, 404, Outcome.CLIENT_ERROR),
                ("/v1/completions", False, 503, Outcome.UPSTREAM_UNREACHABLE),
                ("/v1/embeddings", False, 503, Outcome.REJECTED),
                ("/tokenize", False, 504, Outcome.TIMEOUT_IDLE),
                ("/v1/models", False, 200, Outcome.OK),
                None,  # /metrics
                ("/v1/chat/completions", True, 200, Outcome.CLIENT_ABORT),
                ("/v1/score", True, 200, Outcome.TRUNCATED),
                ("/v1/rerank", False, 503, Outcome.UPSTREAM_ERROR),
                None,  # OPTIONS
            ],
            id="Envoy 1.40",
        ),
        pytest.param(
            "litellm",
            [
                ("/v1/chat/completions", False, 200, Outcome.OK),
                ("/v1/chat/completions", False, 400, Outcome.CLIENT_ERROR),
                ("/v1/chat/completions", False, 500, Outcome.UPSTREAM_UNREACHABLE),
                ("/v1/chat/completions", False, 408, Outcome.TIMEOUT_IDLE),
                ("/v1/chat/completions", True, 200, Outcome.OK),
                ("/v1/chat/completions", True, 499, Outcome.CLIENT_ABORT),
            ],
            id="LiteLLM 1.110",
        ),
    ],
)
def test_real_lines_of_a_gateway_have_these_outcomes(name: str, expected: list[tuple[object, ...] | None]) -> None:
    lines = AccessLines(load(SHIPPED / f"{name}.yaml"), SIZES)
    records = [lines.record(each) for each in (REAL_LINES / f"{name}.jsonl").read_bytes().splitlines()]
    found = [each and (each.route, each.stream, each.status, each.outcome) for each in records]
    assert found == expected


def litellm_line(number: int) -> bytes:
    return (REAL_LINES / "litellm.jsonl").read_bytes().splitlines()[number]


def test_a_log_with_tokens_and_the_time_of_the_first_one_gives_latencies_and_their_verdicts() -> None:
    record = record_of(litellm_line(4), AccessLines(LITELLM, judged_by(LITELLM, SIZES)))
    assert (record.prompt_tokens, record.completion_tokens, record.cached_tokens, record.max_tokens) == (10, 5, 0, 5)
    assert (record.request_class, record.tenant, record.model) == ("short", "team-a", "tiny")
    assert record.ttft == pytest.approx(0.050952, abs=1e-6)
    assert record.e2e == pytest.approx(0.182529, abs=1e-6)
    assert record.tpot == pytest.approx((0.182529 - 0.050952) / 4, abs=1e-6)
    assert record.slo == {"ttft": Verdict.BAD, "tpot": Verdict.BAD, "e2e": Verdict.GOOD}


def test_a_failed_request_has_no_latency_and_no_tokens() -> None:
    record = record_of(litellm_line(2), AccessLines(LITELLM, judged_by(LITELLM, SIZES)))
    assert (record.ttft, record.prompt_tokens, record.completion_tokens) == (None, None, None)
    assert record.slo == {"e2e": Verdict.BAD}
