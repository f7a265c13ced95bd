"""Each API is measured as chat is: verdicts, times, tokens, class, tenant and outcome."""

import asyncio
import time
from pathlib import Path

import pytest

from exporters.relay.dialects.paths import METERED
from exporters.vocabulary.signals import Outcome, Phase, Verdict
from tests.support import scripted_relay
from tests.support.api_streams import (
    APIS,
    MESSAGES,
    RESPONSES,
    Api,
    block_delta,
    delta,
    named,
    post,
    response,
    unary_request,
)
from tests.support.event_streams import stream_meter
from tests.support.scripted_relay import (
    DONE,
    SLOS,
    STREAM_HEAD,
    Received,
    body_of,
    chunk,
    content,
    holds,
    sends,
    staged,
    streams,
)
from tests.support.waiting import until

EACH = pytest.mark.parametrize("api", [pytest.param(api, id=name) for name, api in APIS.items()])
GOOD = {"ttft": Verdict.GOOD, "availability": Verdict.GOOD}


@EACH
async def test_a_stream_is_measured_and_forwarded_unchanged(tmp_path: Path, api: Api) -> None:
    events = [api.start, api.reasoning, api.output, api.output, api.end]
    async with staged(tmp_path, streams(*events)) as stage:
        assert body_of(await stage.ask(post(api))) == b"".join(events)
        assert stage.requests[0].body == api.request
        assert b"accept-encoding: identity\r\n" in stage.requests[0].head
        record = await stage.record()
    assert (record.outcome, record.status, record.stream, record.metered) == (Outcome.OK, 200, True, True)
    assert (record.model, record.route, record.max_tokens) == ("m", api.path, 50)
    assert (record.prompt_tokens, record.completion_tokens, record.cached_tokens) == (7, 3, 4)
    assert (record.prompt_estimate, record.unparsed) == (3.0, None)
    assert record.prompt_sha256 is not None
    assert (record.slo, record.goodput) == (GOOD, True)
    assert record.ttft is not None
    assert record.ttft_answer is not None
    assert 0 < record.ttft <= record.ttft_answer <= record.e2e
    assert sum(record.gap_counts.values()) == 2
    assert record.tpot is not None
    assert record.itl_p95 is not None


@EACH
async def test_a_unary_response_is_measured(tmp_path: Path, api: Api) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    async with staged(tmp_path, sends(head % len(api.unary), api.unary)) as stage:
        answer = await stage.ask(scripted_relay.post(unary_request(api), path=api.path))
        assert answer.endswith(b"\r\n\r\n" + api.unary)
        record = await stage.record()
    assert (record.outcome, record.stream, record.ttft) == (Outcome.OK, False, None)
    assert (record.prompt_tokens, record.completion_tokens, record.cached_tokens) == (7, 3, 4)
    assert record.slo == {"availability": Verdict.GOOD}


@EACH
async def test_nothing_before_the_first_output_is_a_token(tmp_path: Path, api: Api) -> None:
    async def hold(received: Received) -> None:
        await received.send(STREAM_HEAD, chunk(api.start))
        await flows.wait()
        await received.send(chunk(api.output))
        await received.gone()

    flows = asyncio.Event()
    async with staged(tmp_path, hold) as stage:
        client = await stage.client(post(api))
        await client.until(api.start)
        (exchange,) = stage.relay._open
        assert (exchange.measurement.phase, exchange.measurement.awaits_first_token) == (Phase.WAITING, True)
        flows.set()
        await client.until(api.output)
        assert (exchange.measurement.phase, exchange.measurement.awaits_first_token) == (Phase.STREAMING, False)


@EACH
async def test_a_stream_without_output_is_cut_after_cut_first_token_and_a_flowing_one_is_not(
    tmp_path: Path, api: Api
) -> None:
    async def hold(received: Received) -> None:
        await received.send(STREAM_HEAD, chunk(api.start))
        if b"flows" in received.head:
            await received.send(chunk(api.output))
        await received.gone()

    async with staged(tmp_path, hold, cut_first_token=30.0) as stage:
        flowing, waiting = await stage.connect(), await stage.connect()
        await flowing.send(post(api, headers="x-is: flows\r\n"))
        await flowing.until(api.output)
        await waiting.send(post(api))
        await waiting.until(api.start)
        stage.relay.cut_timed_out(time.monotonic() + 31)
        (record,) = stage.records
        assert (record.outcome, record.slo["ttft"]) == (Outcome.TIMEOUT_FIRST_TOKEN, Verdict.BAD)
        assert stage.relay.open_requests == 1


