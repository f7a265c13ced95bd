"""Whether answers are the JSON that their requests asked for, on each API."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from exporters.relay.dialects.paths import METERED
from exporters.relay.metering import structured_output
from exporters.relay.metering.meter import Meter
from exporters.relay.metering.structured_output import LIMIT, Checked, StructuredOutput, requested
from exporters.vocabulary.signals import Outcome, OutputKind, OutputResult, Verdict
from tests.contract.recordings import NAMES, recording
from tests.support import scripted_relay
from tests.support.api_streams import block_delta, named, response
from tests.support.event_streams import stream_meter
from tests.support.scripted_relay import DONE, STREAM_HEAD, Received, Script, chunk, closes, holds, staged, streams

CHAT, COMPLETIONS, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
JSON, SCHEMA, TOOL = OutputKind.JSON, OutputKind.JSON_SCHEMA, OutputKind.TOOL_CALL
VALID, INVALID = OutputResult.VALID, OutputResult.INVALID
TRUNCATED, TOO_LARGE = OutputResult.TRUNCATED, OutputResult.TOO_LARGE
TOOLS = [{"type": "function", "function": {"name": "f"}}]
SCHEMA_FORMAT = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}}


@pytest.mark.parametrize(
    "fields, kind",
    [
        pytest.param({"response_format": {"type": "json_object"}}, JSON, id="chat: an object"),
        pytest.param({"response_format": SCHEMA_FORMAT}, SCHEMA, id="chat: a schema"),
        pytest.param({"response_format": {"type": "text"}}, None, id="chat: text"),
        pytest.param({"response_format": {"type": "structural_tag"}}, None, id="chat: structural tags"),
        pytest.param({"response_format": None, "tools": None}, None, id="chat: null"),
        pytest.param({"structured_outputs": {"json": {"type": "object"}}}, SCHEMA, id="vllm: a schema"),
        pytest.param({"structured_outputs": {"json": "{}"}}, SCHEMA, id="vllm: a schema as a string"),
        pytest.param({"structured_outputs": {"json_object": True}}, JSON, id="vllm: an object"),
        pytest.param({"structured_outputs": {"regex": "a+"}}, None, id="vllm: a regular expression"),
        pytest.param({"guided_json": {"type": "object"}}, SCHEMA, id="vllm before 0.12: a schema"),
        pytest.param({"text": {"format": {"type": "json_schema", "schema": {}}}}, SCHEMA, id="responses: a schema"),
        pytest.param({"text": {"format": {"type": "json_object"}}}, JSON, id="responses: an object"),
        pytest.param({"text": {"verbosity": "low"}}, None, id="responses: text"),
        pytest.param({"output_config": {"format": {"type": "json_schema"}}}, SCHEMA, id="messages: a schema"),
        pytest.param({"output_config": {"effort": "low"}}, None, id="messages: text"),
        pytest.param({"output_format": {"type": "json_schema"}}, SCHEMA, id="messages: an earlier form of a schema"),
    ],
)
def test_the_format_in_the_request_says_what_the_text_has_to_be(
    fields: dict[str, Any], kind: OutputKind | None
) -> None:
    output = requested(json.dumps({"model": "m", **fields}).encode(), 1)
    assert (output is None) == (kind is None)
    if output is not None:
        assert output.expected
        output.text("{}")
        assert output.check() == Checked(kind, VALID)  # type: ignore[arg-type]  # not None


@pytest.mark.parametrize(
    "choice, offered",
    [
        pytest.param("auto", True, id="auto"),
        pytest.param("required", True, id="required"),
        pytest.param({"type": "tool", "name": "f"}, True, id="named"),
        pytest.param(None, True, id="default"),
        pytest.param("none", False, id="none"),
        pytest.param({"type": "none"}, False, id="messages: none"),
    ],
)
def test_a_request_that_offers_tools_has_a_result_only_if_the_answer_calls_one(choice: object, offered: bool) -> None:
    output = requested(json.dumps({"tools": TOOLS, "tool_choice": choice}).encode(), 1)
    assert (output is not None) == offered
    if output is not None:
        output.text("no JSON")
        assert not output.expected
        assert output.check() is None


def test_a_body_with_fields_of_other_types_is_not_checked() -> None:
    assert requested(b'{"tools":5}', 1) is None
    assert requested(b"{", 1) is None
    assert requested(b'{"tools":[]}', 1) is None


# Answers of each API.


def chat(*choices: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps({"choices": list(choices)}).encode() + b"\n\n"


def chat_delta(finish: str | None = None, index: int = 0, **delta: Any) -> bytes:
    return chat({"index": index, "delta": delta, "finish_reason": finish})


def tool_call(arguments: str | None, index: int = 0, **more: Any) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, "function": {"arguments": arguments}, **more}]}


def completed(*items: dict[str, Any], status: str = "completed") -> bytes:
    return named({"type": "response.completed", "response": response(status, output=list(items))})


def message(text: str) -> dict[str, Any]:
    return {"type": "message", "content": [{"type": "output_text", "text": text}]}


def function_call(arguments: str) -> dict[str, Any]:
    return {"type": "function_call", "name": "f", "arguments": arguments}


def tool_use(index: int, *arguments: str) -> bytes:
    block = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    start = named({"type": "content_block_start", "content_block": block, "index": index})
    deltas = (
        named(
            {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": each}, "index": index}
        )
        for each in arguments
    )
    return start + b"".join(deltas)


def stop(reason: str) -> bytes:
    return named({"type": "message_delta", "delta": {"stop_reason": reason}}) + named({"type": "message_stop"})


STOP = chat_delta("stop") + DONE
ROLE = chat_delta(role="assistant", content="")
ANSWERS = [
    pytest.param(CHAT, SCHEMA, 1, chat_delta(content='{"a"') + chat_delta(content=":1}") + STOP, VALID, id="chat"),
    pytest.param(CHAT, JSON, 1, ROLE + chat_delta(content="Sure: {}") + STOP, INVALID, id="chat: prose"),
    pytest.param(CHAT, JSON, 1, chat_delta(reasoning="hm") + STOP, INVALID, id="chat: no text"),
    pytest.param(CHAT, JSON, 1, chat_delta(reasoning="hm") + chat_delta(content="{}") + STOP, VALID,
        id="chat: reasoning"),
    pytest.param(CHAT, JSON, 1, chat_delta(content='{"a"') + chat_delta("length") + DONE, TRUNCATED, id="chat: cut"),
    pytest.param(CHAT, JSON, 1, chat_delta(content="[1, 2]\n", finish="stop") + DONE, VALID, id="chat: last delta"),
    pytest.param(COMPLETIONS, JSON, 1, chat({"index": 0, "text": "{}", "finish_reason": "stop"}) + DONE, VALID,
        id="text"),
    pytest.param(
        COMPLETIONS,
        JSON,
        2,
        chat({"index": 1, "text": "{", "finish_reason": None})
        + chat({"index": 0, "text": "{}", "finish_reason": "stop"}, {"index": 1, "text": "}", "finish_reason": "stop"})
        + DONE,
        VALID,
        id="two choices",
    ),
    pytest.param(CHAT, JSON, 2, chat_delta(content="{}") + chat_delta(content="{", index=1) + STOP, INVALID,
        id="one of two choices"),
    pytest.param(CHAT, JSON, 2, chat_delta(content="{}") + STOP, INVALID, id="a choice without output"),
    pytest.param(CHAT, JSON, 2, chat_delta("length", content="{") + chat_delta("stop", 1, content="{}") + DONE,
        TRUNCATED, id="cut"),
    pytest.param(CHAT, JSON, 2, chat_delta("length", content="{") + chat_delta("stop", 1, content="{") + DONE, INVALID,
        id="worst"),
    pytest.param(
        CHAT,
        TOOL,
        1,
        ROLE
        + chat_delta(**tool_call(None, id="c1"))
        + chat_delta(**tool_call('{"city": '))
        + chat_delta(**tool_call('"Rome"}'))
        + STOP,
        VALID,
        id="chat: a tool",
    ),
    pytest.param(CHAT, TOOL, 1, chat_delta(**tool_call("[]")) + STOP, INVALID, id="chat: a tool without an object"),
    pytest.param(CHAT, TOOL, 1, chat_delta(**tool_call("")) + STOP, INVALID, id="chat: a tool without arguments"),
    pytest.param(CHAT, TOOL, 1,
        chat_delta(content="I call") + chat_delta(**tool_call("{}")) + chat_delta(**tool_call("{}", 1)) + STOP, VALID,
        id="chat: two tools and a comment"),
    pytest.param(CHAT, TOOL, 1, chat_delta(**tool_call("{}")) + chat_delta(**tool_call("}", 1)) + STOP, INVALID,
        id="of two tools"),
    pytest.param(CHAT, TOOL, 1, chat_delta("length", **tool_call("{")) + DONE, TRUNCATED, id="chat: a tool, cut"),
    pytest.param(RESPONSES, SCHEMA, 1, completed(message('{"a":1}')), VALID, id="responses"),
    pytest.param(RESPONSES, SCHEMA, 1, completed(message("prose")), INVALID, id="responses: prose"),
    pytest.param(RESPONSES, SCHEMA, 1, completed(), INVALID, id="responses: no text"),
    pytest.param(RESPONSES, JSON, 1, completed(message("{"), status="incomplete"), TRUNCATED, id="responses: cut"),
    pytest.param(
        RESPONSES,
        TOOL,
        1,
        named({"type": "response.output_item.added", "item": function_call("")})
        + completed({"type": "reasoning", "content": []}, function_call("{}"), function_call('{"a":[]}')),
        VALID,
        id="responses: two tools",
    ),
    pytest.param(RESPONSES, TOOL, 1, completed(function_call("{}"), function_call("")), INVALID,
        id="responses: of two tools"),
    pytest.param(
        MESSAGES,
        SCHEMA,
        1,
        block_delta("thinking_delta", "thinking", "hm")
        + block_delta("text_delta", "text", '{"a"')
        + block_delta("text_delta", "text", ":1}")
        + stop("end_turn"),
        VALID,
        id="messages",
    ),
    pytest.param(MESSAGES, JSON, 1, block_delta("text_delta", "text", "prose") + stop("end_turn"), INVALID,
        id="messages: prose"),
    pytest.param(MESSAGES, JSON, 1, block_delta("text_delta", "text", "{") + stop("max_tokens"), TRUNCATED,
        id="messages: cut"),
    pytest.param(MESSAGES, TOOL, 1,
        block_delta("text_delta", "text", "I call") + tool_use(1, "", '{"a"', ":1}") + tool_use(2) + stop("tool_use"),
        VALID, id="messages: two tools, one without parameters"),
    pytest.param(MESSAGES, TOOL, 1, tool_use(0, "{}") + tool_use(1, '{"a"') + stop("tool_use"), INVALID,
        id="messages: of two tools"),
]  # fmt: skip


def checking_meter(path: str, kind: OutputKind, choices: int = 1) -> Meter:
    meter = stream_meter(dialect=METERED[path])
    meter.check(StructuredOutput(None if kind is TOOL else kind, choices))
    return meter


def checked(meter: Meter) -> Checked | None:
    meter.finish(Outcome.OK, 1.0)
    return meter.checked


@pytest.mark.parametrize("path, kind, choices, stream, result", ANSWERS)
def test_a_stream_has_its_result_for_any_split_into_two_reads(
    path: str, kind: OutputKind, choices: int, stream: bytes, result: OutputResult
) -> None:
    for place in range(len(stream)):
        meter = checking_meter(path, kind, choices)
        for read in (stream[:place], stream[place:]):
            meter.stream(read, 1.0)
        assert checked(meter) == Checked(kind, result), place


UNARY = [
    (CHAT, JSON, {"choices": [{"message": {"content": "{}"}, "finish_reason": "stop"}]}, VALID),
    (CHAT, JSON, {"choices": [{"message": {"content": None}, "finish_reason": "stop"}]}, INVALID),
    (CHAT, JSON, {"choices": [{"message": {"content": "{"}, "finish_reason": "length"}]}, TRUNCATED),
    (CHAT, TOOL, {"choices": [{"message": {"tool_calls": [{"function": {"arguments": "{}"}}] * 2}}]}, VALID),
    (CHAT, TOOL, {"choices": [{"message": {"tool_calls": [{"function": {"arguments": "x"}}, {}]}}]}, INVALID),
    (COMPLETIONS, JSON, {"choices": [{"text": "{}", "finish_reason": "stop"}]}, VALID),
    (RESPONSES, JSON, {"object": "response", "status": "completed", "output": [message("{}")]}, VALID),
    (RESPONSES, TOOL, {"status": "completed", "output": [function_call("{}"), function_call("{")]}, INVALID),
    (RESPONSES, JSON, {"status": "incomplete", "output": [message("{")]}, TRUNCATED),
    (MESSAGES, JSON, {"type": "message", "content": [{"type": "text", "text": "{}"}]}, VALID),
    (MESSAGES, TOOL, {"type": "message", "content": [{"type": "tool_use", "input": {"a": 1}}]}, VALID),
    (MESSAGES, TOOL, {"type": "message", "content": [{"type": "tool_use", "input": "a"}]}, INVALID),
    (MESSAGES, JSON, {"content": [{"type": "text", "text": "{"}], "stop_reason": "max_tokens"}, TRUNCATED),
]


@pytest.mark.parametrize("path, kind, body, result", UNARY)
def test_a_unary_answer_has_its_result(path: str, kind: OutputKind, body: object, result: OutputResult) -> None:
    meter = checking_meter(path, kind)
    meter.unary(json.dumps(body).encode())
    meter.unary_end()
    assert checked(meter) == Checked(kind, result)


RECORDED = [name for name in NAMES if "-tool-" in name]


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_tool_call_is_valid_and_its_stream_takes_no_fast_path(name: str) -> None:
    recorded = recording(name)
    output = requested(recorded.body, 1)
    assert output is not None
    meter = stream_meter(dialect=METERED[recorded.path])
    meter.check(output)
    if name.endswith("-unary"):
        meter.unary(recorded.content)
        meter.unary_end()
    for event in recorded.content.split(b"\n\n") if name.endswith("-stream") else []:
        meter.stream(event + b"\n\n", 1.0)
        assert meter.pattern is None
    assert checked(meter) == Checked(TOOL, VALID)


@pytest.mark.parametrize("length, result", [(LIMIT, VALID), (LIMIT + 1, TOO_LARGE)])
@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
def test_an_answer_over_the_limit_is_not_checked_and_is_released(path: str, length: int, result: OutputResult) -> None:
    text = '"' + "a" * (length - 2) + '"'
    streams = {
        CHAT: [chat_delta(content=text), chat_delta(content=""), STOP],
        RESPONSES: [completed(message(text))],
        MESSAGES: [block_delta("text_delta", "text", text), stop("end_turn")],
    }
    output = StructuredOutput(JSON, 1)
    meter = stream_meter(dialect=METERED[path])
    meter.check(output)
    for event in streams[path]:
        meter.stream(event, 1.0)
        assert bool(output._choices) == (result is VALID)
    assert checked(meter) == Checked(JSON, result)
    assert not output._choices


def test_many_empty_tool_calls_count_for_the_limit() -> None:
    output = StructuredOutput(None, 1)
    for number in range(LIMIT // structured_output.CALL_BYTES + 1):
        output.call(number, "")
    assert not output._choices
    output.call(0, "{}")
    assert output.check() == Checked(TOOL, TOO_LARGE)


def test_a_unary_body_that_is_too_large_to_be_parsed_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exporters.relay.metering.meter.MAX_PARSED", 10)
    meter = checking_meter(CHAT, JSON)
    meter.unary(b'{"choices":[]}')
    meter.unary_end()
    assert checked(meter) == Checked(JSON, TOO_LARGE)


def test_output_of_another_form_is_not_checked() -> None:
    meter = checking_meter(RESPONSES, JSON)
    meter.stream(completed({"type": "message", "content": "a text"}), 1.0)
    assert checked(meter) is None


def test_no_value_of_the_json_is_created_to_check_it() -> None:
    """Creating the values of 1 MiB takes up to 60 ms."""
    assert isinstance(structured_output._check_json(b"[1]"), msgspec.Raw)
    assert structured_output._Object.__struct_fields__ == ()


def strictly(text: str) -> bool:
    def no_constant(name: str) -> None:
        raise ValueError(name)

    try:
        json.loads(text, parse_constant=no_constant)
    except ValueError:
        return False
    return True


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
SPOILERS = ["", "{", "}", "[", "]", ",", ":", '"', "\\", "0", "-", ".", "e", "\n", "\x01", "t", "\\u12", "\ufeff", "/"]


@settings(max_examples=50)
@given(value=JSONS, spoiler=st.sampled_from(SPOILERS), at=st.integers(0, 100), spaces=st.sampled_from([None, 1]))
@example(value=None, spoiler="", at=0, spaces=None)
def test_an_answer_is_valid_if_a_strict_parser_accepts_it(
    value: object, spoiler: str, at: int, spaces: int | None
) -> None:
    text = json.dumps(value, indent=spaces, ensure_ascii=False)
    place = at % (len(text) + 1)
    text = text[:place] + spoiler + text[place:]
    output = StructuredOutput(JSON, 1)
    output.text(text)
    assert output.check() == Checked(JSON, VALID if strictly(text) else INVALID)


@settings(max_examples=40)
@given(st.sampled_from(sorted(METERED)), st.binary(max_size=60) | JSONS.map(lambda value: json.dumps(value).encode()))
def test_no_event_raises_an_error(path: str, event: bytes) -> None:
    meter = checking_meter(path, JSON)
    meter.stream(b"data: " + event + b"\n\n", 1.0)
    meter.unary(event)
    meter.unary_end()
    checked(meter)


# Through the relay.

OUTPUT_SLOS = scripted_relay.SLOS + "  - {name: json, classes: [short], signal: valid_output, objective: 99%}\n"


def breaks(*events: bytes) -> Script:
    return closes(STREAM_HEAD, *map(chunk, events))


async def rejects(received: Received) -> None:
    await received.send(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n")


def ask(**fields: Any) -> bytes:
    body = {"model": "m", "stream": True, "max_tokens": 50, "messages": [], **fields}
    return scripted_relay.post(json.dumps(body).encode())


OBJECT = ask(response_format={"type": "json_object"})
WITH_TOOLS = ask(tools=TOOLS)
GOOD, BAD = Verdict.GOOD, Verdict.BAD
EVENT = [
    pytest.param(OBJECT, streams(chat_delta(content="{}"), STOP), (JSON, VALID), GOOD, id="valid"),
    pytest.param(OBJECT, streams(chat_delta(content="{"), STOP), (JSON, INVALID), BAD, id="invalid"),
    pytest.param(OBJECT, streams(chat_delta("length", content="{"), DONE), (JSON, TRUNCATED), None, id="token limit"),
    pytest.param(OBJECT, streams(chat_delta(content="a" * (LIMIT + 1)), STOP), (JSON, TOO_LARGE), None, id="too large"),
    pytest.param(OBJECT, breaks(chat_delta(content="{}")), (None, None), BAD, id="broken stream"),
    pytest.param(OBJECT, rejects, (None, None), BAD, id="rejected"),
    pytest.param(WITH_TOOLS, streams(chat_delta(**tool_call("{}")), STOP), (TOOL, VALID), GOOD, id="a tool call"),
    pytest.param(WITH_TOOLS, streams(chat_delta(content="text"), STOP), (None, None), None, id="no tool call"),
    pytest.param(WITH_TOOLS, breaks(chat_delta(content="text")), (None, None), None, id="broken before a tool call"),
    pytest.param(WITH_TOOLS, breaks(chat_delta(**tool_call("{"))), (None, None), BAD, id="broken tool call"),
    pytest.param(WITH_TOOLS, rejects, (None, None), None, id="rejected with tools"),
    pytest.param(ask(), streams(chat_delta(content="text"), STOP), (None, None), None, id="nothing asked"),
]


@pytest.mark.parametrize("request_, script, result, verdict", EVENT)
async def test_a_complete_answer_has_a_result_and_an_slo_event(
    tmp_path: Path, request_: bytes, script: Script, result: tuple[object, object], verdict: Verdict | None
) -> None:
    async with staged(tmp_path, script, slo_file=OUTPUT_SLOS, check_structured_output=True) as stage:
        await stage.ask(request_)
        record = await stage.record()
    assert (record.structured_kind, record.structured_result) == result
    assert record.slo.get("json") == verdict
    assert record.unmetered is None


async def test_a_client_that_leaves_abandons_the_slo_of_a_request_for_json(tmp_path: Path) -> None:
    async with staged(
        tmp_path, holds(STREAM_HEAD, chunk(chat_delta(content="{"))), slo_file=OUTPUT_SLOS, check_structured_output=True
    ) as stage:
        for number, (request, verdict) in enumerate([(OBJECT, Verdict.ABANDONED), (WITH_TOOLS, None)], 1):
            client = await stage.client(request)
            await client.until(b"data: ")
            client.leave()
            record = await stage.record(number)
            assert (record.outcome, record.slo.get("json")) == (Outcome.CLIENT_ABORT, verdict)


async def test_without_the_flag_nothing_is_collected_and_all_streams_take_the_fast_path(tmp_path: Path) -> None:
    """With it, only those do not whose answers may have to be JSON."""
    for checks in (False, True):
        async with staged(
            tmp_path,
            holds(STREAM_HEAD, chunk(chat_delta(content="a")), chunk(chat_delta(content="b"))),
            check_structured_output=checks,
        ) as stage:
            for request, fast in ((OBJECT, not checks), (WITH_TOOLS, not checks), (ask(), True)):
                client = await stage.client(request)
                await client.until(b'"b"')
                (exchange,) = stage.relay._open
                assert (exchange.measurement.structured is None) == fast
                assert (exchange.measurement.fast_path(lambda _: None) is not None) == fast
                client.leave()
                await stage.record(len(stage.requests))
