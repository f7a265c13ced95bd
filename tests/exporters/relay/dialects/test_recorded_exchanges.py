"""Exchanges with real vLLM, recorded byte for byte, through the meter and the relay."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from exporters.http.parser import ChunkedBody
from exporters.relay.dialects.paths import METERED
from exporters.relay.metering.meter import Meter
from exporters.vocabulary.signals import Outcome, Verdict
from tests.contract.recordings import NAMES, Recording, recording
from tests.support.event_streams import stream_as_relay, stream_meter
from tests.support.scripted_relay import chunk, closes, staged


@dataclass(frozen=True)
class Figures:
    """What is measured of an exchange; `chunks` are the events with output."""

    chunks: int
    prompt: int | None
    completion: int | None
    cached: int | None
    reason: str | None
    outcome: Outcome = Outcome.OK
    timed: bool = False
    """Whether vLLM reported its times."""
    reasoning: int | None = None


FIGURES = {
    "chat-continuous-usage-stream": Figures(6, 25, 6, 0, "length", timed=True),
    "chat-failed-stream": Figures(2, None, None, None, None, Outcome.UPSTREAM_ERROR),
    "chat-tool-stream": Figures(25, 25, 218, 0, "stop", timed=True),
    "chat-tool-unary": Figures(0, 25, 283, 0, "stop", timed=True),
    "completions-continuous-usage-stream": Figures(6, 4, 6, 0, "length", timed=True),
    "detokenize": Figures(0, None, None, None, None),
    "embeddings-batch-unary": Figures(0, 22, None, None, None),
    "embeddings-messages-unary": Figures(0, 19, None, None, None),
    "embeddings-unary": Figures(0, 13, None, None, None),
    "messages-cached-stream": Figures(3, 212, 3, 192, "max_tokens"),
    "messages-cached-unary": Figures(0, 212, 3, 192, "max_tokens"),
    "messages-capped-unary": Figures(0, 1513, 1326, 1504, "end_turn"),
    "messages-count-tokens": Figures(0, None, None, None, None),
    "messages-failed-stream": Figures(1, 25, None, None, None, Outcome.UPSTREAM_ERROR),
    "messages-max-tokens-stream": Figures(6, 25, 6, 0, "max_tokens"),
    "messages-max-tokens-unary": Figures(0, 25, 6, 0, "max_tokens"),
    "messages-stop-sequence-stream": Figures(2, 25, 2, 0, "stop_sequence"),
    "messages-stream": Figures(12, 40, 13, 0, "end_turn"),
    "messages-tool-stream": Figures(28, 25, 226, 0, "tool_use"),
    "messages-tool-unary": Figures(0, 25, 152, 0, "tool_use"),
    "messages-unary": Figures(0, 40, 13, 32, "end_turn"),
    "pooling-unary": Figures(0, 13, None, None, None),
    "rerank-unary": Figures(0, 24, None, None, None),
    "responses-cached-stream": Figures(3, 212, 3, 192, "max_output_tokens", timed=True, reasoning=0),
    "responses-failed-stream": Figures(1, None, None, None, None, Outcome.TRUNCATED),
    "responses-incomplete-stream": Figures(6, 25, 6, 0, "max_output_tokens", timed=True, reasoning=0),
    "responses-incomplete-unary": Figures(0, 25, 6, 0, "max_output_tokens", timed=True, reasoning=0),
    "responses-list-stream": Figures(20, 51, 24, 32, "completed", timed=True, reasoning=0),
    "responses-stream": Figures(8, 40, 14, 0, "completed", timed=True, reasoning=0),
    "responses-tool-stream": Figures(28, 25, 114, 0, "completed", timed=True, reasoning=0),
    "responses-tool-unary": Figures(0, 25, 169, 0, "completed", timed=True, reasoning=0),
    "responses-unary": Figures(0, 40, 14, 32, "completed", timed=True, reasoning=0),
    "score-unary": Figures(0, 24, None, None, None),
    "tokenize": Figures(0, None, None, None, None),
    "tokenize-messages": Figures(0, None, None, None, None),
}
STREAMS = [name for name in FIGURES if name.endswith("-stream")]

COMPLETE = {
    "chat-tool-stream": b'"finish_reason":"stop"',
    "responses-tool-stream": b"event: response.function_call_arguments.done",
    "messages-tool-stream": b"event: content_block_stop",
}
"""What the event that completes the recorded tool call contains, by recording."""


def meter_of(recorded: Recording) -> Meter:
    return stream_meter(dialect=METERED[recorded.path])


def figures(meter: Meter, recorded: Recording, *, streams: bool) -> Figures:
    outcome = meter.outcome(recorded.status, streams=streams, complete=recorded.complete)
    return Figures(
        meter.chunks,
        meter.prompt_tokens,
        meter.completion_tokens,
        meter.cached_tokens,
        meter.finish_reason,
        outcome,
        None not in {meter.queue, meter.prefill, meter.decode},
        meter.reasoning_tokens,
    )


def test_each_recorded_completion_has_its_figures() -> None:
    answered = {name for name in NAMES if (one := recording(name)).path in METERED and one.status == 200}
    assert set(FIGURES) == answered


@pytest.mark.parametrize("name", [name for name in FIGURES if name not in STREAMS])
def test_a_recorded_unary_response_has_its_figures(name: str) -> None:
    recorded = recording(name)
    meter = meter_of(recorded)
    meter.unary(recorded.content)
    meter.unary_end()
    assert figures(meter, recorded, streams=False) == FIGURES[name]


@pytest.mark.parametrize("every", [pytest.param(61, id="some"), pytest.param(1, id="all", marks=pytest.mark.long)])
@pytest.mark.parametrize("name", STREAMS)
def test_a_recorded_stream_has_its_figures_and_times_its_tool_call_for_any_split_into_two_reads(
    name: str, every: int
) -> None:
    recorded = recording(name)
    content = recorded.content
    called = content.index(b"\n\n", content.index(COMPLETE[name])) + 2 if name in COMPLETE else None
    ends = [match.start() + after for match in re.finditer(b"\n\n", content) for after in (0, 1, 2)]
    for place in sorted({*range(0, len(content), every), *ends} - {len(content)}):
        meter = meter_of(recorded)
        reads = [(piece, at) for piece, at in ((content[:place], 1.0), (content[place:], 2.0)) if piece]
        assert b"".join([*(meter.stream(piece, at) for piece, at in reads), meter.stream_end(2.0)]) == content
        assert figures(meter, recorded, streams=True) == FIGURES[name], place
        expected = None if called is None else 1.0 if place >= called else 2.0
        assert meter.first_tool_call_at == expected, place


@pytest.mark.parametrize("name", STREAMS)
def test_a_recorded_stream_has_its_figures_byte_by_byte(name: str) -> None:
    recorded = recording(name)
    meter = meter_of(recorded)
    for byte in recorded.content:
        meter.stream(bytes([byte]), 1.0)
    assert figures(meter, recorded, streams=True) == FIGURES[name]


@pytest.mark.parametrize("name", STREAMS)
def test_a_recorded_stream_has_its_figures_and_times_its_tool_call_on_the_fast_path(name: str) -> None:
    recorded = recording(name)
    meter = meter_of(recorded)
    chunks = ChunkedBody().feed(recorded.response.partition(b"\r\n\r\n")[2])
    assert b"".join(chunks) == recorded.content
    forwarded = stream_as_relay(meter, chunks)
    assert {*forwarded} <= {*map(chunk, chunks)}
    assert forwarded or name not in COMPLETE or name == "chat-tool-stream"
    meter.finish(Outcome.OK, 1e9)
    assert figures(meter, recorded, streams=True) == FIGURES[name]
    called = [at for at, data in enumerate(chunks) if name in COMPLETE and COMPLETE[name] in data]
    assert meter.first_tool_call_at == (called[0] if called else None)


@pytest.mark.parametrize("name", FIGURES)
async def test_a_recorded_exchange_passes_the_relay_unchanged_and_has_a_record(tmp_path: Path, name: str) -> None:
    recorded, expected = recording(name), FIGURES[name]
    async with staged(tmp_path, closes(recorded.response), inject_usage=False) as stage:
        response = await stage.ask(recorded.request)
        head, _, body = response.partition(b"\r\n\r\n")
        assert (b"".join(ChunkedBody().feed(body)) if b"chunked" in head else body) == recorded.content
        assert stage.requests[0].body == recorded.body
        record = await stage.record()
    assert record.metered
    assert (record.outcome, record.finish_reason, record.route) == (expected.outcome, expected.reason, recorded.path)
    # An aborted response has no usage: each chunk counts as one token.
    tokens = expected.completion if expected.outcome is Outcome.OK else expected.chunks
    assert (record.prompt_tokens, record.completion_tokens, record.cached_tokens) == (
        expected.prompt,
        tokens,
        expected.cached,
    )
    assert record.reasoning_tokens == expected.reasoning
    assert (record.model, record.stream, record.unparsed) == ("tiny", name in STREAMS, None)
    good = Verdict.GOOD if expected.outcome is Outcome.OK else Verdict.BAD
    assert record.slo == {"availability": good, **({"ttft": Verdict.GOOD} if record.stream else {})}
    assert sum(record.gap_counts.values()) == max(0, expected.chunks - 1)
    assert (record.ttft is not None) == (record.ttft_answer is not None) == (name in STREAMS)
    assert (record.queue is not None) == expected.timed