@EACH
async def test_a_client_that_leaves_after_the_end_of_the_stream_has_its_response(tmp_path: Path, api: Api) -> None:
    async with staged(tmp_path, holds(STREAM_HEAD, chunk(api.output), chunk(api.end))) as stage:
        client = await stage.client(post(api))
        await client.until(api.last)
        client.leave()
        record = await stage.record()
    assert (record.outcome, record.completion_tokens, record.slo) == (Outcome.OK, 3, GOOD)


@EACH
async def test_a_client_that_leaves_before_the_end_of_the_stream_is_an_abort(tmp_path: Path, api: Api) -> None:
    async with staged(tmp_path, holds(STREAM_HEAD, chunk(api.start), chunk(api.output), chunk(api.output))) as stage:
        client = await stage.client(post(api))
        await client.until(api.output + b"\r\n" + chunk(api.output))
        client.leave()
        record = await stage.record()
    assert (record.outcome, record.completion_tokens) == (Outcome.CLIENT_ABORT, 2)
    assert record.slo == {"ttft": Verdict.GOOD, "availability": Verdict.ABANDONED}


@EACH
async def test_a_stream_without_its_end_is_truncated(tmp_path: Path, api: Api) -> None:
    async with staged(tmp_path, streams(api.start, api.output)) as stage:
        assert body_of(await stage.ask(post(api))) == api.start + api.output
        record = await stage.record()
    assert (record.outcome, record.slo["availability"]) == (Outcome.TRUNCATED, Verdict.BAD)


@pytest.mark.parametrize("api", [RESPONSES, MESSAGES], ids=["responses", "messages"])
async def test_done_does_not_end_a_stream_of_an_api_that_has_another_end(tmp_path: Path, api: Api) -> None:
    end = api.end.replace(api.last, b"")
    async with staged(tmp_path, streams(api.start, api.output, end, DONE)) as stage:
        await stage.ask(post(api))
        assert (await stage.record()).outcome is Outcome.TRUNCATED


@EACH
async def test_an_error_in_a_stream_is_an_upstream_error(tmp_path: Path, api: Api) -> None:
    async with staged(tmp_path, streams(api.start, api.output, api.failure)) as stage:
        assert body_of(await stage.ask(post(api))) == api.start + api.output + api.failure
        record = await stage.record()
    assert (record.outcome, record.completion_tokens) == (Outcome.UPSTREAM_ERROR, 1)
    assert record.slo == {"ttft": Verdict.GOOD, "availability": Verdict.BAD}


@EACH
async def test_a_client_that_leaves_after_an_error_has_an_upstream_error(tmp_path: Path, api: Api) -> None:
    async with staged(tmp_path, holds(STREAM_HEAD, chunk(api.failure))) as stage:
        client = await stage.client(post(api))
        await client.until(api.failure)
        client.leave()
        assert (await stage.record()).outcome is Outcome.UPSTREAM_ERROR


@EACH
async def test_headers_give_the_class_the_tenant_and_the_time_before_the_relay(tmp_path: Path, api: Api) -> None:
    tenants = "tenants: {header: x-tenant, allow: [acme]}\n"
    async with staged(tmp_path, streams(api.output, api.end), slo_file=SLOS + tenants) as stage:
        await stage.ask(post(api))
        sent_at = f"x-request-start: t={time.time() - 40:.6f}\r\n"
        await stage.ask(post(api, f"x-request-class: long\r\nx-tenant: acme\r\n{sent_at}"))
        await stage.ask(post(api, "x-request-class: unknown\r\n"))
        plain, named_ones, unknown = [await stage.record(number) for number in (1, 2, 3)]
    assert (plain.request_class, plain.tenant) == (unknown.request_class, unknown.tenant) == ("short", "other")
    assert (named_ones.request_class, named_ones.tenant) == ("long", "acme")
    assert named_ones.ttft is not None
    assert named_ones.ttft >= 40
    assert named_ones.slo == {"ttft": Verdict.BAD, "availability": Verdict.GOOD}


@EACH
async def test_a_missed_deadline_is_reported_while_the_request_is_open(tmp_path: Path, api: Api) -> None:
    async with staged(tmp_path, holds(STREAM_HEAD, chunk(api.start))) as stage:
        client = await stage.client(post(api, headers=f"x-request-start: t={time.time() - 40:.6f}\r\n"))
        await until(lambda: stage.judged)
        judged = stage.judged[0]
        assert (judged.slo, judged.goodput_lost, judged.request_class) == ({"ttft": Verdict.BAD}, True, "short")
        assert stage.records == []
        client.leave()
        record = await stage.record()
    assert record.slo == {"ttft": Verdict.BAD, "availability": Verdict.ABANDONED}
    assert (record.counted, record.goodput, record.goodput_counted) == (["ttft"], False, True)


