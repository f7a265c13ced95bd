"""Forwarding of engine spans to a collector that may be down or slow."""

import threading

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from exporters.configuration.otlp_endpoints import Collector
from exporters.sidecar.tracing.span_forwarder import (
    BATCH_SPANS,
    MAX_QUEUED_BYTES,
    DeliveryCounters,
    Send,
    SpanForwarder,
    sender,
)
from tests.support.engine_span_messages import loading, sent
from tests.support.otlp_collectors import grpc_receiver, http_collector
from tests.support.ports import free_port
from tests.support.waiting import until


class FlakyCollector:
    """A collector that accepts messages while it is available."""

    def __init__(self) -> None:
        self.available = False
        self.messages: list[bytes] = []

    def __call__(self, message: bytes) -> None:
        if not self.available:
            raise ConnectionError("connection refused")
        self.messages.append(message)


def forwarder(send: Send, **limits: int) -> tuple[SpanForwarder, DeliveryCounters]:
    counters = DeliveryCounters("http://c")
    return SpanForwarder(send, counters, **limits), counters


def test_queued_messages_are_sent_as_one_in_order() -> None:
    collector = FlakyCollector()
    collector.available = True
    queue, counters = forwarder(collector)
    for part in (b"a", b"b", b"c"):
        queue.add(part, 2)
    queue.close(5)
    assert collector.messages == [b"abc"]
    assert (counters.exported, counters.failed, queue.queue_full) == (6, 0, 0)


def test_a_batch_has_a_limit_of_spans_unless_it_is_a_single_message() -> None:
    collector = FlakyCollector()
    collector.available = True
    queue, _ = forwarder(collector)
    for part, count in ((b"a", BATCH_SPANS - 1), (b"b", 1), (b"c", 1), (b"d", 3 * BATCH_SPANS)):
        queue.add(part, count)
    queue.close(5)
    assert collector.messages == [b"ab", b"c", b"d"]


def test_the_queue_is_bounded_in_spans_and_bytes_and_close_has_a_timeout() -> None:
    released, entered = threading.Event(), threading.Event()

    def slow(_: bytes) -> None:
        entered.set()
        released.wait()

    queue, counters = forwarder(slow, max_spans=10_000)
    queue.add(b"", BATCH_SPANS)
    assert entered.wait(5)
    queue.add(b"", 9_999)
    queue.add(b"", 2)
    queue.add(bytes(MAX_QUEUED_BYTES + 1), 1)
    assert queue.queue_full == 3
    queue.add(b"", 1)
    queue.close(0.05)
    assert (queue.accepted, counters.exported, counters.failed) == (BATCH_SPANS + 10_000, 0, 0)
    released.set()
    queue.close(5)
    assert counters.exported == BATCH_SPANS + 10_000


@pytest.mark.usefixtures("quick_batches")
async def test_http_sends_the_bytes_and_the_headers_and_reports_a_rejection() -> None:
    async with http_collector() as received:
        send = sender(Collector(url=received.url + "/v1/traces", headers={"x-scope": "a"}))
        queue, counters = forwarder(send)
        queue.add(sent(loading()), 1)
        await until(lambda: counters.exported == 1)
        received.refuse = True
        queue.add(sent(loading()), 1)
        await until(lambda: counters.failed == 1)
        queue.close(5)
    assert [request.SerializeToString() for request in received.requests] == [sent(loading())]
    assert received.headers[0]["x-scope"] == "a"


@pytest.mark.usefixtures("quick_batches")
async def test_a_collector_that_redirects_to_an_invalid_host_loses_only_its_spans() -> None:
    async def redirect(_: web.Request) -> web.Response:
        return web.Response(status=302, headers={"location": "http://a..b/"})

    app = web.Application()
    app.add_routes([web.post("/", redirect)])
    async with TestServer(app) as server:
        queue, counters = forwarder(sender(Collector(url=str(server.make_url("/")))))
        for number in (1, 2):
            queue.add(b"a", 1)
            await until(lambda wanted=number: counters.failed == wanted)  # type: ignore[misc]
        queue.close(5)


def reason(send: Send) -> str:
    try:
        send(b"")
    except OSError as error:
        return str(error)
    return "accepted"


def test_grpc_sends_the_bytes_and_the_headers() -> None:
    with grpc_receiver() as received:
        assert reason(sender(Collector(url=received.url, headers={"x-scope": "a"}))) == "accepted"
    assert received.headers[0]["x-scope"] == "a"


def test_an_unreachable_collector_has_a_reason() -> None:
    unused = f"127.0.0.1:{free_port()}"
    assert reason(sender(Collector(url=f"http://{unused}/v1/traces"))) == (
        "<urlopen error [Errno 111] Connection refused>"
    )
    assert reason(sender(Collector(url=f"grpc://{unused}"))).startswith("UNAVAILABLE: ")
