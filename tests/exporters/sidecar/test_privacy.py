"""Canaries in requests and responses of every API appear in nothing that the sidecar writes or shows to others."""

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import aiohttp
import pytest
from aiohttp import web

from compose.cli import main
from tests.support.api_streams import block_delta, delta, named, response
from tests.support.fake_engine import CACHING_ON
from tests.support.otlp_collectors import ReceivedSpans, http_collector
from tests.support.sidecar_process import SLOS as SIMPLE_SLOS
from tests.support.sidecar_process import Running, sidecar
from tests.support.waiting import HANG, until
from tests.support.web_server import served

SLOS = """
version: 1
period: 2h
scrape_interval: 200ms
tenants: {header: x-tenant, allow: [team-a]}
classes:
  - {name: all}
slos:
  - {name: availability, classes: [all], signal: availability, objective: 99%}
  - {name: ttft, classes: [all], signal: ttft, threshold: 100ms, objective: 99%}
  - {name: json, classes: [all], signal: valid_output, objective: 99%}
"""
ADMIN = "the-admin-token"
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


@asynccontextmanager
async def engine(cases: list[Case]) -> AsyncIterator[str]:
    """The URL of an engine that selects its response by the request id."""
    answers = {case.name: case for case in cases}

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/metrics":
            return web.Response(text=CACHING_ON)
        if "upgrade" in request.headers:
            websocket = web.WebSocketResponse()
            await websocket.prepare(request)
            async for message in websocket:
                await websocket.send_str(message.data)
            return websocket
        case = answers.get(request.headers.get("x-request-id", ""))
        if case is None:
            return web.json_response({"data": [{"id": "tiny"}]} if request.path == "/v1/models" else {})
        await request.read()
        headers = {"set-cookie": f"session={case.planted[0]}", "x-engine": case.planted[-1]}
        return web.Response(status=case.status, body=case.answer, content_type=case.kind, headers=headers)

    app = web.Application(client_max_size=1 << 25)
    app.router.add_route("*", "/{path:.*}", answer)
    async with served(app) as url:
        yield url


async def ask(running: Running, case: Case) -> None:
    headers = {"x-request-id": case.name, **case.headers}
    async with running.session.request(
        case.method, f"{running.url}{case.path}", data=case.body or None, headers=headers
    ) as reply:
        case.received = repr(list(reply.headers.items())).encode()
        with suppress(aiohttp.ClientPayloadError):
            case.received += await reply.read()


async def send_frames(running: Running, case: Case) -> None:
    """Text frames and a close frame over a WebSocket."""
    url, headers = f"{running.url}/v1/realtime?token={case.hidden}", {"x-request-id": case.name}
    protocols = (f"openai-insecure-api-key.{case.hidden}",)
    async with running.session.ws_connect(
        url, headers=headers | private_headers(case), protocols=protocols
    ) as websocket:
        for _ in range(5):
            sent = case.hidden
            await websocket.send_str(sent)
            case.received += (await websocket.receive_str()).encode()
            assert sent.encode() in case.received
        await websocket.close(code=1000, message=case.hidden.encode())


