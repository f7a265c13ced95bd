"""Chunks on the fast path are counted as parsed chunks are."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.relay import fast_path, sse
from exporters.relay.fast_path import FastPath, Pattern, learn
from exporters.relay.meter import Meter
from tests.support.event_streams import stream_meter
from tests.support.scripted_relay import chunk


def event(delta: dict[str, Any], *, dump: Any = json.dumps, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None, **more.pop("choice", {})}
    value = {"id": "chatcmpl-0123", "object": "chat.completion.chunk", "model": "m", "choices": [choice], **more}
    return b"data: " + str(dump(value)).encode() + b"\n\n"


def pattern_of(data: bytes) -> Pattern | None:
    return learn(data[6:-2], sse.decode(data[6:-2]))


TEXTS = st.text(max_size=12) | st.sampled_from(
    ['"', "\\", "\n", "é", "漢字", "🙂", '","usage":{', "}}]}\n\ndata: {", "", " a"]
)
EVENTS = st.one_of(
    TEXTS.map(lambda text: event({"content": text})),
    TEXTS.map(lambda text: event({"reasoning_content": text})),
    st.just(event({"role": "assistant", "content": ""})),
    st.just(event({"tool_calls": [{"index": 0}]})),
    st.just(event({"content": "x"}, choice={"finish_reason": "stop"})),
    st.just(event({"content": "x"}, usage={"prompt_tokens": 1, "completion_tokens": 2})),
    st.just(event({"content": "x"}, error={"message": "no"})),
    st.just(b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n'),
    st.just(b": ping\n\n"),
)


def counts(one: Meter) -> tuple[object, ...]:
    return (
        one.chunks, list(one.gaps.recent), one.first_at, one.answer_at, one.last_at,
        one.prompt_tokens, one.completion_tokens, one.finish_reason,
    )  # fmt: skip


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
    parsed, compared = stream_meter(strips_usage=strips_usage), stream_meter(strips_usage=strips_usage)
    expected: list[bytes] = []
    forwarded: list[bytes] = []
    for at, one in enumerate(events):
        expected.append(parsed.stream(one, float(at)))
        stream = (
            None
            if compared.pattern is None
            else FastPath(compared.pattern, compared.count_chunk, forwarded.append, _raise)
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("exporters.relay.fast_path.time.monotonic", lambda now=float(at): now)
            if stream is not None and stream.forward(chunk(one)):
                forwarded[-1] = forwarded[-1].partition(b"\r\n")[2][:-2]
            else:
                forwarded.append(compared.stream(one, float(at)))
    assert forwarded == expected
    assert counts(compared) == counts(parsed)


def _raise(error: Exception) -> None:
    raise error


def test_the_chunks_of_a_plain_stream_use_the_fast_path() -> None:
    one = stream_meter(strips_usage=True)
    sent: list[bytes] = []
    one.stream(event({"content": "Once"}), 1.0)
    assert one.pattern is not None
    stream = FastPath(one.pattern, one.count_chunk, sent.append, _raise)
    for text in (" upon", " a", " time", ",", " 漢字", "🙂"):
        data = chunk(event({"content": text}, dump=lambda value: json.dumps(value, ensure_ascii=False)))
        assert stream.forward(data)
        assert sent[-1] is data
    assert one.chunks == 7


def test_a_chunk_that_cannot_be_counted_is_left_to_the_parsers() -> None:
    one = stream_meter()
    sent: list[bytes] = []
    failures: list[Exception] = []
    one.stream(event({"content": "Once"}), 1.0)
    assert one.pattern is not None

    def fail(_: float) -> None:
        raise RuntimeError

    stream = FastPath(one.pattern, fail, sent.append, failures.append)
    assert not stream.forward(chunk(event({"content": "a"})))
    assert (len(failures), sent) == (1, [])


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(chunk(event({"content": ""})), id="no text"),
        pytest.param(chunk(event({"content": 'a"b'})), id="an escape"),
        pytest.param(chunk(event({"content": "a"}, choice={"finish_reason": "stop"})), id="a finish_reason"),
        pytest.param(chunk(event({"content": "a"})) * 2, id="two chunks"),
        pytest.param(chunk(event({"content": "a"}) * 2), id="two events"),
        pytest.param(chunk(event({"content": "a"}))[:-1], id="an incomplete chunk"),
        pytest.param(chunk(event({"content": "a"})) + b"0", id="a chunk and one more byte"),
        pytest.param(b"0" + chunk(event({"content": "a"})), id="a size with a leading zero"),
        pytest.param(chunk(event({"content": "a" * fast_path.MAX_CHUNK})), id="a chunk over the limit"),
        pytest.param(chunk(event({"content": "a"}).replace(b'"a"', b'"\xff"')), id="invalid UTF-8"),
        pytest.param(chunk(event({"content": "a"}).replace(b'"a"', b'"\xed\xa0\x80"')), id="half a surrogate pair"),
        pytest.param(chunk(event({"content": "a"}).replace(b'"a"', b'"\n\ndata: x"')), id="an event inside"),
        pytest.param(b"", id="an empty read"),
    ],
)
def test_any_other_read_is_left_to_the_parsers(data: bytes) -> None:
    one = stream_meter(strips_usage=False)
    sent: list[bytes] = []
    one.stream(event({"content": "Once"}), 1.0)
    assert one.pattern is not None
    assert not FastPath(one.pattern, one.count_chunk, sent.append, _raise).forward(data)
    assert (one.chunks, sent) == (1, [])


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(event({"content": "m"}), id="the text occurs twice"),
        pytest.param(event({"content": "a\nb"}), id="the text is escaped"),
        pytest.param(event({"content": "a", "reasoning": "b"}), id="two texts"),
        pytest.param(event({"content": "a", "tool_calls": [{}]}), id="a text and a tool call"),
        pytest.param(event({"content": "a"}, usage={"completion_tokens": 1}), id="usage in every chunk"),
        pytest.param(event({"content": "a"}, metrics={"queue_time_ms": 1.0}), id="the engine's times"),
        pytest.param(event({"content": "a"}, error={}), id="an error"),
        pytest.param(event({"content": "a"}, choice={"finish_reason": "length"}), id="a finish_reason"),
        pytest.param(event({"role": "assistant"}), id="no text"),
    ],
)
def test_an_event_with_more_than_one_text_has_no_pattern(data: bytes) -> None:
    assert pattern_of(data) is None


def test_an_event_over_the_limit_of_the_fast_path_has_no_pattern() -> None:
    assert pattern_of(event({"content": "a" * fast_path.MAX_CHUNK})) is None


def test_a_stream_whose_chunks_differ_in_more_than_text_stops_learning_patterns() -> None:
    one = stream_meter(strips_usage=False)
    for number in range(100):
        one.stream(event({"content": "a"}, created=number), float(number))
    before = one.pattern
    one.stream(event({"content": "a"}, created=-1), 101.0)
    assert one.pattern == before
    assert one.chunks == 101
