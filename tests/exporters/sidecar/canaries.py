"""Requests to every API and their responses, in which each text is a canary."""

import base64
import json
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tests.support.api_streams import block_delta, delta, named, response

PROMPT, COMPLETION, HIDDEN = "p", "c", "h"
"""Where a canary is: in a prompt, in a completion, or in another part of an exchange."""

STREAM, JSON = "text/event-stream", "application/json"


@dataclass
class Case:
    """A request, the response of the engine, and the canaries in both."""

    name: str
    planted: list[str] = field(default_factory=list)
    path: str = ""
    method: str = "POST"
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    status: int = 200
    kind: str = JSON
    answer: bytes = b"{}"
    received: bytes = b""
    """What the client has received."""

    def plant(self, kind: str) -> str:
        canary = f"canary{kind}{next(_NUMBERS):04d}z"
        self.planted.append(canary)
        return canary

    @property
    def prompt(self) -> str:
        return self.plant(PROMPT)

    @property
    def text(self) -> str:
        return self.plant(COMPLETION)

    @property
    def hidden(self) -> str:
        return self.plant(HIDDEN)


_NUMBERS = count(1)


def private_headers(case: Case) -> dict[str, str]:
    """Headers with a canary each, of which the sidecar may use none."""
    basic = base64.b64encode(f"user:{case.hidden}".encode()).decode()
    case.planted.append(basic)
    return {
        "authorization": f"Bearer {case.hidden}",
        "proxy-authorization": f"Basic {basic}",
        "cookie": f"session={case.hidden}",
        "x-api-key": case.hidden,
        "api-key": case.hidden,
        "x-custom": case.hidden,
        "x-tenant": case.hidden,
        "x-request-class": case.hidden,
        "x-request-start": f"t={case.hidden}",
        "x-forwarded-for": case.hidden,
        "referer": f"https://{case.hidden}/",
        "user-agent": case.hidden,
        "baggage": f"user={case.hidden}",
        "tracestate": f"vendor={case.hidden}",
        "traceparent": f"00-{case.hidden}-{case.hidden}-01",
        "openai-organization": case.hidden,
    }


def body(case: Case, **fields: Any) -> bytes:
    """A JSON body; `user`, `metadata` and `stop` have canaries, too."""
    more = {"user": case.hidden, "metadata": {"key": case.hidden}, "stop": [case.hidden], "model": "tiny"}
    return json.dumps(more | fields).encode()


