"""Requests and scripted streams of each API that the relay measures."""

import json
from dataclasses import dataclass
from typing import Any

from tests.support import scripted_relay
from tests.support.scripted_relay import CHAT_WITH_USAGE, DONE, ROLE, USAGE, content


@dataclass(frozen=True)
class Api:
    """An API: a request for a stream of up to 50 tokens, and events of the stream.

    `start` comes before any output; `end` has usage with 7 prompt tokens, 4 of them cached, and 3 completion tokens.
    """

    path: str
    request: bytes
    start: bytes
    reasoning: bytes
    output: bytes
    end: bytes
    last: bytes
    """The event that ends a stream; part of `end`."""
    failure: bytes
    unary: bytes
    """A whole unary response with the usage of `end`."""


def named(event: dict[str, Any]) -> bytes:
    """An event with its type in an `event:` line."""
    data = json.dumps(event, separators=(",", ":"), ensure_ascii=False)
    return f"event: {event['type']}\ndata: {data}\n\n".encode()


def response(status: str, **more: Any) -> dict[str, Any]:
    return {"id": "resp_1", "object": "response", "status": status, "usage": None, "metrics": None, **more}


def delta(kind: str, text: str, number: int = 4) -> bytes:
    """A delta of the Responses API, in the order of vLLM's fields."""
    return named({"delta": text, "item_id": "msg_1", "sequence_number": number, "type": f"response.{kind}.delta"})


def block_delta(kind: str, field: str, text: str) -> bytes:
    """A delta of the Messages API."""
    return named({"type": "content_block_delta", "delta": {"type": kind, field: text}, "index": 0})


_COMPLETED = response(
    "completed",
    usage={"input_tokens": 7, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 4}},
    metrics={"queue_time_ms": 12.5, "time_to_first_token_ms": 30.0, "generation_time_ms": 60.0},
)
_MESSAGE_USAGE = {"input_tokens": 2, "output_tokens": 3, "cache_creation_input_tokens": 1, "cache_read_input_tokens": 4}
_COMPLETED_EVENT = named({"response": _COMPLETED, "sequence_number": 9, "type": "response.completed"})
_STOP = named({"type": "message_stop"})

CHAT = Api(
    path="/v1/chat/completions",
    request=CHAT_WITH_USAGE,
    start=ROLE,
    reasoning=b'data: {"choices":[{"delta":{"reasoning":"hm"}}]}\n\n',
    output=content("a"),
    end=content("", "length") + USAGE + DONE,
    last=DONE,
    failure=b'data: {"error":{"message":"boom","code":500}}\n\n' + DONE,
    unary=b'{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,'
    b'"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4}}}',
)
RESPONSES = Api(
    path="/v1/responses",
    request=b'{"model":"m","stream":true,"max_output_tokens":50,"instructions":"twelve","input":" chars"}',
    start=named({"response": response("in_progress"), "sequence_number": 0, "type": "response.created"})
    + named({"response": response("in_progress"), "sequence_number": 1, "type": "response.in_progress"})
    + named({"item": {"id": "msg_1"}, "sequence_number": 2, "type": "response.output_item.added"}),
    reasoning=delta("reasoning_text", "hm"),
    output=delta("output_text", "a"),
    end=_COMPLETED_EVENT,
    last=_COMPLETED_EVENT,
    failure=named({"response": response("failed"), "sequence_number": 9, "type": "response.failed"}),
    unary=json.dumps(_COMPLETED).encode(),
)
MESSAGES = Api(
    path="/v1/messages",
    request=b'{"model":"m","stream":true,"max_tokens":50,"system":"twelve","messages":[{"content":" chars"}]}',
    start=named({"type": "message_start", "message": {"usage": {"input_tokens": 7, "output_tokens": 1}}})
    + named({"type": "ping"})
    + named({"type": "content_block_start", "content_block": {"type": "text", "text": ""}, "index": 0}),
    reasoning=block_delta("thinking_delta", "thinking", "hm"),
    output=block_delta("text_delta", "text", "a"),
    end=named({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": _MESSAGE_USAGE}) + _STOP,
    last=_STOP,
    failure=named({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}),
    unary=json.dumps({"type": "message", "stop_reason": "end_turn", "usage": _MESSAGE_USAGE}).encode(),
)
APIS = {"chat": CHAT, "responses": RESPONSES, "messages": MESSAGES}


def unary_request(api: Api) -> bytes:
    return api.request.replace(b'"stream":true,', b"").replace(b',"stream_options":{"include_usage":true}', b"")


def post(api: Api, headers: str = "", *, close: bool = True) -> bytes:
    return scripted_relay.post(api.request, path=api.path, headers=headers, close=close)
