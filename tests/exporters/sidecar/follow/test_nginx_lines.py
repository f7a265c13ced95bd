"""What is told from one line of an nginx access log."""

import json
from textwrap import indent

import pytest

from exporters.requestlog.reader import BadLineError
from exporters.sidecar.follow.nginx_lines import NginxLines, judged_by_nginx
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
LINES = NginxLines(judged_by_nginx(SLOS))


def line(**fields: object) -> bytes:
    return json.dumps(LINE | fields).encode()


def test_a_line_is_the_record_of_a_request() -> None:
    record = LINES.record(line())
    assert record is not None
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
    record = LINES.record(line(**fields))
    assert record is not None
    assert record.outcome is outcome


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"uri": "/metrics"}, id="a path that a sidecar does not relay"),
        pytest.param({"method": "OPTIONS"}, id="a preflight"),
    ],
)
def test_a_line_that_is_no_request_is_ignored(fields: dict[str, object]) -> None:
    assert LINES.record(line(**fields)) is None


def test_the_type_of_a_stream_is_recognised_in_any_case() -> None:
    record = LINES.record(line(content_type="Text/Event-Stream"))
    assert record is not None
    assert record.stream


def test_an_allowed_path_is_a_request() -> None:
    record = NginxLines(SLOS, ["/custom"]).record(line(uri="/custom?x=1"))
    assert record is not None
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
    record = NginxLines(slos).record(line(**{"class": ""}))
    assert record is not None
    assert record.request_class == expected


def test_a_warm_up_has_no_verdict() -> None:
    record = LINES.record(line(**{"class": "warm-up"}))
    assert record is not None
    assert (record.request_class, record.slo) == ("warm-up", {})


def test_a_slow_request_is_bad_and_a_long_one_is_available() -> None:
    record = LINES.record(line(request_time=90.0))
    assert record is not None
    assert record.slo == {"e2e": Verdict.BAD, "availability": Verdict.GOOD}


def test_invalid_utf_8_from_a_client_does_not_make_a_line_bad() -> None:
    record = LINES.record(line(tenant="X").replace(b"X", b"\xff\xfe"))
    assert record is not None
    assert record.tenant == "other"


@pytest.mark.parametrize(
    "text, reason",
    [
        pytest.param(b"", "Input data was truncated", id="empty"),
        pytest.param(b"127.0.0.1 - - [22/Nov/2026]", "Expected `object`, got `float`", id="combined format"),
        pytest.param(b'{"msec": 1.5}', "Object missing required field `request_time`", id="other fields"),
    ],
)
def test_a_line_of_another_format_is_bad(text: bytes, reason: str) -> None:
    with pytest.raises(BadLineError) as error:
        LINES.record(text)
    assert str(error.value) == reason


def test_the_documented_log_format_is_the_file() -> None:
    documented = (ROOT / "docs" / "follow.md").read_text(encoding="utf-8")
    assert indent(FORMAT.read_text(encoding="utf-8"), "    ") in documented
