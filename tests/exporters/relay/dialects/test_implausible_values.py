"""Implausible numbers in a response: they are dropped and named, and everything else of the event is measured."""

import json
from pathlib import Path
from typing import Any

import pytest

from exporters.relay.dialects.paths import METERED
from exporters.vocabulary import signals
from tests.support.api_streams import named
from tests.support.event_streams import stream_meter
from tests.support.scripted_relay import (
    CHAT,
    DONE,
    END,
    EVENTS,
    STREAM_HEAD,
    USAGE,
    Received,
    body_of,
    chunk,
    content,
    post,
    staged,
    streams,
)

CHAT_PATH, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
BAD = [-1, 2**53 + 1, 1.7e308, 7.5, "7", True, {}]
BAD_TIMES = [-5000, 1.7e308, 86_400_001, "12"]


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def usage_event(path: str, prompt: Any, completion: Any, cached: Any, reasoning: Any) -> bytes:
    """The event of an API that has the usage of a stream."""
    if path == MESSAGES:
        usage = {"input_tokens": prompt, "output_tokens": completion, "cache_read_input_tokens": cached}
        return named({"type": "message_delta", "usage": usage})
    of_prompt, of_completion = {"cached_tokens": cached}, {"reasoning_tokens": reasoning}
    if path == RESPONSES:
        usage = {"input_tokens": prompt, "output_tokens": completion}
        usage |= {"input_tokens_details": of_prompt, "output_tokens_details": of_completion}
        return named({"type": "response.completed", "response": {"status": "completed", "usage": usage}})
    usage = {"prompt_tokens": prompt, "completion_tokens": completion}
    usage |= {"prompt_tokens_details": of_prompt, "completion_tokens_details": of_completion}
    return event({"choices": [], "usage": usage})


@pytest.mark.parametrize("path", [CHAT_PATH, RESPONSES, MESSAGES])
@pytest.mark.parametrize("at", range(4), ids=["prompt", "completion", "cached", "reasoning"])
def test_a_bad_count_is_dropped_and_the_others_of_the_usage_are_kept(path: str, at: int) -> None:
    for bad in BAD:
        meter = stream_meter(dialect=METERED[path])
        counts: list[Any] = [7, 3, 0, 2]
        counts[at] = bad
        meter.stream(usage_event(path, *counts), 1.0)
        found = [meter.prompt_tokens, meter.completion_tokens, meter.cached_tokens, meter.reasoning_tokens]
        reported = [signals.PROMPT_TOKENS, signals.COMPLETION_TOKENS, signals.CACHED_TOKENS, signals.REASONING_TOKENS]
        if path == MESSAGES:  # it has no reasoning tokens
            counts[3], reported[3:] = None, []
        assert found == [None if count is bad else count for count in counts], bad
        assert meter.dropped_values == {signal.name for signal in reported[at : at + 1]}, bad


@pytest.mark.parametrize("at", range(3), ids=["queue", "prefill", "decode"])
def test_a_bad_time_is_dropped_and_the_others_are_kept(at: int) -> None:
    names = ["queue_time_ms", "time_to_first_token_ms", "generation_time_ms"]
    for bad in BAD_TIMES:
        meter = stream_meter()
        metrics: dict[str, Any] = dict.fromkeys(names, 12.5) | {names[at]: bad}
        meter.stream(event({"choices": [], "usage": {"prompt_tokens": 7}, "metrics": metrics}), 1.0)
        found = [meter.queue, meter.prefill, meter.decode]
        assert found == [None if number == at else 0.0125 for number in range(3)], bad
        assert meter.prompt_tokens == 7
        assert meter.dropped_values == {[signals.QUEUE, signals.PREFILL, signals.DECODE][at].name}, bad


def test_values_that_are_null_or_absent_are_not_dropped_values() -> None:
    meter = stream_meter()
    meter.stream(event({"choices": [], "usage": {"prompt_tokens": None}, "metrics": {"queue_time_ms": None}}), 1.0)
    assert (meter.prompt_tokens, meter.queue, meter.dropped_values) == (None, None, frozenset())


def test_a_number_beyond_a_float_affects_no_other_value() -> None:
    meter = stream_meter()
    meter.stream(
        b'data: {"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":1e400,"completion_tokens":3}}\n\n', 1.0
    )
    assert (meter.first_at, meter.prompt_tokens, meter.completion_tokens) == (1.0, None, 3)


async def test_the_record_has_neither_negative_nor_absurd_values_and_names_their_series(tmp_path: Path) -> None:
    bad = USAGE.replace(b'"queue_time_ms":12.5', b'"queue_time_ms":-5000').replace(
        b'"generation_time_ms":60.0', b'"generation_time_ms":1.7e308'
    )
    async with staged(tmp_path, streams(*EVENTS, bad, DONE)) as stage:
        assert body_of(await stage.ask(post(CHAT))) == b"".join([*EVENTS, DONE])
        record = await stage.record()
        assert (record.queue, record.prefill, record.decode, record.completion_tokens) == (None, 0.03, None, 3)
        assert record.dropped_values == ["llm_request_decode_seconds", "llm_request_queue_seconds"]


async def test_the_usage_of_a_chunk_whose_choices_are_null_is_read_and_removed(tmp_path: Path) -> None:
    async def without_choices(received: Received) -> None:
        null = USAGE.replace(b'"choices":[]', b'"choices":null')
        await received.send(STREAM_HEAD, *map(chunk, [*EVENTS, null, DONE]), END)

    async with staged(tmp_path, without_choices) as stage:
        assert body_of(await stage.ask(post(CHAT))) == b"".join([*EVENTS, DONE])
        record = await stage.record()
        assert (record.prompt_tokens, record.completion_tokens, record.queue) == (7, 3, 0.0125)


def test_a_chunk_with_null_choices_and_no_usage_is_no_output() -> None:
    meter = stream_meter()
    meter.stream(event({"choices": None}), 1.0)
    assert (meter.first_at, meter.chunks) == (None, 0)
    meter.stream(content("a"), 2.0)
    assert (meter.first_at, meter.chunks) == (2.0, 1)
