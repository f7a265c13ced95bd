"""Counting bytes up to a limit, and reads of many lines, which are parsed in several iterations of the event loop."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.http import lines as byte_counts
from exporters.http import parser
from exporters.http.lines import MAX_LINES, few_lines, has_more_than
from exporters.vocabulary.signals import Outcome
from tests.fuzz.wire import Bench, Wire, feed, settle
from tests.support.scripted_relay import (
    CHAT,
    CHAT_WITH_USAGE,
    DONE,
    END,
    OK,
    ROLE,
    STREAM_HEAD,
    UNARY,
    body_of,
    chunk,
    content,
    post,
)

EVENTS = [ROLE, *(content(f"{number}") for number in range(3 * MAX_LINES)), content("", "stop"), DONE]
STREAM = b"".join(EVENTS)


@given(st.binary(max_size=50), st.integers(0, 60))
def test_bytes_are_counted_up_to_the_limit(data: bytes, limit: int) -> None:
    data = data.replace(b"\xff", b"a")
    assert has_more_than(limit, b"a", data) == (data.count(b"a") > limit)


@given(st.text("a\r\n", max_size=60), st.integers(1, 10))
def test_a_read_is_cut_only_if_it_has_more_lines_than_the_limit(text: str, limit: int) -> None:
    data = text.encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(byte_counts, "MAX_LINES", limit)
        part = few_lines(data)
    counts = part.count(b"\n"), part.count(b"\r")
    assert data.startswith(part)
    assert len(part) > 0 or not data
    assert max(counts) <= limit
    assert part == data or max(data.count(b"\n"), data.count(b"\r")) > limit


async def asked(bench: Bench, request: bytes = post(CHAT_WITH_USAGE, close=False)) -> Wire:
    """The connection to the engine, which has the request."""
    feed(bench.client, request)
    await settle()
    return bench.pool.wires[-1]


async def all_parsed(engine: Wire) -> None:
    while not engine.is_reading():
        await settle()


@pytest.mark.parametrize(
    "head, data, end",
    [
        pytest.param(STREAM_HEAD, b"".join(map(chunk, EVENTS)), END, id="chunks of one event"),
        pytest.param(STREAM_HEAD, chunk(STREAM), END, id="one chunk"),
        pytest.param(STREAM_HEAD, chunk(STREAM.replace(b"\n", b"\r\n")), END, id="CRLF"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n", STREAM, None, id="until the end"),
    ],
)
async def test_a_stream_that_arrives_at_once_is_measured_and_forwarded_as_in_many_reads(
    head: bytes, data: bytes, end: bytes | None
) -> None:
    received = []
    for reads in ([head + data + (end or b"")], [head, *(data[at : at + 500] for at in range(0, len(data), 500)), end]):
        bench = Bench()
        engine = await asked(bench)
        for read in reads:
            if read:
                feed(engine, read)
        if end is None:
            engine.lose()
        for _ in range(len(data) // MAX_LINES):
            await settle()
        (record,) = bench.records
        assert (record.outcome, record.finish_reason) == (Outcome.OK, "stop")
        assert sum((record.gap_counts or {}).values()) == 3 * MAX_LINES - 1
        received.append(body_of(bytes(bench.client.sent)))
    assert received[0] == received[1] == data if end is None else STREAM.replace(b"\n", received[0][-1:])
    assert len(received[0]) >= len(STREAM)


async def test_one_callback_parses_no_more_lines_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[int] = []
    feed_body = parser.CloseDelimitedBody.feed

    def counted(body: parser.CloseDelimitedBody, data: bytes) -> list[bytes]:
        lines.append(data.count(b"\n"))
        return feed_body(body, data)

    monkeypatch.setattr(parser.CloseDelimitedBody, "feed", counted)
    engine = await asked(Bench())
    feed(engine, b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + STREAM)
    assert len(lines) == 1
    await all_parsed(engine)
    assert max(lines) <= MAX_LINES
    assert sum(lines) == STREAM.count(b"\n")


async def test_while_the_client_does_not_read_the_rest_of_a_read_waits() -> None:
    bench = Bench()
    engine = await asked(bench)
    bench.client.block()
    feed(engine, STREAM_HEAD + chunk(STREAM) + END)
    for _ in range(50):
        await settle()
    assert len(bench.client._unsent) < len(STREAM) / 2
    assert bench.records == []
    bench.client.unblock()
    while not bench.records:
        bench.client.unblock()
        bench.client.block()
        await settle()
    bench.client.unblock()
    assert body_of(bytes(bench.client.sent)) == STREAM
    assert bench.records[0].outcome is Outcome.OK


async def test_a_client_that_leaves_in_the_middle_of_a_read_frees_the_engine() -> None:
    bench = Bench()
    engine = await asked(bench)
    feed(engine, STREAM_HEAD + chunk(STREAM) + END)
    bench.client.lose()
    await settle()
    assert engine.ended == "aborted"
    await settle()
    assert bench.records[0].outcome is Outcome.CLIENT_ABORT


async def test_bytes_that_a_transport_passes_on_after_it_was_paused_follow_the_rest_of_the_read() -> None:
    bench = Bench()
    engine = await asked(bench)
    framed = STREAM_HEAD + chunk(STREAM) + END
    feed(engine, framed[:-1000])
    assert not engine.is_reading()
    feed(engine, framed[-1000:])
    await all_parsed(engine)
    assert body_of(bytes(bench.client.sent)) == STREAM
    assert bench.records[0].outcome is Outcome.OK


@pytest.mark.parametrize("more", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"])
async def test_a_connection_is_used_again_only_if_nothing_follows_the_response(more: bytes) -> None:
    bench = Bench()
    engine = await asked(bench)
    feed(engine, STREAM_HEAD + b"".join(map(chunk, EVENTS)) + END + more)
    while not bench.records:
        await settle()
    again = await asked(bench, post(UNARY, close=False))
    assert (again is engine) == (not more)
    feed(again, OK)
    await settle()
    assert [record.outcome for record in bench.records] == [Outcome.OK, Outcome.OK]


async def test_chunks_of_an_upload_that_arrive_at_once_are_parsed_in_several_callbacks_and_forwarded_in_order() -> None:
    bench = Bench()
    body = b"".join(b"%d," % number for number in range(3 * MAX_LINES))
    chunks = b"".join(chunk(body[at : at + 17]) for at in range(0, len(body), 17))
    head = b"POST /v1/chat/completions/batch HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    feed(bench.client, head + chunks + END + b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
    (engine,) = bench.pool.wires
    assert len(engine.sent) < len(body)
    while not engine.sent.endswith(END):
        await settle()
    assert body_of(bytes(engine.sent)) == body
    feed(engine, OK)
    await settle()
    assert engine.sent.count(b"GET /health HTTP/1.1") == 1


async def test_one_callback_begins_one_request() -> None:
    bench = Bench()
    refused = b"GET /sleep HTTP/1.1\r\nhost: x\r\n\r\n"
    feed(bench.client, refused * 100)
    assert bytes(bench.client.sent).count(b"HTTP/1.1 403 ") == 1
    while bytes(bench.client.sent).count(b"HTTP/1.1 403 ") < 100:
        await settle()
    assert len(bench.records) == 100


async def test_requests_that_wait_to_be_parsed_are_read_only_up_to_a_limit() -> None:
    bench = Bench()
    refused = b"GET /sleep HTTP/1.1\r\nhost: x\r\n\r\n"
    feed(bench.client, refused * 2200)
    assert not bench.client.is_reading()
    while not bench.client.is_reading():
        await settle()
    assert len(bench.client.protocol._buffer) <= 64 * 1024  # type: ignore[attr-defined]  # the client connection


@pytest.mark.parametrize("read", [1, 7])
async def test_the_bytes_searched_for_the_end_of_a_response_head_grow_linearly(
    monkeypatch: pytest.MonkeyPatch, read: int
) -> None:
    searched, head_end = 0, parser.head_end

    def counted(data: bytes, of: str, scanned: int = 0) -> int:
        nonlocal searched
        searched += len(data) - scanned
        return head_end(data, of, scanned)

    monkeypatch.setattr(parser, "head_end", counted)
    bench = Bench()
    engine = await asked(bench, post(CHAT, close=False))
    before = searched
    response = (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nlong: " + b"x" * 5000 + b"\r\ncontent-length: 2\r\n\r\nok"
    )
    for start in range(0, len(response), read):
        feed(engine, response[start : start + read])
    assert searched - before < 2 * len(response)
    await settle()
    assert bytes(bench.client.sent).endswith(b"ok")
