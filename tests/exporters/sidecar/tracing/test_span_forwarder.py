"""Spans of others on their way to a collector that may be away or slow."""

import threading
from collections.abc import Callable

from exporters.configuration.otlp_endpoints import Collector
from exporters.sidecar.tracing.span_forwarder import (
    BATCH_SPANS,
    QUEUED_BYTES,
    Fared,
    NotTakenError,
    Send,
    SpanForwarder,
    sender,
)
from tests.support.engine_span_messages import loading, sent
from tests.support.otlp_collectors import grpc_receiver, http_collector
from tests.support.ports import free_port
from tests.support.waiting import until


class Away:
    """A collector that takes what it gets while it is there."""

    def __init__(self) -> None:
        self.there = False
        self.got: list[bytes] = []

    def __call__(self, message: bytes) -> None:
        if not self.there:
            raise NotTakenError("connection refused")
        self.got.append(message)


def passing(send: Send, said: Callable[[str], None] = lambda _: None, **limits: int) -> tuple[SpanForwarder, Fared]:
    fared = Fared("http://c", said)
    return SpanForwarder(send, fared, **limits), fared


def test_messages_that_wait_go_as_one_in_their_order() -> None:
    away = Away()
    away.there = True
    queue, fared = passing(away)
    for part in (b"a", b"b", b"c"):
        queue.add(part, 2)
    queue.close(5)
    assert away.got == [b"abc"]
    assert (fared.exported, fared.failed, queue.queue_full) == (6, 0, 0)


def test_a_batch_has_no_more_spans_than_ours_but_for_one_message_that_has() -> None:
    away = Away()
    away.there = True
    queue, _ = passing(away)
    for part, count in ((b"a", BATCH_SPANS - 1), (b"b", 1), (b"c", 1), (b"d", 3 * BATCH_SPANS)):
        queue.add(part, count)
    queue.close(5)
    assert away.got == [b"ab", b"c", b"d"]


async def test_a_collector_that_is_away_costs_counted_spans_and_one_line_each_way() -> None:
    said: list[str] = []
    away = Away()
    queue, fared = passing(away, said.append)
    for number in range(3):
        queue.add(b"a", BATCH_SPANS)
        await until(lambda wanted=(number + 1) * BATCH_SPANS: fared.failed == wanted)  # type: ignore[misc]
    away.there = True
    queue.add(b"a", 1)
    queue.close(5)
    assert said == [
        "http://c takes no spans, they are dropped and counted until it does: connection refused",
        "http://c takes spans again, after 1536 were dropped",
    ]
    assert (fared.exported, fared.failed) == (1, 1536)


def test_behind_a_slow_collector_the_queue_is_bounded_in_spans_and_bytes_and_a_close_does_not_wait_for_it() -> None:
    held, entered = threading.Event(), threading.Event()

    def slow(_: bytes) -> None:
        entered.set()
        held.wait()

    queue, fared = passing(slow, queued=10_000)
    queue.add(b"", BATCH_SPANS)
    assert entered.wait(5)
    queue.add(b"", 9_999)
    queue.add(b"", 2)
    queue.add(bytes(QUEUED_BYTES + 1), 1)
    assert queue.queue_full == 3
    queue.add(b"", 1)
    queue.close(0.05)
    assert (queue.given, fared.exported, fared.failed) == (BATCH_SPANS + 10_000, 0, 0)
    held.set()
    queue.close(5)
    assert fared.exported == BATCH_SPANS + 10_000


async def test_http_takes_the_bytes_and_the_headers_and_a_refusal_says_why() -> None:
    async with http_collector() as got:
        send = sender(Collector(url=got.url + "/v1/traces", headers={"x-scope": "a"}))
        queue, fared = passing(send)
        queue.add(sent(loading()), 1)
        await until(lambda: fared.exported == 1)
        got.refuse = True
        queue.add(sent(loading()), 1)
        await until(lambda: fared.failed == 1)
        queue.close(5)
    assert [request.SerializeToString() for request in got.requests] == [sent(loading())]
    assert got.headers[0]["x-scope"] == "a"


def reason(send: Send) -> str:
    try:
        send(b"")
    except NotTakenError as error:
        return str(error)
    return "taken"


def test_grpc_takes_the_bytes_and_the_headers() -> None:
    with grpc_receiver() as got:
        assert reason(sender(Collector(url=got.url, headers={"x-scope": "a"}))) == "taken"
    assert got.headers[0]["x-scope"] == "a"


def test_where_nobody_listens_the_reason_is_said() -> None:
    nobody = f"127.0.0.1:{free_port()}"
    assert reason(sender(Collector(url=f"http://{nobody}/v1/traces"))) == (
        "<urlopen error [Errno 111] Connection refused>"
    )
    assert reason(sender(Collector(url=f"grpc://{nobody}"))).startswith("UNAVAILABLE: ")
