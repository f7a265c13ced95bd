"""Event streams, split at any byte."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporters.http import sse
from exporters.http.sse import Splitter, payload
from exporters.relay.dialects.chat import decode
from exporters.relay.metering.meter import MAX_HELD_EVENT
from tests.support.event_streams import cut, stream_meter
from tests.support.scripted_relay import DONE, ROLE, USAGE, content

LINE_ENDS = st.sampled_from([b"\n", b"\r\n"])
EVENT = st.sampled_from([ROLE, content("a"), content("ü€"), b": ping\n\n", b"event: x\ndata: {}\n\n", USAGE])


@given(st.lists(EVENT, max_size=8), LINE_ENDS, st.lists(st.integers(0, 10_000), max_size=40))
def test_events_are_complete_and_in_order_for_any_split_into_reads(
    events: list[bytes], line_end: bytes, places: list[int]
) -> None:
    events = [event.replace(b"\n", line_end) for event in events]
    splitter = Splitter()
    split = [event for piece in cut(b"".join(events), places) for event in splitter.feed(piece)]
    assert split == events
    assert splitter.release() == b""


@given(st.text("a\r\n", max_size=30), st.lists(st.integers(0, 30), max_size=10))
def test_blank_lines_of_any_line_ends_are_found_for_any_split_into_reads(text: str, places: list[int]) -> None:
    data = text.encode()
    whole, parts = Splitter(), Splitter()
    assert [event for piece in cut(data, places) for event in parts.feed(piece)] == whole.feed(data)
    assert parts.pending == whole.pending
    assert parts.release() == whole.release()


@pytest.mark.parametrize(
    "size, read",
    [
        pytest.param(4 * 1024 * 1024, 65_536, id="4 MiB in reads of 64 KiB"),
        pytest.param(100 * 1024, 2, id="100 KiB in chunks of two bytes"),
    ],
)
@pytest.mark.parametrize("strips_usage", [True, False])
def test_the_bytes_searched_grow_linearly_with_the_size_of_an_event(
    monkeypatch: pytest.MonkeyPatch, size: int, read: int, strips_usage: bool
) -> None:
    searched, search = 0, sse._end_of_blank_line

    def end_of_blank_line(data: bytearray, start: int) -> int:
        nonlocal searched
        searched += len(data) - start
        return search(data, start)

    monkeypatch.setattr(sse, "_end_of_blank_line", end_of_blank_line)
    event = content("x" * size)
    meter = stream_meter(strips_usage=strips_usage)
    sent = [meter.stream(event[start : start + read], 1.0) for start in range(0, len(event), read)]
    assert b"".join(sent) == event
    assert meter.chunks == 1
    assert len(event) - read <= searched <= 3 * len(event)


TIMED = USAGE.replace(b'"metrics"', b'"timings":{"a":1},"metrics"')
KEPT = b'data: {"choices":[],"timings":{"a":1},"metrics"' + USAGE.partition(b'"metrics"')[2]


@settings(max_examples=60)
@given(st.lists(EVENT | st.just(TIMED), max_size=8), LINE_ENDS, st.lists(st.integers(0, 10_000), max_size=40))
def test_only_usage_is_removed_from_an_event_with_other_fields_for_any_split(
    events: list[bytes], line_end: bytes, places: list[int]
) -> None:
    data = b"".join([*events, TIMED, DONE]).replace(b"\n", line_end)
    expected = b"".join([*events, TIMED, DONE]).replace(TIMED, KEPT).replace(USAGE, b"")
    ours = stream_meter(strips_usage=True)
    stripped = b"".join([*(ours.stream(piece, 1.0) for piece in cut(data, places)), ours.stream_end(1.0)])
    assert stripped == expected.replace(b"\n", line_end)
    assert ours.completion_tokens == 3


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(b'data: {"choices":[],\ndata: "usage":{},"timings":{}}\n\n', id="several data lines"),
        pytest.param(b'data: {"choices":[],"usage":{},"\xff":{}}\n\n', id="a name that is not UTF-8"),
    ],
)
def test_an_event_whose_usage_cannot_be_removed_is_unchanged(event: bytes) -> None:
    assert stream_meter(strips_usage=True).stream(event, 1.0) == event


def test_an_event_over_the_limit_is_forwarded_at_once_and_unchanged() -> None:
    ours = stream_meter(strips_usage=True)
    event = content("x" * (3 * MAX_HELD_EVENT))
    first, second = event[: 2 * MAX_HELD_EVENT], event[2 * MAX_HELD_EVENT :]
    sent = ours.stream(first, 1.0)
    assert sent == first
    assert ours.stream(second, 2.0) == second
    assert ours.chunks == 1


@pytest.mark.parametrize(
    "event,data",
    [
        pytest.param(b"data: {}\n\n", b"{}", id="one line"),
        pytest.param(b"data:{}\r\n\r\n", b"{}", id="no space, CRLF"),
        pytest.param(b"data: {\ndata: }\n\n", b"{\n}", id="several data lines"),
        pytest.param(b": comment\n\n", b"", id="comment"),
        pytest.param(b"event: x\nid: 1\ndata: {}\n\n", b"{}", id="other fields"),
    ],
)
def test_the_payload_of_an_event_is_its_data_field(event: bytes, data: bytes) -> None:
    assert payload(event) == data


@pytest.mark.parametrize(
    "event,output,answer",
    [
        pytest.param(b'{"choices":[{"delta":{"role":"assistant","content":""}}]}', False, False, id="role only"),
        pytest.param(b'{"choices":[{"delta":{"content":"a"}}]}', True, True, id="content"),
        pytest.param(b'{"choices":[{"delta":{"reasoning_content":"a"}}]}', True, False, id="reasoning"),
        pytest.param(b'{"choices":[{"delta":{"reasoning":"a","content":null}}]}', True, False, id="reasoning, newer"),
        pytest.param(b'{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}', True, True, id="tool call"),
        pytest.param(b'{"choices":[{"delta":{"tool_calls":[]}}]}', False, False, id="no tool call"),
        pytest.param(b'{"choices":[{"text":"a"}]}', True, True, id="completion text"),
        pytest.param(b'{"choices":[{"text":""},{"text":"b"}]}', True, True, id="any choice"),
        pytest.param(b'{"choices":[]}', False, False, id="no choice"),
    ],
)
def test_an_event_has_output_if_any_choice_has_output(event: bytes, output: bool, answer: bool) -> None:
    decoded = decode(event)
    assert (decoded.output, decoded.answer) == (output, answer)
