"""Chunks on the fast path are counted as parsed chunks are."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporters.http.parser import ChunkedBody
from exporters.http.size_lines import MAX_CHUNK
from exporters.relay.dialects import chat
from exporters.relay.metering import fast_path
from exporters.relay.metering.fast_path import FastPath, Forwarding, Pattern, learn
from exporters.relay.metering.gaps import MAX_FOLDED
from exporters.vocabulary.signals import Outcome
from tests.support.event_streams import begun, cut, forwards, measured, raise_error, relayed, stream_meter
from tests.support.scripted_relay import chunk


def event(delta: dict[str, Any], *, dump: Any = json.dumps, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None, **more.pop("choice", {})}
    value = {"id": "chatcmpl-0123", "object": "chat.completion.chunk", "model": "m", "choices": [choice], **more}
    return b"data: " + str(dump(value)).encode() + b"\n\n"


def pattern_of(data: bytes) -> Pattern | None:
    return learn(data, data[6:-2], chat.decode(data[6:-2]))


TEXTS = st.text(max_size=12) | st.sampled_from(
    ['"', "\\", "\n", "é", "漢字", "🙂", '","usage":{', "}}]}\n\ndata: {", "", " a"]
)
NUMBERS = st.integers(-1, 200) | st.sampled_from([2**53 - 1, 2**53, 10**15 - 1, 10**15, 1.5, "7"])
EVENTS = st.one_of(
    TEXTS.map(lambda text: event({"content": text})),
    TEXTS.map(lambda text: event({"reasoning_content": text})),
    st.just(event({"role": "assistant", "content": ""})),
    st.just(event({"tool_calls": [{"index": 0}]})),
    st.just(event({"tool_calls": [{"index": 1}]})),
    st.just(event({"content": "x"}, choice={"finish_reason": "stop"})),
    st.just(event({"content": "x"}, usage={"prompt_tokens": 1, "completion_tokens": 2})),
    st.builds(
        lambda text, prompt, number: event(
            {"content": text},
            usage={
                "prompt_tokens": prompt,
                "completion_tokens": number,
                "completion_tokens_details": {"reasoning_tokens": number},
            },
        ),
        TEXTS,
        st.integers(1, 2),
        NUMBERS,
    ),
    st.builds(lambda text, number: event({"content": text}, sequence_number=number), TEXTS, NUMBERS),
    st.builds(lambda number: event({"content": "x"}, system_fingerprint=f'"a":{number},'), NUMBERS),
    st.just(event({"content": "x"}, error={"message": "no"})),
    st.just(b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n'),
    st.just(b": ping\n\n"),
)


@settings(max_examples=50)
@given(st.lists(EVENTS, max_size=20), st.booleans(), st.booleans())
def test_chunks_on_the_fast_path_are_counted_and_forwarded_like_parsed_chunks(
    events: list[bytes], ascii_only: bool, strips_usage: bool
) -> None:
    # vLLM sends text as UTF-8, other engines send escapes.
    if not ascii_only:
        events = [
            b"data: " + json.dumps(json.loads(e[6:]), ensure_ascii=False).encode() + b"\n\n"
            if e[:6] == b"data: "
            else e
            for e in events
        ]
    parsed, compared = (stream_meter(strips_usage=strips_usage) for _ in range(2))
    assert relayed(compared, events) == [parsed.stream(event, float(at)) for at, event in enumerate(events)]
    assert measured(compared) == measured(parsed)


@pytest.mark.parametrize("compiled_from", [1, 1 << 30])
@given(st.lists(EVENTS, max_size=24), st.lists(st.integers(0, 10_000), max_size=12))
def test_reads_that_begin_and_end_anywhere_are_counted_and_forwarded_like_parsed_ones(
    compiled_from: int, events: list[bytes], places: list[int]
) -> None:
    parsed, compared = stream_meter(), stream_meter()
    expected, parsers, client = ChunkedBody(), ChunkedBody(), ChunkedBody()
    whole: list[bytes] = []
    forwarded: list[bytes] = []
    path: Forwarding | None = None

    def send(data: bytes) -> None:
        forwarded.extend(client.feed(data))

    def leave(data: bytes) -> None:
        nonlocal path
        path = None
        forwarded.extend(compared.stream(piece, at) for piece in parsers.feed(data))
        if parsers.between:
            path = compared.fast_path(send, raise_error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("exporters.relay.metering.fast_path.COMPILED_FROM", compiled_from)
        for number, data in enumerate(cut(b"".join(map(chunk, events)), places)):
            at = float(number)
            patch.setattr("exporters.relay.metering.fast_path.time.monotonic", lambda now=at: now)
            whole += [parsed.stream(piece, at) for piece in expected.feed(data)]
            if path is None:
                leave(data)
            else:
                path.leave = leave
                path.data_received(data)
    held = b"" if path is None else path._held
    assert b"".join(whole).startswith(b"".join(forwarded))
    assert len(b"".join(whole)) - len(b"".join(forwarded)) <= len(held)
    assert measured(compared) == measured(parsed)


def test_the_chunks_of_a_plain_stream_use_the_fast_path() -> None:
    one, stream, sent = begun(event({"content": "Once"}))
    for text in (" upon", " a", " time", ",", " 漢字", "🙂"):
        data = chunk(event({"content": text}, dump=lambda value: json.dumps(value, ensure_ascii=False)))
        assert forwards(stream, data)
        assert sent[-1] is data
    assert one.chunks == 7


def test_several_chunks_of_one_read_use_the_fast_path_and_have_one_arrival_time() -> None:
    one, stream, sent = begun(event({"content": "Once"}))
    data = b"".join(chunk(event({"content": text})) for text in (" upon", " a", " time"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("exporters.relay.metering.fast_path.time.monotonic", lambda: 3.0)
        assert forwards(stream, data)
    assert sent == [data]
    assert (one.chunks, list(one.gaps.recent)) == (4, [2.0, 0.0, 0.0])


def test_several_chunks_with_rising_numbers_use_the_fast_path_and_the_usage_of_the_last_is_read() -> None:
    def numbered(number: int) -> bytes:
        return event({"content": "x"}, usage={"prompt_tokens": 9, "completion_tokens": number})

    one, stream, sent = begun(numbered(1))
    data = b"".join(chunk(numbered(number)) for number in (2, 9, 10))
    assert forwards(stream, data)
    assert sent == [data]
    one.finish(Outcome.CLIENT_ABORT, 1e9)
    assert (one.chunks, one.completion_tokens) == (4, 10)


def compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


@pytest.mark.parametrize("dump", [pytest.param(json.dumps, id="with spaces"), pytest.param(compact, id="compact")])
def test_chunks_with_rising_numbers_use_the_fast_path_and_their_usage_is_read(dump: Any) -> None:
    def numbered(number: int) -> bytes:
        details = {"reasoning_tokens": number // 2}
        usage = {"prompt_tokens": 9, "completion_tokens": number, "completion_tokens_details": details}
        more = {"created": 1_700_000_000 + number, "sequence_number": 2 * number}
        return event({"content": f" {number}"}, dump=dump, **more, usage=usage)

    one, stream, sent = begun(numbered(1), numbered(2))
    for number in (3, 9, 10, 1000, 2):
        data = chunk(numbered(number))
        assert forwards(stream, data)
        assert sent[-1] is data
    one.finish(Outcome.CLIENT_ABORT, 1e9)
    assert (one.chunks, one.prompt_tokens, one.completion_tokens, one.reasoning_tokens) == (7, 9, 2, 1)


def test_usage_is_read_from_the_last_chunk_also_if_its_numbers_are_those_of_the_pattern() -> None:
    first = event({"content": "x"}, usage={"prompt_tokens": 1, "completion_tokens": 2})
    one, stream, _ = begun(first, event({"content": ""}, usage={"prompt_tokens": 1, "completion_tokens": 0}))
    assert forwards(stream, chunk(first))
    one.finish(Outcome.OK, 1e9)
    assert one.completion_tokens == 2


def number_after(number: bytes) -> bytes:
    return event({"content": "a"}, number=12345).replace(b"12345", number)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(number_after(b"01"), id="a leading zero"),
        pytest.param(number_after(b""), id="no number"),
        pytest.param(number_after(b"1.5"), id="a fraction"),
        pytest.param(number_after(b"-1"), id="a negative number"),
        pytest.param(number_after(b"1e5"), id="an exponent"),
        pytest.param(number_after(b"9" * 16), id="a number over the limit"),
        pytest.param(number_after(b"null"), id="null"),
        pytest.param(number_after(b"1").replace(b'"m"', b'"1"'), id="another change"),
    ],
)
@pytest.mark.parametrize("compiled_from", [1, 1 << 30])
def test_a_chunk_that_differs_in_anything_but_varying_numbers_is_left_to_the_parsers(
    data: bytes, compiled_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporters.relay.metering.fast_path.COMPILED_FROM", compiled_from)
    _, stream, _ = begun(number_after(b"1"), number_after(b"2"))
    assert forwards(stream, chunk(number_after(b"123")))
    assert not forwards(stream, chunk(data))


def test_a_number_within_a_string_does_not_vary() -> None:
    one = stream_meter()
    for number in (1, 2):
        one.stream(event({"content": "a"}, system_fingerprint=f'"a":{number},'), float(number))
    assert one.pattern is not None
    assert not one.pattern.varies


def test_a_chunk_that_cannot_be_counted_is_left_to_the_parsers() -> None:
    one = stream_meter()
    sent: list[bytes] = []
    failures: list[Exception] = []
    one.stream(event({"content": "Once"}), 1.0)
    assert one.pattern is not None

    def fail(*_: float) -> None:
        raise RuntimeError

    stream = FastPath(one.pattern, fail, fail, sent.append, failures.append)
    data = chunk(event({"content": "a"}))
    assert not forwards(stream, data)
    assert not forwards(stream, data + data)
    assert (len(failures), sent) == (2, [])


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(chunk(event({"content": ""})), id="no text"),
        pytest.param(chunk(event({"content": 'a"b'})), id="an escape"),
        pytest.param(chunk(event({"content": "a"}, choice={"finish_reason": "stop"})), id="a finish_reason"),
        pytest.param(chunk(event({"content": "a"}) * 2), id="two events"),
        pytest.param(b"0" + chunk(event({"content": "a"})), id="a size with a leading zero"),
        pytest.param(chunk(event({"content": "a" * MAX_CHUNK})), id="a chunk over the limit"),
        pytest.param(chunk(event({"content": "a"}).replace(b'"a"', b'"\xff"')), id="invalid UTF-8"),
        pytest.param(chunk(event({"content": "a"}).replace(b'"a"', b'"\xed\xa0\x80"')), id="half a surrogate pair"),
        pytest.param(chunk(event({"content": "a"}).replace(b'"a"', b'"\n\ndata: x"')), id="an event inside"),
        pytest.param(chunk(event({"content": "a"})).partition(b'"content": "')[2], id="no size line"),
        pytest.param(b"", id="an empty read"),
    ],
)
def test_any_other_read_is_left_to_the_parsers(data: bytes) -> None:
    one, stream, sent = begun(event({"content": "Once"}))
    assert not forwards(stream, data)
    assert (one.chunks, sent) == (1, [])


FIRST = chunk(event({"content": "a"}))


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param(b"0", id="one more byte"),
        pytest.param(chunk(event({"content": ""})), id="a chunk without text"),
        pytest.param(b"0" + FIRST, id="a chunk with a leading zero in its size"),
        pytest.param(FIRST.partition(b'"content": "')[2], id="a chunk without size line"),
        pytest.param(b"0\r\n\r\n", id="the last chunk"),
    ],
)
def test_the_rest_of_a_read_that_begins_with_chunks_of_the_pattern_is_left_to_the_parsers(rest: bytes) -> None:
    one, path, sent = begun(event({"content": "Once"}))
    left: list[bytes] = []
    path.leave = left.append
    path.data_received(FIRST + FIRST + rest)
    assert (one.chunks, sent, left) == (3, [FIRST + FIRST], [rest])


def test_the_beginning_of_a_chunk_waits_for_its_rest_without_leaving_the_fast_path() -> None:
    for size in range(1, len(FIRST)):
        one, path, sent = begun(event({"content": "Once"}))
        assert forwards(path, FIRST + FIRST[:size])
        assert forwards(path, FIRST[size:])
        assert (one.chunks, sent) == (3, [FIRST, FIRST]), size


def test_the_beginning_of_a_chunk_is_left_to_the_parsers_at_the_end_of_the_connection() -> None:
    one = stream_meter(strips_usage=False)
    left: list[bytes] = []
    one.stream(event({"content": "Once"}), 1.0)
    path = one.fast_path(left.append, raise_error)
    assert path is not None
    path.connection, path.leave = asyncio.Protocol(), left.append
    path.data_received(FIRST[:-1])
    assert left == []
    path.connection_lost(None)
    assert left == [FIRST[:-1]]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(event({"content": "m"}), id="the text occurs twice"),
        pytest.param(event({"content": "a\nb"}), id="the text is escaped"),
        pytest.param(event({"content": "a", "reasoning": "b"}), id="two texts"),
        pytest.param(event({"content": "a", "tool_calls": [{}]}), id="a text and a tool call"),
        pytest.param(event({"content": "a"}, metrics={"queue_time_ms": 1.0}), id="the engine's times"),
        pytest.param(event({"content": "a"}, error={}), id="an error"),
        pytest.param(event({"content": "a"}, choice={"finish_reason": "length"}), id="a finish_reason"),
        pytest.param(event({"role": "assistant"}), id="no text"),
    ],
)
def test_an_event_with_more_than_one_text_has_no_pattern(data: bytes) -> None:
    assert pattern_of(data) is None


def test_a_text_of_one_byte_is_forwarded_if_it_is_ascii_without_escapes() -> None:
    pattern = pattern_of(event({"content": "x"}))
    assert pattern is not None
    path = FastPath(pattern, lambda _: None, lambda *_: None, lambda _: None, lambda _: None)
    texts = [bytes([byte]) for byte in range(256)]
    chunks = [chunk(pattern.before.example + text + pattern.after.example) for text in texts]
    allowed = [text for text in texts if text >= b" " and text < b"\x80" and text not in {b'"', b"\\"}]
    assert [text for text, data in zip(texts, chunks, strict=True) if forwards(path, data)] == allowed
    assert [text for text, data in zip(texts, chunks, strict=True) if forwards(path, data + chunks[65])] == allowed


def test_an_event_over_the_limit_of_the_fast_path_has_no_pattern() -> None:
    assert pattern_of(event({"content": "a" * MAX_CHUNK})) is None


def test_a_stream_whose_chunks_differ_in_more_than_text_stops_learning_patterns() -> None:
    one = stream_meter(strips_usage=False)
    for number in range(100):
        one.stream(event({"content": "a"}, id=f"chatcmpl-{number}"), float(number))
    before = one.pattern
    one.stream(event({"content": "a"}, id="chatcmpl"), 101.0)
    assert one.pattern == before
    assert one.chunks == 101


@pytest.mark.parametrize("number", ["", ',"n":%d'])
def test_too_many_small_chunks_at_once_are_left_to_the_parsers(monkeypatch: pytest.MonkeyPatch, number: str) -> None:
    monkeypatch.setattr(fast_path, "MAX_CHUNK_LINES", 2000)
    one = stream_meter()
    few = fast_path.MAX_CHUNK_LINES // 4
    events = [f'data: {{"choices":[{{"text":"x"}}]{number and number % each}}}\n\n'.encode() for each in range(few + 1)]
    for data in events[:2]:
        one.stream(data, 1.0)
    path = one.fast_path(lambda _: None, lambda _: None)
    assert path is not None
    assert forwards(path, b"".join(map(chunk, events[:few])))
    assert not forwards(path, b"".join(map(chunk, events[: few + 1])))
    assert one.chunks == 2 + few


def test_chunks_that_arrive_together_have_no_gap_between_them() -> None:
    one, other = stream_meter(), stream_meter()
    for each in (one, other):
        each.stream(event({"content": "Once"}), 1.0)
    one.count_chunks(3, 2.0)
    for _ in range(3):
        other.count_chunk(2.0)
    assert list(one.gaps.recent) == list(other.gaps.recent) == [1.0, 0.0, 0.0]
    assert (one.chunks, one.last_at) == (other.chunks, other.last_at)
    one.count_chunks(2 * MAX_FOLDED, 3.0)
    assert len(one.gaps.recent) <= MAX_FOLDED + 3
    assert one.chunks == 4 + 2 * MAX_FOLDED
