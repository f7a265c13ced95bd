"""The parser reads valid HTTP/1.1 alike for any split into reads, and rejects ambiguous input."""

import re

import h11
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from exporters.http import parser
from exporters.relay.connections import message_heads
from tests.support.event_streams import cut

CUTS = st.lists(st.integers(0, 10_000), max_size=12)
NAMES = st.from_regex(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,12}", fullmatch=True)
VALUES = st.from_regex(r"[!-~]([\t -~]{0,20}[!-~])?|", fullmatch=True)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(NAMES, VALUES, st.sampled_from(["", " ", "\t "]), st.sampled_from(["", " ", " \t"])), max_size=6)
)
def test_headers_are_parsed_as_by_h11(lines: list[tuple[str, str, str, str]]) -> None:
    block = b"GET / HTTP/1.1\r\nHost: x\r\n"
    for name, value, before, after in lines:
        if name.lower() not in {"host", "content-length", "transfer-encoding", "connection", "upgrade"}:
            block += f"{name}:{before}{value}{after}\r\n".encode()
    block += b"\r\n"
    other = h11.Connection(h11.SERVER)
    other.receive_data(block)
    event = other.next_event()
    assert isinstance(event, h11.Request)
    assert parser.parse_request(block).headers == [(bytes(name), bytes(value)) for name, value in event.headers]


@pytest.mark.parametrize("digits, accepted", [(parser.MAX_DIGITS, True), (parser.MAX_DIGITS + 1, False)])
def test_a_length_has_a_limit_of_digits(digits: int, accepted: bool) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %s\r\n\r\n" % (b"0" * (digits - 1) + b"7")
    if accepted:
        assert parser.parse_response(head, head_only=False).length == 7
    else:
        with pytest.raises(parser.BadHttpError):
            parser.parse_response(head, head_only=False)


@pytest.mark.parametrize("size, broken", [(parser.MAX_LINE, False), (parser.MAX_LINE + 1, True)])
def test_an_incomplete_size_line_has_a_limit(size: int, broken: bool) -> None:
    body = parser.ChunkedBody()
    body.feed(b"2;" + b"x" * (size - 2))
    assert body.broken is broken


CHUNK = st.tuples(st.binary(min_size=1, max_size=40), st.sampled_from([b"", b";a=b", b' ; quoted="x"']))


@given(
    st.lists(CHUNK, max_size=6),
    st.sampled_from([b"", b"x-late: 1\r\n", b"a: b\r\nc:\r\n"]),
    CUTS,
    st.binary(max_size=9),
)
@example([(b"\r\n0\r\n\r\n", b"")], b"", [3, 6], b"GET")
@example([(b"{}", b";a=b"), (b"[]", b"")], b"x-late: 1\r\n", [*range(60)], b"GET")  # byte by byte
def test_a_chunked_body_is_the_same_for_any_split_into_reads(
    chunks: list[tuple[bytes, bytes]], trailers: bytes, places: list[int], after: bytes
) -> None:
    data = b"".join(b"%X%s\r\n%s\r\n" % (len(piece), extension, piece) for piece, extension in chunks)
    data += b"0\r\n" + trailers + b"\r\n"
    body, pieces = parser.ChunkedBody(), []
    for part in cut(data, places)[:-1]:
        pieces += body.feed(part)
        assert not body.broken
        assert not body.done
    pieces += body.feed(cut(data, places)[-1] + after)
    assert (body.done, body.broken, body.rest) == (True, False, after)
    assert b"".join(pieces) == b"".join(piece for piece, _ in chunks)


RUN = st.tuples(st.integers(1, 16), st.integers(0, 40), st.sampled_from([b"%x", b"%X", b"0%x"]))


@given(st.lists(RUN, max_size=6), CUTS)
def test_runs_of_small_chunks_have_the_same_data_for_any_split_into_reads(
    runs: list[tuple[int, int, bytes]], places: list[int]
) -> None:
    chunks = [(size_line % size, bytes(range(size))) for size, count, size_line in runs for _ in range(count)]
    data = b"".join(b"%s\r\n%s\r\n" % chunk for chunk in chunks) + b"0\r\n\r\n"
    body = parser.ChunkedBody()
    pieces = [piece for part in cut(data, places) for piece in body.feed(part)]
    assert (body.done, body.broken, body.rest) == (True, False, b"")
    assert b"".join(pieces) == b"".join(piece for _, piece in chunks)


