"""Events with an `event:` line on the fast path: counted as parsed ones are, also while their numbers rise."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporters.relay.dialects.paths import METERED
from tests.support.api_streams import APIS, MESSAGES, RESPONSES, Api, block_delta, delta, named
from tests.support.event_streams import begun, forwards, measured, raise_error, relayed, stream_as_relay, stream_meter
from tests.support.scripted_relay import chunk

TEXTS = st.text(max_size=8) | st.sampled_from(
    ['"', "\\", "\n", "漢字", "🙂", '"}\n\ndata: {', "", " a", "text", "type"]
)


def over_two_lines(event: bytes) -> bytes:
    """The same event with its JSON on two `data:` lines."""
    return event.replace(b'"type"', b'\ndata: "type"', 1)


DELTAS = st.one_of(
    st.builds(
        delta,
        st.sampled_from(["output_text", "reasoning_text", "function_call_arguments"]),
        TEXTS,
        st.integers(0, 200) | st.just(2**53),
    ),
    TEXTS.map(lambda text: block_delta("text_delta", "text", text)),
    TEXTS.map(lambda text: block_delta("thinking_delta", "thinking", text)),
    TEXTS.map(lambda text: block_delta("input_json_delta", "partial_json", text)),
    st.integers(0, 200).map(lambda usage: named(
        {"type": "content_block_delta", "delta": {"text": "a"}, "usage": {"input_tokens": 7, "output_tokens": usage}}
    )),
    st.just(named({"type": "content_block_delta", "delta": {"text": "a", "stop_reason": "end_turn"}})),
    st.just(named({"type": "content_block_delta", "delta": {"text": "a", "thinking": "b"}})),
    st.just(named({"type": "content_block_start", "delta": {"text": "a"}})),
    st.just(named({"type": "content_block_start", "content_block": {"type": "tool_use"}})),
    st.just(named({"type": "content_block_stop"})),
    st.just(named({"type": "response.function_call_arguments.done", "arguments": "{}"})),
    st.just(named({"type": "error", "delta": "a"})),
    TEXTS.map(lambda text: named({"type": "transcript.text.delta", "delta": text})),
    st.just(named({"type": "transcript.text.delta", "delta": "a", "choices": [{"finish_reason": "stop"}]})),
    st.just(named({"type": "transcript.text.done", "usage": {"input_tokens": 7, "output_tokens": 9}})),
)  # fmt: skip
FORMS = (
    lambda event: event,
    over_two_lines,
    lambda event: over_two_lines(event).replace(b'\ndata: "type', b'\n"type'),
    lambda event: event.replace(b"\n", b"\r\n"),
    lambda event: event.replace(b"\n", b"\r", 1),
    lambda event: event.partition(b"\n")[2],
    lambda event: event.replace(b"event: ", b"event: another ", 1),
    lambda event: event.replace(b"event: ", b'event: "a":7,', 1),
)
EVENTS = st.one_of(
    st.builds(lambda event, form: form(event), DELTAS, st.sampled_from(FORMS)),
    st.sampled_from([part for api in APIS.values() for part in (api.start, api.end, api.failure)]),
)


@settings(max_examples=60)
@given(st.sampled_from(sorted(METERED)), st.lists(EVENTS, max_size=12))
def test_named_events_on_the_fast_path_are_counted_and_forwarded_like_parsed_ones(
    path: str, events: list[bytes]
) -> None:
    parsed, compared = (stream_meter(dialect=METERED[path]) for _ in range(2))
    assert relayed(compared, events) == [parsed.stream(event, float(at)) for at, event in enumerate(events)] == events
    assert measured(compared) == measured(parsed)


@pytest.mark.parametrize(
    "api, events",
    [
        pytest.param(RESPONSES, [delta("output_text", "a", number) for number in range(8, 108)], id="responses"),
        pytest.param(MESSAGES, [block_delta("text_delta", "text", f"{n} ") for n in range(100)], id="messages"),
    ],
)
def test_the_deltas_of_a_stream_use_the_fast_path(api: Api, events: list[bytes]) -> None:
    meter = stream_meter(dialect=METERED[api.path])
    meter.stream(api.start, 0.0)
    # Two events show that the numbers rise.
    assert stream_as_relay(meter, events) == [chunk(event) for event in events[2 if api is RESPONSES else 1 :]]
    assert meter.chunks == 100


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(delta("output_text", "a").replace(b"output_text", b"reasoning_text", 1), id="another name"),
        pytest.param(delta("output_text", "a").replace(b"event: ", b"event:", 1), id="no space"),
        pytest.param(delta("output_text", "a").partition(b"\n")[2], id="no name"),
        pytest.param(delta("output_text", "a").replace(b"\n", b"\r\n"), id="other line ends"),
        pytest.param(delta("output_text", "a").replace(b'"msg_1"', b'"msg_2"'), id="another item"),
        pytest.param(delta("output_text", "a").replace(b"\ndata", b"\nid: 1\ndata"), id="an id"),
        pytest.param(delta("output_text", ""), id="no text"),
        pytest.param(delta("output_text", 'a"b'), id="an escape"),
        pytest.param(RESPONSES.end, id="the end"),
    ],
)
def test_any_other_event_is_left_to_the_parsers(event: bytes) -> None:
    events = (delta("output_text", "b", number) for number in (4, 5))
    _, stream, _ = begun(*events, dialect=METERED["/v1/responses"])
    assert forwards(stream, chunk(delta("output_text", "c", 6)))
    assert not forwards(stream, chunk(event))


@pytest.mark.parametrize(
    "first, other",
    [
        pytest.param(b'\ndata: "type"', b'\n"type"', id="a second data line, then a line without a field"),
        pytest.param(b'\rdata: "type"', b'\r"type"', id="the same with another line end"),
    ],
)
def test_json_on_several_lines_has_no_pattern(first: bytes, other: bytes) -> None:
    meter = stream_meter(dialect=METERED["/v1/responses"])
    event = delta("output_text", "a")
    meter.stream(event.replace(b'"type"', first), 1.0)
    stream = meter.fast_path(lambda _: None, raise_error)
    assert meter.chunks == 1
    assert stream is None or not forwards(stream, chunk(event.replace(b'"type"', other)))
