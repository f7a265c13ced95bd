"""The time of the first complete tool call of a stream, in each API."""

import json
from pathlib import Path
from typing import Any

import pytest

from exporters.relay.dialects.paths import METERED
from tests.support.api_streams import APIS, MESSAGES, RESPONSES, block_delta, delta, named, post
from tests.support.event_streams import stream_as_relay, stream_meter
from tests.support.scripted_relay import DONE, content, staged, streams

CHAT_PATH = APIS["chat"].path


def calls(*indices: int | None, finish: str | None = None) -> bytes:
    """An event of chat with a part of these tool calls."""
    parts = [{"index": index, "function": {"arguments": "{"}} for index in indices]
    choice: dict[str, Any] = {"index": 0, "delta": {"tool_calls": parts} if parts else {}, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def raw_call(part: str) -> bytes:
    return b'data: {"choices":[{"delta":{"tool_calls":[%s]}}]}\n\n' % part.encode()


def done(kind: str) -> bytes:
    return named({"arguments": "{}", "item_id": "fc_1", "sequence_number": 7, "type": f"response.{kind}.done"})


def block(kind: str, number: int = 0) -> bytes:
    return named({"type": "content_block_start", "content_block": {"type": kind}, "index": number})


BLOCK_STOP = named({"type": "content_block_stop", "index": 0})
ARGUMENTS = delta("function_call_arguments", "{")
INPUT = block_delta("input_json_delta", "partial_json", "{")
TEXT = block_delta("text_delta", "text", "a")


@pytest.mark.parametrize(
    "path, events, number",
    [
        pytest.param(CHAT_PATH, [calls(0), calls(0), calls(1), calls(1)], 2, id="chat: the next call begins"),
        pytest.param(CHAT_PATH, [calls(0), calls(0), calls(finish="tool_calls")], 2, id="chat: tool_calls"),
        pytest.param(CHAT_PATH, [calls(0), calls(finish="stop")], 1, id="chat: stop, as for a forced call"),
        pytest.param(CHAT_PATH, [calls(0), calls(finish="length")], None, id="chat: cut at max_tokens"),
        pytest.param(CHAT_PATH, [calls(0), calls(finish="error")], None, id="chat: failed"),
        pytest.param(CHAT_PATH, [calls(0), calls(0)], None, id="chat: without its end"),
        pytest.param(CHAT_PATH, [calls(0, 1), calls(1)], 0, id="chat: two calls in one event"),
        pytest.param(CHAT_PATH, [content("a"), calls(0, finish="tool_calls")], 1, id="chat: a whole call in one event"),
        pytest.param(CHAT_PATH, [content("a"), content("b", "stop")], None, id="chat: no call"),
        pytest.param(CHAT_PATH, [calls(None), calls(finish="stop")], 1, id="chat: no index"),
        pytest.param(CHAT_PATH, [raw_call("{}"), raw_call('"x"'), calls(1)], 2, id="chat: calls of another form"),
        pytest.param(RESPONSES.path, [ARGUMENTS, ARGUMENTS, done("function_call_arguments")], 2, id="responses"),
        pytest.param(RESPONSES.path, [done("custom_tool_call_input")], 0, id="responses: a custom tool"),
        pytest.param(RESPONSES.path, [RESPONSES.output, done("output_text")], None, id="responses: text"),
        pytest.param(RESPONSES.path, [ARGUMENTS, RESPONSES.end], None, id="responses: without its end"),
        pytest.param(MESSAGES.path, [block("tool_use"), INPUT, INPUT, BLOCK_STOP], 3, id="messages"),
        pytest.param(MESSAGES.path, [block("tool_use"), BLOCK_STOP], 1, id="messages: no input"),
        pytest.param(MESSAGES.path, [block("text"), TEXT, BLOCK_STOP, block("tool_use", 1), INPUT, BLOCK_STOP], 5,
            id="messages: text first"),
        pytest.param(MESSAGES.path, [block("text"), TEXT, BLOCK_STOP], None, id="messages: text"),
        pytest.param(MESSAGES.path, [block("tool_use"), INPUT], None, id="messages: without its end"),
    ],
)  # fmt: skip
def test_the_first_complete_tool_call_is_timed(path: str, events: list[bytes], number: int | None) -> None:
    parsed, compared = (stream_meter(dialect=METERED[path]) for _ in range(2))
    stream_as_relay(compared, events)
    for at, event in enumerate(events):
        assert parsed.stream(event, float(at)) == event
    assert parsed.first_tool_call_at == compared.first_tool_call_at == number


def test_with_several_choices_no_tool_call_is_timed() -> None:
    meter = stream_meter()
    meter.one_choice = False
    for at, event in enumerate([calls(0), calls(1), calls(finish="tool_calls")]):
        meter.stream(event, float(at))
    assert meter.first_tool_call_at is None


def test_later_tool_calls_do_not_change_the_time_and_a_pause_of_the_client_is_not_in_it() -> None:
    meter = stream_meter()
    meter.stream(calls(0), 1.0)
    meter.pause(2.0)
    meter.resume(5.0)
    for at, event in enumerate([calls(1), calls(2), calls(finish="tool_calls")], 6):
        meter.stream(event, float(at))
    assert meter.first_tool_call_at == 3.0


async def test_the_record_has_the_time_of_the_first_tool_call(tmp_path: Path) -> None:
    async with staged(tmp_path, streams(calls(0), calls(finish="tool_calls"), DONE)) as stage:
        await stage.ask(post(APIS["chat"]))
        record = await stage.record()
    assert record.ttft_answer is not None
    assert record.first_tool_call is not None
    assert record.ttft_answer <= record.first_tool_call <= record.e2e