def parts(case: Case) -> list[dict[str, Any]]:
    """A chat: system, text, image, an earlier answer with a tool call, and the result of the tool."""
    call = {"id": "1", "type": "function", "function": {"name": case.prompt, "arguments": case.prompt}}
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{case.prompt}"}}
    return [
        {"role": "system", "content": case.prompt},
        {"role": "user", "name": case.prompt, "content": [{"type": "text", "text": case.prompt}, image]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": case.prompt, "content": case.prompt},
    ]


def tools(case: Case) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": case.prompt, "description": case.prompt}}]


def data(*events: dict[str, Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events) + b"data: [DONE]\n\n"


def chat_cases() -> list[Case]:
    unary, stream, text, texts = map(Case, ("chat", "chat-stream", "completions", "completions-stream"))
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    for case in (unary, stream):
        case.path = "/v1/chat/completions"
        schema = {"type": "json_schema", "json_schema": {"name": case.hidden, "schema": {"title": case.hidden}}}
        case.body = body(
            case, messages=parts(case), tools=tools(case), stream=case is stream, response_format=schema, max_tokens=9
        )
    call = {"id": "1", "index": 0, "function": {"name": unary.hidden, "arguments": f'{{"a":"{unary.text}"}}'}}
    answered = {"content": unary.text, "reasoning": unary.hidden, "tool_calls": [call], "refusal": unary.hidden}
    choice = {"index": 0, "message": answered, "finish_reason": "stop", "stop_reason": unary.hidden}
    unary.answer = json.dumps({"id": "chat-1", "model": "tiny", "choices": [choice], "usage": usage}).encode()
    call = {"index": 0, "id": "1", "function": {"name": stream.hidden, "arguments": f'{{"b":"{stream.text}"}}'}}
    deltas: list[dict[str, Any]] = [{"reasoning": stream.hidden}, {"reasoning_content": stream.hidden}]
    deltas += [{"content": stream.text} for _ in range(20)] + [{"tool_calls": [call]}]
    stream.kind = STREAM
    stream.answer = data(
        *({"id": "chat-2", "choices": [{"index": 0, "delta": each, "finish_reason": None}]} for each in deltas),
        {"id": "chat-2", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {"id": "chat-2", "choices": [], "usage": usage},
    )
    for case in (text, texts):
        case.path = "/v1/completions"
        case.body = body(case, prompt=[case.prompt, case.prompt], suffix=case.hidden, stream=case is texts)
    choices = [{"index": index, "text": text.text, "finish_reason": "length"} for index in (0, 1)]
    text.answer = json.dumps({"choices": choices, "usage": usage}).encode()
    texts.kind = STREAM
    texts.answer = data(*({"choices": [{"index": index, "text": texts.text}]} for index in (0, 1, 1, 0)))
    return [unary, stream, text, texts]


def responses_cases() -> list[Case]:
    unary, stream = map(Case, ("responses", "responses-stream"))
    for case in (unary, stream):
        case.path = "/v1/responses"
        content = [{"type": "input_text", "text": case.prompt}, {"type": "input_file", "file_data": case.prompt}]
        items = [{"role": "user", "content": content}, {"type": "function_call_output", "output": case.prompt}]
        case.body = body(case, instructions=case.prompt, input=items, tools=tools(case), stream=case is stream)
        output = [
            {"type": "reasoning", "content": [{"type": "reasoning_text", "text": case.hidden}]},
            {"type": "message", "content": [{"type": "output_text", "text": case.text}]},
            {"type": "function_call", "name": case.hidden, "arguments": f'{{"a":"{case.text}"}}'},
        ]
        usage = {"input_tokens": 7, "output_tokens": 3}
        done = response("completed", usage=usage, output=output, instructions=case.planted[0])
        case.answer = json.dumps(done).encode()
    stream.kind = STREAM
    stream.answer = (
        named({"response": response("in_progress"), "sequence_number": 0, "type": "response.created"})
        + delta("reasoning_text", stream.hidden)
        + delta("output_text", output[1]["content"][0]["text"])  # type: ignore[index]  # nested values
        + named({"response": done, "sequence_number": 9, "type": "response.completed"})
    )
    return [unary, stream]


def messages_cases() -> list[Case]:
    unary, stream = map(Case, ("messages", "messages-stream"))
    for case in (unary, stream):
        case.path = "/v1/messages"
        result = {"type": "tool_result", "content": [{"type": "text", "text": case.prompt}]}
        said = [{"role": "user", "content": [{"type": "text", "text": case.prompt}, result]}]
        case.body = body(case, system=case.prompt, messages=said, tools=tools(case), stream=case is stream)
    content = [
        {"type": "thinking", "thinking": unary.hidden},
        {"type": "text", "text": unary.text},
        {"type": "tool_use", "name": unary.hidden, "input": {"a": unary.text}},
    ]
    usage = {"input_tokens": 2, "output_tokens": 3}
    last = {"stop_reason": "stop_sequence", "stop_sequence": unary.hidden}
    unary.answer = json.dumps({"type": "message", "content": content, "usage": usage, **last}).encode()
    stream.kind = STREAM
    block = {"type": "tool_use", "id": "t", "name": stream.hidden, "input": {}}
    stream.answer = (
        named({"type": "message_start", "message": {"id": "msg-1", "usage": usage}})
        + block_delta("thinking_delta", "thinking", stream.hidden)
        + block_delta("text_delta", "text", stream.text)
        + named({"type": "content_block_start", "content_block": block, "index": 1})
        + named(
            {
                "type": "content_block_delta",
                "index": 1,
                "delta": {"type": "input_json_delta", "partial_json": f'{{"a":"{stream.text}"}}'},
            }
        )
        + named({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": usage})
        + named({"type": "message_stop"})
    )
    return [unary, stream]


def one_answer_cases() -> list[Case]:
    cases = []
    for path, fields in (
        ("/v1/embeddings", ("input",)),
        ("/v1/rerank", ("query", "documents")),
        ("/v1/score", ("text_1", "text_2")),
        ("/classify", ("input",)),
        ("/pooling", ("input",)),
        ("/tokenize", ("prompt",)),
        ("/detokenize", ("tokens",)),
        ("/v1/messages/count_tokens", ("messages", "system")),
    ):
        case = Case(path.strip("/").replace("/", "-"), path=path)
        case.body = body(case, **{name: [case.prompt] for name in fields})
        case.answer = json.dumps({"data": [{"label": case.hidden}], "prompt": case.hidden}).encode()
        cases.append(case)
    return cases


def form(case: Case, *, ends: bool = True) -> bytes:
    """A form with a file."""
    fields = {"model": "tiny", "prompt": case.hidden, "language": case.hidden, case.hidden: case.hidden}
    text = "".join(
        f'--limit\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields.items()
    )
    file = f'Content-Disposition: form-data; name="file"; filename="{case.hidden}"\r\n\r\n{case.hidden}'
    return f"{text}--limit\r\n{file}{chr(13) + chr(10) + '--limit--' if ends else ''}".encode()


def other_cases() -> list[Case]:
    """Forms, errors, malformed bodies, and paths that are not measured or rejected."""
    audio, broken_form, cut_form = map(Case, ("audio", "audio-error", "audio-broken"))
    for case in (audio, broken_form, cut_form):
        case.path = "/v1/audio/transcriptions"
        case.headers = {"content-type": "multipart/form-data; boundary=limit"}
        case.body = form(case, ends=case is not cut_form)
        case.answer = json.dumps({"text": case.hidden}).encode()
    broken_form.status = 400
    invalid, number, refused, crashed, plain = map(Case, ("invalid", "number", "refused", "crashed", "plain"))
    for case in (invalid, number, refused, crashed, plain):
        case.path = "/v1/chat/completions"
        case.body = body(case, messages=[{"role": "user", "content": case.prompt}], max_tokens=5)
        case.status, error = 400, {"message": case.hidden, "type": case.hidden, "param": case.hidden}
        case.answer = json.dumps({"error": error, "detail": case.hidden}).encode()
    invalid.body = b'{"model":"tiny","messages":[{"content":"%s\xff"' % invalid.hidden.encode()
    number.body = json.dumps({"model": "tiny", "messages": number.hidden, "max_tokens": number.hidden}).encode()
    crashed.status, crashed.answer = 500, crashed.hidden.encode()
    plain.status, plain.answer, plain.kind = 200, b"\xff\xfe%s" % plain.hidden.encode(), "text/plain"
    failing, odd = map(Case, ("failing-stream", "odd-stream"))
    for case in (failing, odd):
        case.path, case.kind = "/v1/chat/completions", STREAM
        case.body = body(case, messages=[{"role": "user", "content": case.prompt}], stream=True)
    failing.answer = b'data: {"error":{"message":"%s"}}\n\n' % failing.hidden.encode()
    odd.answer = b"".join(
        each % odd.hidden.encode()
        for each in (
            b": %s\n\n",
            b"event: %s\ndata: {\n\n",
            b'data: {"choices":"%s"}\n\n',
            b"%s: x\n\n",
            b"data: \xff%s",
        )
    )
    models, denied, preflight, background, speech = map(Case, ("models", "denied", "preflight", "background", "speech"))
    models.method, models.path = "GET", "/v1/models"
    denied.path = "/admin"
    preflight.method, preflight.path = "OPTIONS", "/v1/chat/completions"
    background.path = "/v1/responses"
    background.body = body(background, input=background.prompt, background=True)
    speech.path = "/v1/audio/speech"
    speech.body = body(speech, input=speech.hidden)
    for case in (models, speech):
        case.answer = case.hidden.encode()
    return [
        *(audio, broken_form, cut_form, invalid, number, refused, crashed, plain, failing, odd),
        *(models, denied, preflight, background, speech),
    ]


def all_cases() -> list[Case]:
    cases = [*chat_cases(), *responses_cases(), *messages_cases(), *one_answer_cases(), *other_cases()]
    for case in cases:
        case.path += f"?api_key={case.hidden}&{case.hidden}"
        case.headers = private_headers(case) | case.headers
    return cases