async def send_bytes(port: int, request: bytes) -> bytes:
    """The response to a request that may not be valid HTTP."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    received = b""
    with suppress(ConnectionError):
        async with asyncio.timeout(HANG):
            received = await reader.read()
    writer.transport.abort()
    return received


MALFORMED = (
    b"%s\r\n\r\n",
    b"GET /%s HTTP/7.7\r\n\r\n",
    b"GET /v1/models HTTP/1.1\r\nhost: x\r\n%s\r\nconnection: close\r\n\r\n",
    b"GET /v1/models HTTP/1.1\r\nhost: x\r\nx-key: %s\x01\r\n\r\n",
    b"POST /v1/models HTTP/1.1\r\nhost: x\r\ncontent-length: %s\r\n\r\n",
    b"POST /v1/models HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ntransfer-encoding: %s\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n%s\r\n",
    b"GET /v1/models HTTP/1.1\r\nhost: x\r\nx-request-id: %s \xff\r\nconnection: close\r\n\r\n",
    b"GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: %s\r\n\r\n",
)


async def misuse_pages(running: Running, case: Case) -> None:
    """Requests to the metrics port that it does not accept."""
    headers = {"authorization": f"Bearer {case.hidden}", "cookie": case.hidden}
    for page in ("/metrics", "/admin/flips"):
        await running.fetch(f"{page}?key={case.hidden}", headers=headers)
    mine = {"authorization": f"Bearer {ADMIN}"}
    status, _ = await running.fetch("/admin/flip", "POST", mine, json.dumps({"set": {case.hidden: 5}}))
    assert status == 400
    await running.fetch(f"/admin/{case.hidden}", "POST", mine)
    for malformed in MALFORMED[:4]:
        await send_bytes(running.metrics_port, malformed % case.hidden.encode())


@dataclass
class Sinks:
    """Everything that one run of the sidecar has written, by name."""

    lines: list[dict[str, Any]]
    texts: dict[str, bytes]


async def run(tmp_path: Path, cases: list[Case], *words: str) -> Sinks:
    """Send all requests through a sidecar that logs and exports as much as it can, and stop it."""
    token, state = tmp_path / "token", tmp_path / "state.json"
    token.write_text(ADMIN)
    token.chmod(0o600)
    frames, raw, pages = map(Case, ("frames", "raw", "pages"))
    texts: dict[str, bytes] = {}
    async with engine(cases) as url, http_collector() as collector:
        flags = ["--otlp", collector.url, "--trace-good", "100%", "--log-level", "debug", "--check-structured-output"]
        flags += ["--admin-token-file", str(token), "--state", str(state), *words]
        async with sidecar(tmp_path, url, *flags, slo_file=SLOS) as running:
            await asyncio.gather(*(ask(running, case) for case in cases))
            await send_frames(running, frames)
            for malformed in MALFORMED:
                raw.received += await send_bytes(running.port, malformed % raw.hidden.encode())
            await misuse_pages(running, pages)
            awaited = {case.name for case in cases if case.method != "OPTIONS"} | {"frames"}

            async def logged() -> bool:
                return awaited <= set(await running.logged())

            await until(logged)
            for page, accept in (
                ("/metrics", "text/plain"),
                ("/metrics", "application/openmetrics-text"),
                ("/", "*/*"),
            ):
                texts[f"{page} {accept}"] = (await running.fetch(page, headers={"accept": accept}))[1].encode()
            authorization = {"authorization": f"Bearer {ADMIN}"}
            texts["flips"] = (await running.fetch("/admin/flips", headers=authorization))[1].encode()
            texts["ready"] = (await running.fetch("/readyz"))[1].encode()
            lines = running.lines()
            assert await running.stop() == 0
            texts |= written(running, collector, state)
    cases += [frames, raw, pages]
    return Sinks(lines, texts)


def written(running: Running, collector: ReceivedSpans, state: Path) -> dict[str, bytes]:
    assert any(span.name == "chat tiny" for span in collector.spans)
    exports = b"".join(request.SerializeToString() for request in collector.requests)
    assert b"llm_requests_total" not in exports
    return {
        "request log": running.log.read_bytes(),
        "standard error": running.stderr.read_bytes(),
        "spans": exports,
        "state": state.read_bytes() if state.exists() else b"",
    }


def found(canaries: set[str], text: bytes) -> set[str]:
    """The canaries in a text, also if it is percent-encoded."""
    seen = {each.decode() for each in re.findall(rb"canary[pch]\d{4}z", text + unquote_to_bytes(text))}
    return (seen | {canary for canary in canaries if canary.encode() in text}) & canaries


def leaks(cases: list[Case], texts: dict[str, bytes]) -> dict[str, set[str]]:
    """The canaries in each text that has any, and those of other requests in each response."""
    canaries = {canary for case in cases for canary in case.planted}
    assert len(canaries) >= 200
    in_texts = {name: found(canaries, text) for name, text in texts.items()}
    in_responses = {case.name: found(canaries - set(case.planted), case.received) for case in cases}
    return {name: leak for name, leak in (in_texts | in_responses).items() if leak}


@pytest.mark.parametrize("words", [(), ("--log-content", "off")], ids=["by default", "off"])
async def test_no_canary_appears_anywhere(tmp_path: Path, words: tuple[str, ...]) -> None:
    cases = all_cases()
    sinks = await run(tmp_path, cases, *words)
    assert leaks(cases, sinks.texts) == {}
    lines = {line["request_id"]: line for line in sinks.lines}
    hashed = [line["prompt_sha256"] for line in sinks.lines if line["prompt_sha256"] is not None]
    series = sinks.texts["/metrics text/plain"]
    if words:
        assert hashed == []
        assert {line[name] for line in sinks.lines for name in ("prompt_repeat", "body_repeat")} == {None}
        assert b"prompt_repeats" not in series
        assert b"body_repeats" not in series
        assert b"unique_prompts" not in series
    else:
        assert re.fullmatch("[0-9a-f]{64}", lines["chat"]["prompt_sha256"])
        assert len(set(hashed)) > 10
        assert b"prompt_repeats" in series
        assert b"unique_prompts" in series


async def test_in_full_mode_canaries_appear_only_in_the_two_fields_of_the_request_log(tmp_path: Path) -> None:
    cases = all_cases()
    sinks = await run(tmp_path, cases, "--log-content", "full", "--log-content-limit", "64KiB")
    log = tmp_path / "requests.jsonl"
    assert log.stat().st_mode & 0o777 == 0o600
    warning = b"WARNING supervisor: --log-content full: THE REQUEST LOG CONTAINS PROMPTS AND COMPLETIONS\n"
    assert warning in sinks.texts["standard error"]
    contents = {line["request_id"]: (line.pop("prompt") or "", line.pop("completion") or "") for line in sinks.lines}
    assert leaks(cases, sinks.texts | {"request log": json.dumps(sinks.lines).encode()}) == {}
    for case in cases:
        for kind, content in zip((PROMPT, COMPLETION), contents.get(case.name, ("", "")), strict=True):
            expected = {canary for canary in case.planted if canary.startswith(f"canary{kind}")}
            if case.name in {"invalid", "number"}:
                expected = set()  # the body is not valid for the API
            assert found({each for other in cases for each in other.planted}, content.encode()) == expected, case.name
    assert json.loads(contents["chat"][0]).keys() == {"messages", "tools"}
    assert contents["completions"][1].count("\n") == 1


@pytest.mark.parametrize(
    "words, error",
    [
        pytest.param(["all"], "--log-content: 'all' is unknown; use off, hash or full", id="unknown"),
        pytest.param(["full"], "--log-content full: needs a request log; add --request-log FILE", id="no log"),
        pytest.param(
            ["off", "--log-prefix-hashes"],
            "--log-prefix-hashes: conflicts with --log-content off; remove one of them",
            id="hashes of blocks",
        ),
        pytest.param(
            ["full", "--request-log", "-", "--log-content-limit", "65KiB"],
            "--log-content-limit: 65KiB is above the maximum of 64KiB, so that programs can read each line",
            id="too large",
        ),
    ],
)
def test_invalid_values_are_rejected(
    tmp_path: Path, words: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    slos = tmp_path / "slos.yaml"
    slos.write_text(SIMPLE_SLOS)
    assert main(["sidecar", "--upstream", "http://127.0.0.1:1", "--slos", str(slos), "--log-content", *words]) == 2
    assert capsys.readouterr().err == f"vllm-slo: {error}\n"


async def test_a_log_that_others_can_read_is_reported(tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"
    log.touch()
    log.chmod(0o644)
    async with engine([]) as url, sidecar(tmp_path, url, "--log-content", "full") as running:
        assert (
            f"WARNING supervisor: --log-content full: {log} is readable by other users; run: chmod 600 {log}"
            in running.log_lines()
        )
