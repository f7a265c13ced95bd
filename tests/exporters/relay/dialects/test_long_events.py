"""Long events and responses are measured as short ones are, up to a number of elements in their lists."""

import json

import pytest

from exporters.http.sse import LONG_EVENT, MAX_EVENT_LINES, payload
from exporters.relay.bodies.request_body import MAX_PARSED_AGAIN
from exporters.relay.dialects.dialect import MAX_CHOICES, text_of
from exporters.relay.dialects.paths import METERED
from exporters.relay.metering.structured_output import LIMIT, Checked, StructuredOutput
from exporters.vocabulary import engine_values
from exporters.vocabulary.signals import Outcome, OutputKind, OutputResult
from tests.contract.recordings import NAMES, recording
from tests.support.event_streams import stream_meter

STREAMS = [
    name
    for name in NAMES
    if recording(name).path in METERED and recording(name).content.startswith((b"data:", b"event:"))
]


def objects(name: str) -> list[dict[str, object]]:
    """The events of a recorded stream that are JSON."""
    return [json.loads(event.data) for event in recording(name).events if event.data.startswith("{")]


ANSWERS = [name for name in NAMES if recording(name).path in METERED and recording(name).content.startswith(b"{")]
TRANSCRIPT = {"type": "transcript.text.delta", "delta": "a"}
TRANSCRIBED = {"type": "transcript.text.done", "usage": {"input_tokens": 1, "output_tokens": 2}}
CALL = {"choices": [{"delta": {"tool_calls": [{"index": 0}, {"index": 1}]}}, {"delta": {"content": "a"}}]}
EVENTS = [
    pytest.param("/v1/chat/completions", [CALL], id="two tool calls"),
    pytest.param("/v1/chat/completions", [{"choices": [{"text": ""}, {"text": "b"}]}], id="several choices"),
    pytest.param("/v1/chat/completions", [{"choices": [], "id": ["a"], "model": 7}], id="no choice"),
    pytest.param("/v1/chat/completions", [{"error": {"message": "a"}}], id="an error"),
    pytest.param("/v1/audio/transcriptions", [TRANSCRIPT, TRANSCRIBED], id="a transcript and its end"),
    *(pytest.param(recording(name).path, objects(name), id=name) for name in STREAMS),
]


def measured(path: str, data: bytes, *, long: bool) -> list[object]:
    """What is measured of an event."""
    dialect = METERED[path]
    event = (dialect.decode_long if long else dialect.decode_first)(data)
    usage = event.usage
    return [
        *(event.output, event.answer, event.carries_choice, event.finish_reason, event.failed, event.ends),
        *(event.carries_tool_call, event.ends_tool_call, event.system_fingerprint, event.metrics),
        *(text_of(event.response_id), text_of(event.response_model)),
        usage and usage.counts(lambda number, _: engine_values.read(number, engine_values.count)),
    ]


@pytest.mark.parametrize("path, events", EVENTS)
def test_a_long_event_is_measured_as_a_short_one(path: str, events: list[dict[str, object]]) -> None:
    for event in events:
        short = json.dumps(event).encode()
        long = json.dumps({"filler": "x" * LONG_EVENT, **event}).encode()
        assert measured(path, long, long=True) == measured(path, short, long=False)


def test_a_long_event_is_decoded_as_one() -> None:
    one = stream_meter()
    choices = [{"text": ""}] * (MAX_CHOICES - 1) + [{"text": "a", "finish_reason": "stop"}] + [7] * LONG_EVENT
    one.stream(b'data: {"choices":%s,"usage":{"prompt_tokens":3}}\n\n' % json.dumps(choices).encode(), 1.0)
    assert (one.chunks, one.finish_reason, one.prompt_tokens) == (1, "stop", 3)


@pytest.mark.parametrize("name", ANSWERS)
def test_a_long_answer_has_the_figures_of_a_short_one(name: str) -> None:
    path, body = recording(name).path, json.loads(recording(name).content)
    figures = []
    for filler in ({}, {"filler": "x" * LONG_EVENT}):
        one = stream_meter(dialect=METERED[path])
        one.unary(json.dumps({**filler, **body}).encode())
        one.unary_end()
        figures.append((one.prompt_tokens, one.completion_tokens, one.finish_reason, one.response_id, one.fingerprint))
    assert figures[0] == figures[1]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_an_event_of_too_many_lines_is_forwarded_and_not_parsed(end: bytes) -> None:
    lines = [b'data: {"choices":[{"text":"a"}],', *[b"data:"] * (MAX_EVENT_LINES - 3), b'data: "usage":{}}', b""]
    event = end.join(lines) + end
    assert payload(event)
    longer = b"data:" + end + event
    assert payload(longer) == b""
    one = stream_meter()
    assert one.stream(longer + b"data: [DONE]" + end + end, 1.0).startswith(longer)
    assert (one.chunks, one.done) == (0, True)


@pytest.mark.parametrize(
    "choices, result", [(MAX_CHOICES, OutputResult.VALID), (MAX_CHOICES + 1, OutputResult.TOO_LARGE)]
)
def test_the_output_of_too_many_choices_is_not_checked(choices: int, result: OutputResult) -> None:
    one = stream_meter()
    one.check(StructuredOutput(OutputKind.JSON, choices))
    answer = {"choices": [{"index": index, "message": {"content": "{}"}} for index in range(choices)]}
    one.unary(json.dumps(answer).encode())
    one.unary_end()
    one.finish(Outcome.OK, 1.0)
    assert one.checked == Checked(OutputKind.JSON, result)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(b'"%s"' % (b"x" * MAX_PARSED_AGAIN), id="very long"),
        pytest.param(b"[" + b"[]," * LONG_EVENT + b"1]", id="mostly brackets"),
    ],
)
def test_the_output_of_an_answer_that_takes_long_to_parse_is_not_collected(other: bytes) -> None:
    assert MAX_PARSED_AGAIN > LIMIT
    one = stream_meter()
    one.check(StructuredOutput(OutputKind.JSON, 1))
    one.unary(b'{"x":%s,"choices":[{"message":{"content":"{}"}}]}' % other)
    one.unary_end()
    one.finish(Outcome.OK, 1.0)
    assert one.checked == Checked(OutputKind.JSON, OutputResult.TOO_LARGE)
