"""Canaries in requests and responses of every API appear in nothing that the sidecar writes or shows to others."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import aiohttp
import pytest
from aiohttp import web

from tests.exporters.sidecar.canaries import COMPLETION, PROMPT, Case, all_cases, private_headers
from tests.support.fake_engine import CACHING_ON
from tests.support.otlp_collectors import ReceivedSpans, http_collector
from tests.support.sidecar_process import Running, sidecar
from tests.support.waiting import HANG, until
from tests.support.web_server import served

pytestmark = pytest.mark.slow

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


async def test_a_log_that_others_can_read_is_reported(tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"
    log.touch()
    log.chmod(0o644)
    async with engine([]) as url, sidecar(tmp_path, url, "--log-content", "full") as running:
        assert (
            f"WARNING supervisor: --log-content full: {log} is readable by other users; run: chmod 600 {log}"
            in running.log_lines()
        )
