"""OTLP in, pages and JSON out, over real sockets with an injected clock."""

import contextlib
import gzip
import html
import io
import re
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer
from opentelemetry.sdk.trace import ReadableSpan

from exporters.analysis.traces.page_frame import POLICY
from exporters.analysis.traces.server import TraceServer
from exporters.analysis.traces.span_store import SpanStore
from exporters.vocabulary.signals import Verdict
from tests.support.engine_span_messages import request_span, sent
from tests.support.sample_traces import NOW, bad_request, encoded, good_request, request_spans

PROTOBUF = {"content-type": "application/x-protobuf"}


@dataclass
class Served:
    """A running server, whose clock is `now`."""

    session: aiohttp.ClientSession
    url: str
    store: SpanStore
    now: float = NOW

    async def send(self, data: bytes, **headers: str) -> tuple[int, str]:
        async with self.session.post(
            f"{self.url}/v1/traces", data=io.BytesIO(data), headers={**PROTOBUF, **headers}
        ) as response:
            return response.status, await response.text()

    async def add(self, *spans: ReadableSpan) -> None:
        assert await self.send(encoded(*spans)) == (200, "")

    async def page(self, path: str, status: int = 200) -> str:
        async with self.session.get(self.url + path) as response:
            assert response.status == status
            assert response.headers["Content-Security-Policy"] == POLICY
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            return await response.text()

    async def json(self, path: str, status: int = 200) -> Any:
        async with self.session.get(self.url + path) as response:
            assert response.status == status
            return await response.json()


class Markup(HTMLParser):
    """The tags, attributes and links of a page, as a browser reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)
        self.links.update(value or "" for name, value in attrs if name == "href")


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    store = SpanStore(tmp_path / "traces.db", keep=3600, max_bytes=64 * 1024 * 1024)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(store.close)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        running = Served(session, "", store)
        server = TraceServer(store, 3600, lambda: running.now)
        stack.push_async_callback(server.close)
        site = TestServer(server.application())
        await stack.enter_async_context(site_running(site))
        running.url = str(site.make_url("")).rstrip("/")
        yield running


@contextlib.asynccontextmanager
async def site_running(site: TestServer) -> AsyncIterator[None]:
    await site.start_server(auto_decompress=False)
    try:
        yield
    finally:
        await site.close()


async def test_a_trace_of_sidecar_and_engine_is_one_page(served: Served) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    await served.add(*bad_request(1, trace_id=trace, span_id="00f067aa0ba902b7", request_id="r 1"))
    assert await served.send(sent(request_span("00f067aa0ba902b7"))) == (200, "")
    page = await served.page(f"/traces/{trace.upper()}")
    names = re.findall(r'<span class="name">(\S+)', page)
    assert names[0] == "chat"
    assert sorted(names[1:]) == ["decode", "frontend", "llm_request", "prefill", "queue"]
    for text in (
        "vllm-slo-sidecar",
        "first_token after 5.00 s",
        "slo_bad after 333 ms, vllm_slo.slo=ttft",
        "gen_ai.request.model",
        'class="late"',
    ):
        assert text in page, text
    assert html.escape("vllm-slo requests --request-log requests.jsonl --around 'r 1'") in page
    assert 'href="/?request_id=r+1"' in page
    found = await served.json(f"/api/traces/{trace}")
    assert {span["name"] for span in found["spans"]} == {"chat tiny", *names[1:]}
    assert found["trace_id"] == trace


async def test_the_list_filters_and_links_to_traces(served: Served) -> None:
    await served.add(*good_request(1), *bad_request(2), *bad_request(3, e2e=9.0, request_class="long"))
    page = await served.page("/")
    assert re.findall(r'href="(/traces/\S+)"', page) == [f"/traces/{n:032x}#span-{n:016x}" for n in (1, 2, 3)]
    assert "3 of 3 matching requests" in page
    assert '<option value="long">' in page
    worst = re.search(r'href="(/\?[^"]*)">Worst ten bad requests', page)
    assert worst
    page = await served.page(html.unescape(worst[1]))
    assert re.findall(r'href="(/traces/\S+)"', page) == [f"/traces/{n:032x}#span-{n:016x}" for n in (3, 2)]
    assert '<option value="bad" selected>' in page
    found = await served.json("/api/traces?class=long&verdict=bad")
    assert found["found"] == 1
    assert found["requests"][0]["class"] == "long"
    assert found["requests"][0]["slos"] == {"ttft": "bad", "e2e": "good"}
    assert "No request matches." in await served.page("/?class=missing")


async def test_data_of_clients_is_never_part_of_the_html(served: Served) -> None:
    attack = """"><script>alert(1)</script><img src=x onerror='x'>"""
    await served.add(
        *request_spans(
            1, model=attack, request_class=attack, route=attack, tenant=attack, request_id=attack,
            finish_reason=attack, slo={attack: Verdict.BAD}, bad_at={attack: 0.1}, goodput=False, response_id=attack,
        )
    )  # fmt: skip
    service = (
        sent(request_span("0" * 15 + "1"))
        .replace(b"vllm.tracing.otel", b"<script>1</script")
        .replace(b"llm_request", b"<script>x</")
    )
    assert await served.send(service) == (200, "")
    pages = [
        await served.page("/"),
        await served.page(f"/traces/{1:032x}"),
        await served.page("/traces/0af7651916cd43dd8448eb211c80319c"),
    ]
    async with served.session.get(f"{served.url}/", params={"class": attack, "model": attack}) as response:
        pages.append(await response.text())
    async with served.session.get(f"{served.url}/", params={attack: attack, "verdict": attack}) as response:
        assert response.status == 400
        pages.append(await response.text())
    async with served.session.get(f"{served.url}/traces/%3Cscript%3E") as response:
        assert response.status == 404
        pages.append(await response.text())
    for page in pages:
        seen = Markup()
        seen.feed(page)
        assert not {"script", "img", "style", "iframe", "object"} & seen.tags
        assert not [name for name in seen.attributes if name.startswith("on") or name in {"style", "src", "srcdoc"}]
        assert {link[0] for link in seen.links} <= {"/", "#"}
        assert page.count("<link") == 1
    assert html.escape(attack) in pages[1]
    assert "prefers-color-scheme: dark" in await served.page("/style.css")
    assert await served.page("/healthz") == "ok\n"