@pytest.mark.parametrize(
    "path, event, output, answer",
    [
        pytest.param("/v1/chat/completions", content("a"), 1, True, id="a chunk"),
        pytest.param("/v1/responses", delta("output_text", "a"), 1, True, id="text"),
        pytest.param("/v1/responses", delta("refusal", "a"), 1, True, id="a refusal"),
        pytest.param("/v1/responses", delta("function_call_arguments", "{"), 1, True, id="arguments of a tool"),
        pytest.param("/v1/responses", delta("reasoning_text", "a"), 1, False, id="reasoning"),
        pytest.param("/v1/responses", delta("reasoning_summary_text", "a"), 1, False, id="a summary of reasoning"),
        pytest.param("/v1/responses", delta("output_text", ""), 0, False, id="no text"),
        pytest.param("/v1/responses", named({"type": "response.output_text.done", "text": "a"}), 0, False, id="done"),
        pytest.param("/v1/messages", block_delta("text_delta", "text", "a"), 1, True, id="a text block"),
        pytest.param("/v1/messages", block_delta("input_json_delta", "partial_json", "{"), 1, True, id="tool input"),
        pytest.param("/v1/messages", block_delta("thinking_delta", "thinking", "a"), 1, False, id="thinking"),
        pytest.param("/v1/messages", block_delta("signature_delta", "signature", "a"), 0, False, id="a signature"),
        pytest.param("/v1/messages", block_delta("input_json_delta", "partial_json", ""), 0, False, id="no tool input"),
        pytest.param("/v1/messages", named({"type": "ping"}), 0, False, id="a ping"),
    ],
)
def test_deltas_with_text_are_output_and_those_without_reasoning_are_the_answer(
    path: str, event: bytes, output: int, answer: bool
) -> None:
    meter = stream_meter(dialect=METERED[path])
    assert meter.stream(event, 1.0) == event
    assert (meter.chunks, meter.answer_at is not None) == (output, answer)


@pytest.mark.parametrize(
    "event, outcome, reason",
    [
        pytest.param(
            {"type": "response.incomplete", "response": response("incomplete", incomplete_details={"reason": "x"})},
            Outcome.OK,
            "x",
            id="response.incomplete, which OpenAI sends",
        ),
        pytest.param(
            {"type": "response.completed", "response": response("incomplete", incomplete_details={"reason": "x"})},
            Outcome.OK,
            "x",
            id="an incomplete response.completed, which vLLM sends",
        ),
        pytest.param({"type": "response.failed", "response": response("failed")}, Outcome.UPSTREAM_ERROR, "failed",
            id="failed"),
        pytest.param({"type": "response.completed", "response": response("failed")}, Outcome.UPSTREAM_ERROR, "failed",
            id="status"),
        pytest.param({"type": "error", "code": "x", "message": "y"}, Outcome.UPSTREAM_ERROR, None, id="an error"),
    ],
)  # fmt: skip
def test_each_end_of_a_response_has_its_outcome(event: dict[str, object], outcome: Outcome, reason: str | None) -> None:
    meter = stream_meter(dialect=METERED["/v1/responses"])
    meter.stream(RESPONSES.start + RESPONSES.output + named(event), 1.0)
    assert meter.done
    assert (meter.outcome(200, streams=True, complete=True), meter.finish_reason) == (outcome, reason)


def test_a_unary_response_that_failed_is_an_upstream_error() -> None:
    meter = stream_meter(dialect=METERED["/v1/responses"])
    meter.unary(b'{"object":"response","status":"failed","error":{"code":"server_error"},"usage":null}')
    meter.unary_end()
    assert meter.outcome(200, streams=False, complete=True) is Outcome.UPSTREAM_ERROR


def test_prompt_tokens_of_a_message_include_the_cached_ones_and_are_known_from_its_start() -> None:
    # As Anthropic sends it: the end of the message has only the completion's tokens.
    meter = stream_meter(dialect=METERED["/v1/messages"])
    usage = {"input_tokens": 2, "cache_creation_input_tokens": 1, "cache_read_input_tokens": 4, "output_tokens": 1}
    meter.stream(named({"type": "message_start", "message": {"usage": usage}}), 1.0)
    assert (meter.prompt_tokens, meter.completion_tokens, meter.cached_tokens) == (7, None, 4)
    meter.stream(named({"type": "message_delta", "delta": {}, "usage": {"output_tokens": 9}}), 2.0)
    assert (meter.prompt_tokens, meter.completion_tokens, meter.cached_tokens) == (7, 9, 4)
