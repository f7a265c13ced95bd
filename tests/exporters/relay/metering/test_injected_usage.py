"""The relay adds `include_usage` to a stream, and the client receives all but the usage event."""

import json
from pathlib import Path

import pytest

from exporters.vocabulary.signals import Outcome, Verdict
from tests.support.scripted_relay import (
    CHAT,
    DONE,
    EVENTS,
    USAGE,
    body_of,
    post,
    staged,
    streams,
    whole_stream,
)


async def test_a_stream_reaches_the_client_unchanged_except_for_the_injected_usage_event(tmp_path: Path) -> None:
    async with staged(tmp_path, whole_stream) as stage:
        response = await stage.ask(post(CHAT))
        assert response.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"x-engine: it\r\n" in response
        assert body_of(response) == b"".join(EVENTS) + DONE
        body = json.loads(stage.requests[0].body)
        assert body == {**json.loads(CHAT), "stream_options": {"include_usage": True}}
        assert b"accept-encoding: identity\r\n" in stage.requests[0].head
        record = await stage.record()
        assert (record.outcome, record.status, record.stream, record.finish_reason) == (Outcome.OK, 200, True, "length")
        assert (record.prompt_tokens, record.completion_tokens, record.cached_tokens) == (7, 3, 4)
        assert (record.queue, record.prefill, record.decode) == (0.0125, 0.03, 0.06)
        assert record.slo == {"ttft": Verdict.GOOD, "availability": Verdict.GOOD}
        assert record.ttft is not None
        assert 0 < record.ttft < record.e2e
        assert sum(record.gap_counts.values()) == 2
        assert record.tpot is not None
        assert 0 < record.tpot < record.e2e


def usage_with(*members: str) -> bytes:
    """A usage event without choices, as llama.cpp sends it, with these members at its end."""
    usage = '"usage":{"completion_tokens":3, "prompt_tokens":7}'
    return f'data: {{"choices":[],"created":1.0e9,"id":"c-1", {", ".join([usage, *members])}}}\n\n'.encode()


TIMINGS = '"timings":{"prompt_n":7, "prompt_ms":1.50}'


KEPT = b'data: {"choices":[],"created":1.0e9,"id":"c-1",%s}'


@pytest.mark.parametrize(
    "sent, kept",
    [
        pytest.param(usage_with(TIMINGS), KEPT % TIMINGS.encode() + b"\n\n", id="the timings of llama.cpp"),
        pytest.param(
            b"id: 7\r\n" + usage_with(TIMINGS).replace(b"\n", b"\r\n"),
            b"id: 7\r\n" + KEPT % TIMINGS.encode() + b"\r\n\r\n",
            id="timings in an event with another field",
        ),
        pytest.param(usage_with('"error":{"code":5}'), KEPT % b'"error":{"code":5}' + b"\n\n", id="an error"),
        pytest.param(usage_with('"model":"m"', '"object":"x"', '"system_fingerprint":"f"'), b"", id="the envelope"),
        pytest.param(usage_with('"timings":null', '"service_tier":"auto"'), b"", id="a member that is null"),
    ],
)
async def test_the_client_keeps_what_an_event_carries_besides_the_injected_usage(
    tmp_path: Path, sent: bytes, kept: bytes
) -> None:
    async with staged(tmp_path, streams(*EVENTS, sent, DONE)) as stage:
        assert body_of(await stage.ask(post(CHAT))) == b"".join(EVENTS) + kept + DONE
        record = await stage.record()
        assert (record.prompt_tokens, record.completion_tokens) == (7, 3)


async def test_the_client_keeps_the_usage_of_an_engine_that_always_sends_it(tmp_path: Path) -> None:
    def with_usage(event: bytes, tokens: int) -> bytes:
        return event.replace(b"}\n\n", b',"usage":{"prompt_tokens":7,"completion_tokens":%d}}\n\n' % tokens)

    # As vLLM does with --enable-force-include-usage.
    events = [with_usage(event, tokens) for tokens, event in enumerate(EVENTS)]
    async with staged(tmp_path, streams(*events, USAGE, DONE)) as stage:
        assert body_of(await stage.ask(post(CHAT))) == b"".join([*events, USAGE, DONE])
        assert (await stage.record()).completion_tokens == 3


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(b"{}", id="vLLM's default is to send usage"),
        pytest.param(b'{"continuous_usage_stats":true}', id="usage in every chunk"),
        pytest.param(b'{"include_usage":false,"continuous_usage_stats":true}', id="SGLang sends it in every chunk"),
    ],
)
async def test_stream_options_that_leave_usage_to_the_engine_are_unchanged(tmp_path: Path, options: bytes) -> None:
    body = CHAT[:-1] + b',"stream_options":%s}' % options
    async with staged(tmp_path, whole_stream) as stage:
        assert body_of(await stage.ask(post(body))) == b"".join([*EVENTS, USAGE, DONE])
        assert stage.requests[0].body == body
        assert (await stage.record()).completion_tokens == 3


@pytest.mark.parametrize("options", [b"null", b'{"include_usage":false}', b'{"include_usage":null}'])
async def test_usage_is_injected_if_the_client_declines_it(tmp_path: Path, options: bytes) -> None:
    body = CHAT[:-1] + b',"stream_options":%s}' % options
    async with staged(tmp_path, whole_stream) as stage:
        assert body_of(await stage.ask(post(body))) == b"".join([*EVENTS, DONE])
        assert json.loads(stage.requests[0].body)["stream_options"] == {"include_usage": True}
        assert (await stage.record()).completion_tokens == 3