async def test_an_invalid_filter_is_reported_with_every_mistake(served: Served) -> None:
    page = await served.page("/?verdict=awful&clas=x", status=400)
    assert "clas: unknown parameter; did you mean &#x27;class&#x27;?" in page
    assert "verdict: &#x27;awful&#x27; is unknown" in page
    assert (await served.json("/api/traces?limit=0", status=400)) == {
        "error": "limit: '0' is not a number from 1 to 1000"
    }


async def test_an_unknown_or_expired_trace_is_explained(served: Served) -> None:
    await served.add(*good_request(1))
    reason = "it arrived more than 1h ago"
    assert reason in await served.page(f"/traces/{2:032x}", status=404)
    assert reason in (await served.json("/api/traces/x", status=404))["error"]
    await served.page(f"/traces/{1:032x}")
    served.now += 3601
    assert reason in await served.page(f"/traces/{1:032x}", status=404)
    assert "No request matches." in await served.page("/")


async def test_a_message_that_is_not_otlp_is_refused_with_a_reason_and_stores_nothing(served: Served) -> None:
    assert await served.send(b"\xff\xff") == (400, "not_understood\n")
    assert await served.send(b"{}", **{"content-type": "application/json"}) == (400, "not_understood\n")
    assert await served.send(b"plain", **{"content-encoding": "gzip"}) == (400, "not_understood\n")
    assert await served.send(bytes(1024 * 1024 + 1)) == (413, "too_large\n")
    assert await served.send(gzip.compress(bytes(4_000_000)), **{"content-encoding": "gzip"}) == (413, "too_large\n")
    assert (await served.json("/api/traces"))["found"] == 0
    packed = gzip.compress(encoded(*good_request(1)))
    assert await served.send(packed, **{"content-encoding": "gzip"}) == (200, "")
    assert (await served.json("/api/traces"))["found"] == 1


async def test_if_the_file_cannot_be_written_the_sender_is_asked_to_send_again(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    caplog.set_level("INFO", "vllm_slo.traces")
    with monkeypatch.context() as broken:
        broken.setattr(served.store, "add", full)
        assert await served.send(encoded(*good_request(1))) == (503, "busy\n")
        assert await served.send(encoded(*good_request(1))) == (503, "busy\n")
    await served.add(*good_request(1))
    assert [record.getMessage() for record in caplog.records if record.name == "vllm_slo.traces"] == [
        "the file cannot be written, so spans are refused: database or disk is full",
        "spans are stored again",
    ]