def test_few_small_chunks_in_a_read_remain_separate() -> None:
    chunks = [b"data: ", b"{}", b"\n\n"] * 10 + [b"ab"] * 10
    data = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in chunks)
    assert parser.ChunkedBody().feed(data) == chunks


@pytest.mark.parametrize("size", [1, 2, 15])
def test_chunks_of_equal_small_size_are_merged_and_not_parsed_one_by_one(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    parsed, parse = 0, parser._CHUNK_SIZE

    def count(data: bytes, at: int) -> re.Match[bytes] | None:
        nonlocal parsed
        parsed += 1
        return parse(data, at)

    monkeypatch.setattr(parser, "_CHUNK_SIZE", count)
    count_of_chunks = 256 * 1024 // (size + 5)
    pieces = parser.ChunkedBody().feed(b"%x\r\n%s\r\n" % (size, bytes(size)) * count_of_chunks)
    assert sum(map(len, pieces)) == count_of_chunks * size
    assert parsed == 1


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"2\n{}\r\n0\r\n\r\n", id="a size line that ends in a bare LF"),
        pytest.param(b"2\r\n{}\n0\r\n\r\n", id="data that ends in a bare LF"),
        pytest.param(b"2\r\n{}X\r\n", id="data longer than their size"),
        pytest.param(b"0x2\r\n{}\r\n", id="a size with a prefix"),
        pytest.param(b"+2\r\n{}\r\n", id="a signed size"),
        pytest.param(b"-1\r\n{}\r\n", id="a negative size"),
        pytest.param(b" 2\r\n{}\r\n", id="a space before the size"),
        pytest.param(b"\r\n{}\r\n", id="no size"),
        pytest.param(b"\n2\r\n{}\r\n", id="a bare LF before the size"),
        pytest.param(b"1000000000000000\r\n{}\r\n", id="a size beyond 60 bits"),
        pytest.param(b"2;a=\x00\r\n{}\r\n", id="a control character in an extension"),
        pytest.param(b"2;" + b"x" * parser.MAX_LINE, id="a size line over the limit"),
        pytest.param(b"0\r\n: x\r\n\r\n", id="a trailer without a name"),
        pytest.param(b"0\r\na: b\nc: d\r\n\r\n", id="a trailer that ends in a bare LF"),
        pytest.param(b"0\r\na: " + b"x" * parser.MAX_TRAILERS, id="trailers over the limit"),
    ],
)
@settings(max_examples=10)
@given(places=CUTS)
def test_ambiguous_or_malformed_chunks_break_the_body(data: bytes, places: list[int]) -> None:
    body = parser.ChunkedBody()
    for part in cut(data, places):
        body.feed(part)
        if body.broken:
            break
    assert body.broken
    assert not body.done


@pytest.mark.parametrize(
    "head,length,chunked",
    [
        pytest.param(b"200 OK\r\ncontent-length: 5\r\n", 5, False, id="a length"),
        pytest.param(b"200 OK\r\ntransfer-encoding: Chunked\r\n", None, True, id="chunks"),
        pytest.param(b"200 OK\r\n", None, False, id="until the close"),
        pytest.param(b"200\r\ncontent-length: 5\r\n", 5, False, id="no reason"),
        pytest.param(b"204 No Content\r\n", 0, False, id="no content"),
        pytest.param(b"304 Not Modified\r\ncontent-length: 5\r\n", 0, False, id="not modified"),
        pytest.param(b"200 OK\r\ncontent-length: 5\r\ncontent-length: 5\r\n", 5, False, id="the same length twice"),
    ],
)
def test_a_response_head_gives_the_framing_of_its_body(head: bytes, length: int | None, chunked: bool) -> None:
    reply = parser.parse_response(b"HTTP/1.1 " + head + b"\r\n", head_only=False)
    assert (reply.length, reply.chunked) == (length, chunked)
    assert parser.parse_response(b"HTTP/1.1 " + head + b"\r\n", head_only=True).length == 0


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n", id="two lengths"),
        pytest.param(b"200 OK\r\ncontent-length: five\r\n", id="a length that is not a number"),
        pytest.param(b"200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n", id="a length and chunks"),
        pytest.param(b"200 OK\r\ntransfer-encoding: gzip\r\n", id="an encoding other than chunked"),
        pytest.param(b"20 OK\r\n", id="a status of two digits"),
        pytest.param(b"200 OK\r\nname: a\r\n folded: b\r\n", id="a folded header"),
    ],
)
def test_an_ambiguous_or_malformed_response_head_is_rejected(head: bytes) -> None:
    with pytest.raises(parser.BadHttpError):
        parser.parse_response(b"HTTP/1.1 " + head + b"\r\n", head_only=False)


