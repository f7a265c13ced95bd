"""Trace context: the client's `traceparent`, and the headers for the engine."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.relay.metering.trace_context import Caller, new_span, parse_traceparent, with_traceparent

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"


def parent(text: str) -> list[tuple[bytes, bytes]]:
    return [(b"traceparent", text.encode())]


@pytest.mark.parametrize(
    "text,sampled",
    [
        pytest.param(f"00-{TRACE}-{SPAN}-01", True, id="sampled"),
        pytest.param(f"00-{TRACE}-{SPAN}-00", False, id="not sampled"),
        pytest.param(f"00-{TRACE}-{SPAN}-03", True, id="sampled and random"),
        pytest.param(f"00-{TRACE}-{SPAN}-02", False, id="random alone"),
        pytest.param(f" 00-{TRACE}-{SPAN}-01\t", True, id="blanks around it"),
        pytest.param(f"cc-{TRACE}-{SPAN}-01", True, id="later version"),
        pytest.param(f"cc-{TRACE}-{SPAN}-01-what-ever", True, id="later version with more fields"),
    ],
)
def test_a_valid_traceparent_is_used(text: str, sampled: bool) -> None:
    assert parse_traceparent(parent(text)) == Caller(TRACE, SPAN, sampled)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param(f"00-{TRACE}-{SPAN}", id="no flags"),
        pytest.param(f"00-{TRACE}-{SPAN}-1", id="short flags"),
        pytest.param(f"00-{TRACE}-{SPAN}-01-more", id="version 00 with more fields"),
        pytest.param(f"00-{TRACE}-{SPAN}-01-", id="version 00 with a trailing dash"),
        pytest.param(f"cc-{TRACE}-{SPAN}-01more", id="later version without a dash"),
        pytest.param(f"ff-{TRACE}-{SPAN}-01", id="version ff"),
        pytest.param(f"0-{TRACE}-{SPAN}-01", id="short version"),
        pytest.param(f"00-{TRACE[:-1]}-{SPAN}-01", id="short trace id"),
        pytest.param(f"00-{TRACE}0-{SPAN}-01", id="long trace id"),
        pytest.param(f"00-{TRACE}-{SPAN[:-1]}-01", id="short span id"),
        pytest.param(f"00-{'0' * 32}-{SPAN}-01", id="trace id of zeros"),
        pytest.param(f"00-{TRACE}-{'0' * 16}-01", id="span id of zeros"),
        pytest.param(f"00-{TRACE.upper()}-{SPAN}-01", id="capitals"),
        pytest.param(f"00-{TRACE[:-1]}g-{SPAN}-01", id="not hex"),
        pytest.param(f"00-{TRACE}-{SPAN}-zz", id="flags not hex"),
        pytest.param(f"00_{TRACE}_{SPAN}_01", id="underscores"),
        pytest.param(f"00-{TRACE}-{SPAN}-01\n", id="a line end"),
    ],
)
def test_an_invalid_traceparent_is_ignored(text: str) -> None:
    assert parse_traceparent(parent(text)) is None


def test_several_traceparents_are_ignored() -> None:
    assert parse_traceparent(parent(f"00-{TRACE}-{SPAN}-01") * 2) is None
    assert parse_traceparent([]) is None


CALLERS = st.builds(
    Caller,
    st.integers(1, 2**128 - 1).map(lambda n: f"{n:032x}"),
    st.integers(1, 2**64 - 1).map(lambda n: f"{n:016x}"),
    st.booleans(),
)
OTHERS = st.lists(
    st.tuples(st.sampled_from([b"accept", b"tracestate", b"x-tenant"]), st.binary(max_size=5)), max_size=5
)


@given(CALLERS, OTHERS, st.booleans())
def test_one_relay_is_the_caller_of_the_next(client: Caller, others: list[tuple[bytes, bytes]], sampled: bool) -> None:
    flags = "01" if client.sampled else "00"
    headers = [*others, *parent(f"00-{client.trace_id}-{client.span_id}-{flags}")]
    assert parse_traceparent(headers) == client
    span = new_span(client)
    sent = with_traceparent(headers, client, span, sampled=sampled)
    assert parse_traceparent(sent) == Caller(client.trace_id, span.span_id, sampled=sampled)
    assert [header for header in sent if header[0] != b"traceparent"] == others
    assert span.span_id != client.span_id


@given(st.text(alphabet="0123456789abcdef-", max_size=60))
def test_the_engine_always_receives_one_valid_traceparent(text: str) -> None:
    headers = [*parent(text), (b"tracestate", b"a=1"), (b"accept", b"*/*")]
    client = parse_traceparent(headers)
    sent = with_traceparent(headers, client, new_span(client), sampled=True)
    assert parse_traceparent(sent) is not None
    assert ((b"tracestate", b"a=1") in sent) == (client is not None)
    assert (b"accept", b"*/*") in sent


def test_a_request_without_a_caller_starts_a_new_trace() -> None:
    spans = [new_span(None) for _ in range(100)]
    assert len({span.trace_id for span in spans} | {span.span_id for span in spans}) == 200
    assert {(len(span.trace_id), len(span.span_id)) for span in spans} == {(32, 16)}
