"""A response is parsed the same in pieces of any size."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from exporters.http.parser import BadHttpError
from loadgen.client import completion
from loadgen.client.completion import CompletionResponse
from loadgen.client.http_response import HttpResponse
from loadgen.results.record import ClientOutcome

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
USAGE = {"prompt_tokens": 31, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 16}}
METRICS = {"queue_time_ms": 12.5, "time_to_first_token_ms": 40.0, "generation_time_ms": 80.0}


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def token(content: str, reason: str | None = None) -> bytes:
    return event({"choices": [{"index": 0, "delta": {"content": content}, "finish_reason": reason}]})


ROLE = event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})
LAST = event({"choices": [], "usage": USAGE, "metrics": METRICS})
DONE = b"data: [DONE]\n\n"
WHOLE = [ROLE, b": ping\n\n", token("a"), token('b "content": "" \n'), token("c", "length"), LAST, DONE]


def chunked(*events: bytes, end: bool = True) -> bytes:
    return b"".join(b"%x;x=1\r\n%s\r\n" % (len(e), e) for e in events) + (b"0\r\ntrailer: 1\r\n\r\n" if end else b"")


def unary(status: int, value: object) -> bytes:
    data = json.dumps(value).encode()
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(data), data)


def read(*pieces: bytes, eof: bool = True) -> CompletionResponse:
    """Feed the pieces one second apart, from second 1 on."""
    response = CompletionResponse()
    for at, piece in enumerate(pieces, start=1):
        if response.feed(piece, float(at)):
            return response
    if eof:
        response.eof(len(pieces) + 1.0)
    return response


@pytest.mark.parametrize("content_type", [b"Text/Event-Stream", b"TEXT/EVENT-STREAM;charset=utf-8"])
def test_the_type_of_a_stream_is_recognised_in_any_case(content_type: bytes) -> None:
    head = HEAD.replace(b"text/event-stream; charset=utf-8", content_type)
    assert contents(read(head, chunked(*WHOLE))) == contents(read(HEAD, chunked(*WHOLE)))


@pytest.mark.parametrize("bad", [-5000, 1.7e308, "7", [], True], ids=str)
def test_a_bad_number_of_the_engine_is_dropped_and_everything_else_is_read(bad: object) -> None:
    last = event(
        {"choices": None, "usage": USAGE | {"prompt_tokens": bad}, "metrics": METRICS | {"queue_time_ms": bad}}
    )
    response = read(HEAD, chunked(ROLE, token("a"), token("b", "length"), last, DONE))
    assert response.outcome() == (ClientOutcome.OK, None)
    assert (response.prompt_tokens, response.completion_tokens, response.cached_tokens) == (None, 3, 16)
    assert (response.queue, response.prefill, response.decode) == (None, 0.04, 0.08)


def contents(response: CompletionResponse) -> tuple[object, ...]:
    return (
        response.outcome(),
        len(response.gaps),
        response.prompt_tokens,
        response.completion_tokens,
        response.cached_tokens,
        response.finish_reason,
        response.queue,
        response.prefill,
        response.decode,
    )


def test_a_stream_is_parsed_the_same_in_pieces_of_any_size() -> None:
    data = HEAD + chunked(*WHOLE)
    whole = contents(read(data))
    assert whole == ((ClientOutcome.OK, None), 2, 31, 3, 16, "length", 0.0125, 0.04, 0.08)
    for cut in range(1, len(data)):
        assert contents(read(data[:cut], data[cut:])) == whole
    assert contents(read(*(data[i : i + 1] for i in range(len(data))))) == whole


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_events_have_any_line_end(end: bytes) -> None:
    other = b"event: x\ndata:[DO\ndata: NE]\nid: 3\n\n"
    events = [event.replace(b"\n", end) for event in (*WHOLE[:-1], other, DONE[:-1])]
    whole = contents(read(HEAD + chunked(*WHOLE)))
    assert contents(read(HEAD + chunked(*events))) == whole
    assert contents(read(HEAD, *(chunked(event, end=False) for event in events), chunked())) == whole


def test_the_first_token_is_the_first_output_not_the_role() -> None:
    response = read(HEAD, *(chunked(e, end=False) for e in WHOLE), chunked())
    assert (response.first, response.last, list(response.gaps)) == (4.0, 6.0, [1.0, 1.0])


@pytest.mark.parametrize(
    "choice, first, answer",
    [
        pytest.param({"delta": {"content": "x"}}, 2.0, 2.0, id="content"),
        pytest.param({"delta": {"reasoning_content": "x"}}, 2.0, 3.0, id="reasoning_content"),
        pytest.param({"delta": {"reasoning": "x"}}, 2.0, 3.0, id="reasoning"),
        pytest.param({"delta": {"tool_calls": [{"index": 0}]}}, 2.0, 2.0, id="tool call"),
        pytest.param({"text": "x"}, 2.0, 2.0, id="completions"),
        pytest.param({"delta": {"role": "assistant"}}, 3.0, 3.0, id="role"),
        pytest.param({"delta": {"content": None, "tool_calls": []}}, 3.0, 3.0, id="empty delta"),
        pytest.param({"delta": {}, "finish_reason": "stop"}, 3.0, 3.0, id="finish"),
        pytest.param({"text": ""}, 3.0, 3.0, id="empty text"),
    ],
)
def test_the_first_token_is_a_chunk_with_output_and_the_answer_is_no_reasoning(
    choice: dict[str, object], first: float, answer: float
) -> None:
    one = chunked(event({"choices": [choice]}), end=False)
    response = read(HEAD, one, chunked(token("a"), end=False), chunked(token("b"), end=False))
    assert (response.first, response.answer) == (first, answer)
    alone = read(HEAD, one)
    assert (alone.first, alone.answer) == (first if first == 2.0 else None, answer if answer == 2.0 else None)


@pytest.mark.parametrize(
    "pieces, end",
    [
        pytest.param((HEAD, chunked(*WHOLE, end=False), chunked(), b"more"), 3.0, id="by its framing"),
        pytest.param((HEAD, chunked(*WHOLE, end=False)), 3.0, id="by the connection"),
    ],
)
def test_the_end_is_the_time_of_the_read_that_ends_the_response(pieces: tuple[bytes, ...], end: float) -> None:
    assert read(*pieces).end == end


NO_CHOICES = "the response has no choices: it is not a completion"
INCOMPLETE = "the response is incomplete"


@pytest.mark.parametrize(
    "data, outcome",
    [
        pytest.param(
            HEAD + chunked(*WHOLE[:-1]), (ClientOutcome.OK, None), id="no DONE, but a reason and the framing's end"
        ),
        pytest.param(HEAD + chunked(*WHOLE, end=False), (ClientOutcome.OK, None), id="DONE, then the connection ends"),
        pytest.param(HEAD + chunked(*WHOLE[:3]), (ClientOutcome.TRUNCATED, INCOMPLETE), id="no end of the stream"),
        pytest.param(
            HEAD + chunked(*WHOLE[:-1], end=False), (ClientOutcome.TRUNCATED, INCOMPLETE), id="torn before DONE"
        ),
        pytest.param(
            HEAD + chunked(*WHOLE[:3], event({"error": {"message": "out of memory"}}), DONE),
            (ClientOutcome.UPSTREAM_ERROR, "out of memory"),
            id="error inside the stream",
        ),
        pytest.param(
            HEAD + chunked(token("a", "abort"), DONE),
            (ClientOutcome.UPSTREAM_ERROR, "finish_reason abort"),
            id="aborted",
        ),
        pytest.param(unary(500, {"error": {"message": "no"}}), (ClientOutcome.UPSTREAM_ERROR, "no"), id="500"),
        pytest.param(unary(503, {"message": "busy"}), (ClientOutcome.REJECTED, "busy"), id="503"),
        pytest.param(unary(429, "slow down"), (ClientOutcome.REJECTED, "slow down"), id="429"),
        pytest.param(unary(400, {"error": {"message": "bad"}}), (ClientOutcome.CLIENT_ERROR, "bad"), id="400"),
        pytest.param(b"HTTP/1.1 502 X\r\n\r\n<html>", (ClientOutcome.UPSTREAM_ERROR, "<html>"), id="no JSON"),
        pytest.param(unary(404, {}), (ClientOutcome.CLIENT_ERROR, "{}"), id="404 without a message"),
        pytest.param(
            unary(200, {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}], "usage": USAGE}),
            (ClientOutcome.OK, None),
            id="unary",
        ),
        pytest.param(unary(200, {}), (ClientOutcome.UPSTREAM_ERROR, NO_CHOICES), id="another object"),
        pytest.param(
            HEAD + chunked(b"data: <html>\n\n", event({"usage": USAGE}), DONE),
            (ClientOutcome.UPSTREAM_ERROR, NO_CHOICES),
            id="a stream of garbage",
        ),
        pytest.param(unary(200, {"usage": USAGE})[:-4], (ClientOutcome.TRUNCATED, INCOMPLETE), id="unary, torn"),
        pytest.param(
            b"", (ClientOutcome.UPSTREAM_UNREACHABLE, "the connection closed before a response"), id="nothing"
        ),
    ],
)
def test_the_outcome_of(data: bytes, outcome: tuple[ClientOutcome, str | None]) -> None:
    assert read(data).outcome() == outcome


def test_a_unary_body_gives_usage_and_no_first_token() -> None:
    response = read(unary(200, {"choices": [{"text": "x", "finish_reason": "stop"}], "usage": USAGE}))
    assert (response.completion_tokens, response.cached_tokens, response.first) == (3, 16, None)


@given(st.binary(max_size=60), st.integers(0, 200))
def test_a_body_is_read_whole_with_a_length_chunked_or_until_the_end(body: bytes, cut: int) -> None:
    for data in (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%sextra" % (len(body), body),
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + (chunked(body) if body else chunked()) + b"extra",
        b"HTTP/1.0 200 OK\r\n\r\n" + body,
    ):
        response = HttpResponse()
        parsed = response.feed(data[:cut]) + response.feed(data[cut:])
        response.eof()
        assert (parsed, response.complete) == (body, True)


@pytest.mark.parametrize(
    "data, message",
    [
        (
            b"SSH-2.0-OpenSSH\r\n\r\n",
            "invalid HTTP: the status line is malformed; the response starts with 'SSH-2.0-OpenSSH'",
        ),
        (
            b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n",
            "content-length is not a number; the response starts with 'HTTP/1.1 200 OK'",
        ),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            "invalid HTTP: a chunk of the response is malformed: b'zz\\r\\n'",
        ),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nabc\r\n",
            "invalid HTTP: a chunk of the response is malformed: b'bc\\r\\n'",
        ),
        (
            b"x" * 70_000,
            f"invalid HTTP: the head of the response exceeds 65536 bytes; the response starts with {'x' * 80!r}",
        ),
    ],
)
def test_invalid_http_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(BadHttpError) as refusal:
        HttpResponse().feed(data)
    assert str(refusal.value) == message


@st.composite
def token_events(draw: st.DrawFn) -> bytes:
    """An event as vLLM sends it, of an answer, a reasoning, or both, with any text."""
    keys = draw(st.sampled_from([("content",), ("reasoning",), ("content", "reasoning"), ("tool_calls",)]))
    text = st.sampled_from(["a", " the", "m", "content", '"', "\\", "\n", "é", "文", ""]) | st.text(max_size=5)
    delta = {key: draw(text) for key in keys}
    choice = {"index": 0, "delta": delta, "finish_reason": draw(st.sampled_from([None, None, None, "stop"]))}
    value = {"id": "chatcmpl-1", "model": "m", "choices": [choice], "usage": draw(st.sampled_from([None, USAGE]))}
    text_of_event = json.dumps(value, separators=(",", ":"), ensure_ascii=draw(st.booleans()))
    return b"data: " + text_of_event.encode() + b"\n\n"


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


TOOL_CALLS = event({"choices": [{"index": 0, "delta": {"tool_calls": "a"}, "finish_reason": None}]})


@pytest.mark.slow
@settings(max_examples=40)
@example(events=[TOOL_CALLS, TOOL_CALLS], cuts=[], keep_text=True)
@given(
    events=st.lists(token_events(), max_size=12),
    cuts=st.lists(st.integers(0, 3000), max_size=6),
    keep_text=st.booleans(),
)
def test_a_chunk_that_is_only_compared_counts_as_one_that_is_parsed(
    events: list[bytes], cuts: list[int], keep_text: bool
) -> None:
    def times(response: CompletionResponse) -> tuple[object, ...]:
        counted = (response.first, response.answer, response.last, response.first_choice, response.last_choice)
        return (*counted, response.gaps.tolist(), response.coalesced, "".join(response.text), contents(response))

    # One read a chunk, in which chunks may be recognised, but the reads of `cuts` end within a chunk.
    reads = [_framed(event) for event in (*events, LAST, DONE)]
    torn = [read for read in reads if len(read) in cuts or len(read) % 7 == 3]
    compared, parsed = CompletionResponse(keep_text=keep_text), CompletionResponse(keep_text=keep_text)
    for response in (compared, parsed):
        response.feed(HEAD, 0.0)
    for at, data in enumerate(reads, start=1):
        middle = len(data) // 2 if data in torn else 0
        for piece in (data[:middle], data[middle:]):
            if piece:
                compared.feed(piece, float(at))
        for index in range(len(data)):  # single bytes are always parsed
            parsed.feed(data[index : index + 1], float(at))
    for response in (compared, parsed):
        response.eof(99.0)
    assert times(compared) == times(parsed)


def test_a_chunk_like_the_one_before_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []
    decode = completion._decode

    def counted(data: bytes) -> object:
        parsed.append(data)
        return decode(data)

    monkeypatch.setattr(completion, "_decode", counted)
    response = CompletionResponse(keep_text=True)
    response.feed(HEAD, 0.0)
    for at in range(1, 101):
        response.feed(_framed(token(f" word{at}")), float(at))
    assert (len(response.gaps), response.first, response.last, len(parsed)) == (99, 1.0, 100.0, 1)
    assert response.text == [f" word{at}" for at in range(1, 101)]