@given(st.binary(max_size=400))
def test_a_head_is_parsed_in_linear_time(data: bytes) -> None:
    """All patterns are possessive, so none backtracks."""
    hostile = b"GET / HTTP/1.1\r\n" + b"a: " + b" \t" * 20_000 + data.replace(b"\r\n\r\n", b"") + b"\r\n\r\n"
    with pytest.raises(parser.BadHttpError):
        parser.parse_request(hostile + b"x")


def test_the_head_of_streams_is_parsed_once_and_each_response_has_its_own_id() -> None:
    request = parser.parse_request(b"POST / HTTP/1.1\r\nhost: a\r\n\r\n")
    block = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    head, again = (parser.parse_response(bytes(bytearray(block)), head_only=False) for _ in range(2))
    assert head is again
    sent = {
        number: message_heads.response_head(request, head, "/v1/completions", number, shortens_streams=True, last=last)[
            0
        ]
        for number, last in (("1", False), ("2", False), ("3", True))
    }
    expected = (
        b"HTTP/1.1 200 OK\r\nx-request-id: %s\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
    )
    assert sent == {
        "1": expected % b"1" + b"\r\n",
        "2": expected % b"2" + b"\r\n",
        "3": expected % b"3" + b"connection: close\r\n\r\n",
    }


def test_a_connection_with_a_chunked_response_of_http_1_0_is_not_used_again() -> None:
    head = b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\n%s\r\n\r\n"
    parse_response = parser.parse_response
    assert parse_response(head % b"content-length: 2", head_only=False).keep_alive
    assert not parse_response(head % b"transfer-encoding: chunked", head_only=False).keep_alive


@given(st.integers(0, 1000), st.binary(max_size=4))
def test_all_empty_lines_before_a_request_are_skipped_at_once(count: int, rest: bytes) -> None:
    lines = b"\r\n" * count
    assert parser.empty_lines(lines + b"G" + rest) == len(lines)


@pytest.mark.parametrize(
    "framing, length, chunked, has_body",
    [
        (b"", 0, False, False),
        (b"content-length: 0\r\n", 0, False, False),
        (b"content-length: 1\r\n", 1, False, True),
        (b"transfer-encoding: chunked\r\n", 0, True, True),
    ],
)
def test_repeated_headers_that_are_lists_leave_the_framing_of_a_request(
    framing: bytes, length: int, chunked: bool, has_body: bool
) -> None:
    head = b"POST / HTTP/1.1\r\nhost: a\r\naccept: a\r\naccept: b\r\n" + framing + b"\r\n"
    request = parser.parse_request(head)
    assert (request.length, request.chunked, request.has_body) == (length, chunked, has_body)
    assert request.get(b"accept") == "a"


@given(st.binary(max_size=30), st.binary(max_size=9), CUTS)
def test_a_body_with_a_length_is_the_same_for_any_split_into_reads(
    data: bytes, after: bytes, places: list[int]
) -> None:
    body, pieces, reads = parser.SizedBody(len(data)), [], cut(data + after, places)
    while not body.done:
        assert body.rest == b""
        pieces += body.feed(reads.pop(0))
    assert (b"".join(pieces), body.rest + b"".join(reads)) == (data, after)


@pytest.mark.parametrize("first_line", [b"GET / HTTP/1.1", b"HTTP/1.1 200 OK"])
@pytest.mark.parametrize("excess", [-1, 0, 1])
def test_lines_are_kept_for_later_heads_only_if_their_head_is_small(first_line: bytes, excess: int) -> None:
    head = first_line + b"\r\nhost: a\r\ntransfer-encoding: chunked\r\nx-filler: %s\r\n\r\n"
    head %= bytes(parser.KEPT_HEAD + excess - len(head) + 2).replace(b"\0", b"x")
    caches = (parser._header, parser._request_line, parser._status_line, parser._response_head)
    for cache in caches:
        cache.cache_clear()
    if first_line.startswith(b"GET"):
        parser.parse_request(head)
        kept = (3, 1, 0, 0)
    else:
        parser.parse_response(head, head_only=False)
        kept = (3, 0, 1, 1)
    assert tuple(cache.cache_info().currsize for cache in caches) == ((0, 0, 0, 0) if excess > 0 else kept)
