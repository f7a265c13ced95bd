"""Streams and bodies of the Responses and Messages APIs for a given completion."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from compose.simulator.api.chat_format import Format, chunk
from compose.simulator.api.messages_format import MessagesFormat
from compose.simulator.api.responses_format import ResponsesFormat
from compose.simulator.api.writers import StreamWriter
from compose.simulator.engine.completion import Completion
from compose.simulator.engine.job import FinishReason, Job

RESPONSES = ResponsesFormat("resp_1", "msg_1", 7, "tiny", {}, 100)
MESSAGES = MessagesFormat("chatcmpl-1", "tiny")
COMPLETIONS = st.builds(
    Completion,
    length=st.integers(1, 30),
    finish=st.sampled_from(FinishReason),
    start=st.integers(0, 40),
    stride=st.integers(1, 40),
)


def finished(completion: Completion) -> Job:
    tokens = [1] * (50 + completion.length)
    job = Job(tokens, 50, completion.length, completion.finish, completion.token, cached=16, cache_written=32)
    job.chunks = job.generated = completion.length
    job.scheduled_at, job.first_token_at, job.last_token_at = 1.0, 2.0, 4.0
    return job


def stream(format_: Format, completion: Completion) -> list[dict[str, Any]]:
    """The events of the whole stream, decoded; each is in one HTTP chunk."""
    job = finished(completion)
    text = completion.text(completion.length)
    token = format_.token_chunk()
    pieces = [completion.piece(index) for index in range(completion.length)]
    chunks = [chunk(event) for event in (*format_.opening(), *format_.first(job, pieces[0].decode()))]
    chunks += [token(piece, index) for index, piece in enumerate(pieces[:-1])]
    chunks += [chunk(event) for event in format_.last(job, pieces[-1].decode(), text)]
    found = []
    for data in chunks:
        size, _, rest = data.partition(b"\r\n")
        event = rest.removesuffix(b"\r\n")
        assert int(size, 16) == len(event)
        name, _, body = event.removeprefix(b"event: ").removesuffix(b"\n\n").partition(b"\ndata: ")
        found.append(json.loads(body))
        assert found[-1]["type"] == name.decode()
    return found


@given(COMPLETIONS)
def test_the_deltas_of_a_responses_stream_are_its_text_and_the_sequence_numbers_rise_by_one(drawn: Completion) -> None:
    found = stream(RESPONSES, drawn)
    text = drawn.text(drawn.length)
    assert "".join(event.get("delta", "") for event in found) == text
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    response = found[-1]["response"]
    assert response == json.loads(RESPONSES.unary(finished(drawn), text))
    assert [part["text"] for item in response["output"] for part in item["content"]] == ([text] if text else [])
    assert (response["status"], response["incomplete_details"]) == (
        ("completed", None) if drawn.finish is FinishReason.STOP else ("incomplete", {"reason": "max_output_tokens"})
    )


@given(COMPLETIONS)
def test_the_deltas_of_a_messages_stream_are_its_text(drawn: Completion) -> None:
    found = stream(MESSAGES, drawn)
    text = drawn.text(drawn.length)
    deltas = [event["delta"] for event in found if event["type"] == "content_block_delta"]
    assert "".join(delta["text"] for delta in deltas) == text
    kinds = [event["type"] for event in found if event["type"] != "content_block_delta"]
    block = ["content_block_start", "content_block_stop"] if text else []
    assert kinds == ["message_start", *block, "message_delta", "message_stop"]
    unary = json.loads(MESSAGES.unary(finished(drawn), text))
    assert unary["content"] == [{"type": "text", "text": text}]
    assert (unary["stop_reason"], unary["usage"]) == (found[-2]["delta"]["stop_reason"], found[-2]["usage"])
    assert unary["usage"] == {
        "input_tokens": 2,
        "output_tokens": drawn.length,
        "cache_creation_input_tokens": 32,
        "cache_read_input_tokens": 16,
    }


class Connection:
    """A transport of uvloop: it raises an error if it is written to after it has closed."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        if self.is_closed:
            raise RuntimeError("unable to perform operation; the handler is closed")
        self.written.append(data)

    def is_closing(self) -> bool:
        return self.is_closed


async def test_tokens_for_a_closed_connection_are_dropped_and_the_stream_ends() -> None:
    completion = Completion(3, FinishReason.STOP, start=0, stride=1)
    job, connection = finished(completion), Connection()
    writer = StreamWriter(connection, MESSAGES, completion)
    writer.tokens(job, 1, None)
    written = len(connection.written)

    connection.is_closed = True
    writer.tokens(job, 1, None)
    writer.tokens(job, 1, FinishReason.STOP)

    assert len(connection.written) == written > 0
    assert writer.finished.done()
