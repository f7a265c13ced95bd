"""Answers of models that reason, in each API: the time of the first answer token, and reasoning tokens."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from exporters.records.messages import Judged
from exporters.relay.dialects.paths import METERED
from exporters.relay.metering.meter import Meter
from exporters.vocabulary.signals import Outcome, Verdict
from exporters.vocabulary.slo_file import Latency, Measure, Slo
from exporters.vocabulary.verdicts import Judge, applicable_slos
from tests.support import scripted_relay
from tests.support.api_streams import APIS, Api, named, post, unary_request
from tests.support.event_streams import forwards, raise_error, stream_meter
from tests.support.scripted_relay import (
    DONE,
    END,
    SLOS,
    STREAM_HEAD,
    Received,
    answers,
    chunk,
    holds,
    staged,
    streams,
)
from tests.support.waiting import until

EACH = pytest.mark.parametrize("api", [pytest.param(api, id=name) for name, api in APIS.items()])
ANSWER_SLO = "  - {name: answer, classes: [short, long], signal: ttft_answer, threshold: 30s, objective: 95%}\n"
ANSWER_SLOS = SLOS + ANSWER_SLO


def meter_with_answer_slo(api: Api) -> tuple[Meter, list[tuple[str, Verdict]]]:
    """A meter with time zero 0 and one SLO on the first answer token, and the verdicts that it will have given."""
    verdicts: list[tuple[str, Verdict]] = []
    slo = Slo(name="answer", classes=("any",), sli=Latency(Measure.TTFT_ANSWER, 8.0), objective=0.95)
    meter = stream_meter(dialect=METERED[api.path])
    meter.judge = Judge(applicable_slos([slo], stream=True, several=True), zero=0, first_token_timeout=60)
    meter.on_verdicts = lambda given, _: verdicts.extend(given)
    return meter, verdicts


@EACH
@pytest.mark.parametrize("at, verdict", [(7.5, Verdict.GOOD), (8.5, Verdict.BAD)])
def test_the_answer_is_judged_when_it_begins_also_after_reasoning_on_the_fast_path(
    api: Api, at: float, verdict: Verdict
) -> None:
    meter, verdicts = meter_with_answer_slo(api)
    sent: list[bytes] = []
    meter.stream(api.start, 0.5)
    meter.stream(api.reasoning, 1.0)
    path = meter.fast_path(sent.append, raise_error)
    assert path is not None
    with pytest.MonkeyPatch.context() as patch:
        for moment in (2.0, 3.0):
            patch.setattr("exporters.relay.metering.fast_path.time.monotonic", lambda now=moment: now)
            assert forwards(path, chunk(api.reasoning))
        assert verdicts == []
        assert not forwards(path, chunk(api.output))
    meter.stream(api.output, at)
    assert verdicts == [("answer", verdict)]
    assert (meter.first_at, meter.answer_at, meter.chunks) == (1.0, at, 4)


@EACH
def test_time_in_which_the_client_does_not_read_is_not_in_the_time_of_the_answer(api: Api) -> None:
    meter, verdicts = meter_with_answer_slo(api)
    meter.stream(api.reasoning, 1.0)
    meter.pause(2.0)
    meter.report(meter.judge.check_deadlines(9.0, meter.paused_until(9.0)), 9.0)
    meter.resume(9.5)
    meter.report(meter.judge.check_deadlines(10.0, meter.paused_until(10.0)), 10.0)
    meter.stream(api.output, 12.0)
    assert (meter.answer_at, verdicts) == (4.5, [("answer", Verdict.GOOD)])


@EACH
def test_a_pause_that_lasts_until_the_end_is_not_in_the_time_of_the_answer(api: Api) -> None:
    meter, verdicts = meter_with_answer_slo(api)
    meter.stream(api.reasoning, 1.0)
    meter.pause(2.0)
    meter.finish(Outcome.CLIENT_ABORT, 30.0)
    assert verdicts == [("answer", Verdict.ABANDONED)]


@EACH
async def test_a_stream_with_reasoning_is_judged_by_the_beginning_of_its_answer(tmp_path: Path, api: Api) -> None:
    async def reasons(received: Received) -> None:
        await received.send(STREAM_HEAD, chunk(api.start), chunk(api.reasoning))
        await may_answer.wait()
        await received.send(chunk(api.output), chunk(api.end), END)

    may_answer = asyncio.Event()
    async with staged(tmp_path, reasons, slo_file=ANSWER_SLOS) as stage:
        await stage.client(post(api))
        await until(lambda: [judged.slo for judged in stage.judged] == [{"ttft": Verdict.GOOD}])
        may_answer.set()
        record = await stage.record()
    assert record.slo == dict.fromkeys(("ttft", "answer", "availability"), Verdict.GOOD)
    assert record.ttft is not None
    assert record.ttft_answer is not None
    assert record.ttft < record.ttft_answer


@EACH
async def test_a_stream_that_only_reasons_is_no_event_of_the_answers_slo(tmp_path: Path, api: Api) -> None:
    async with staged(tmp_path, streams(api.start, api.reasoning, api.end), slo_file=ANSWER_SLOS) as stage:
        await stage.ask(post(api))
        record = await stage.record()
    assert (record.outcome, record.ttft_answer) == (Outcome.OK, None)
    assert record.slo == dict.fromkeys(("ttft", "availability"), Verdict.GOOD)


@EACH
async def test_a_missed_deadline_of_the_answer_is_reported_while_the_model_reasons(tmp_path: Path, api: Api) -> None:
    async with staged(
        tmp_path, holds(STREAM_HEAD, chunk(api.start), chunk(api.reasoning)), slo_file=ANSWER_SLOS
    ) as stage:
        await stage.client(post(api, headers=f"x-request-start: t={time.time() - 40:.6f}\r\n"))
        await until(lambda: {"answer": Verdict.BAD}.items() <= _reported(stage.judged).items())
        assert stage.relay.open_requests == 1


def _reported(judged: list[Judged]) -> dict[str, Verdict]:
    return {name: verdict for one in judged for name, verdict in one.slo.items()}


async def test_a_unary_request_is_judged_by_its_e2e_if_the_slo_of_the_answer_sets_unary_e2e(tmp_path: Path) -> None:
    unary = answers({"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]})
    with_unary = SLOS + ANSWER_SLO.replace("objective", "unary: e2e, objective")
    async with staged(tmp_path, unary, slo_file=with_unary) as stage:
        await stage.ask(scripted_relay.post(unary_request(APIS["chat"]), path=APIS["chat"].path))
        record = await stage.record()
    assert (record.ttft_answer, record.slo["answer"]) == (None, Verdict.GOOD)


def details(counts: dict[str, int] | None, kind: str = "completion") -> dict[str, Any]:
    return {f"{kind}_tokens_details": counts}


CHAT_USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}
RESPONSES_USAGE = {"input_tokens": 7, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 4}}


@pytest.mark.parametrize(
    "path, usage, tokens",
    [
        pytest.param("/v1/chat/completions", CHAT_USAGE | details({"reasoning_tokens": 2}), 2, id="chat"),
        pytest.param("/v1/chat/completions", CHAT_USAGE | details({"reasoning_tokens": 0}), 0, id="no reasoning"),
        pytest.param("/v1/chat/completions", CHAT_USAGE | details(None), None, id="null, as vLLM sends for chat"),
        pytest.param("/v1/chat/completions", CHAT_USAGE | details({"audio_tokens": 1}), None, id="other details"),
        pytest.param("/v1/chat/completions", CHAT_USAGE, None, id="no details"),
        pytest.param("/v1/completions", CHAT_USAGE | details({"reasoning_tokens": 2}), 2, id="completions"),
        pytest.param("/v1/responses", RESPONSES_USAGE | details({"reasoning_tokens": 2}, "output"), 2, id="responses"),
        pytest.param("/v1/responses", RESPONSES_USAGE | details(None, "output"), None, id="responses, null"),
        pytest.param("/v1/messages", {"input_tokens": 7, "output_tokens": 3}, None, id="messages has no such count"),
    ],
)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "unary"])
def test_reasoning_tokens_are_read_from_usage(
    path: str, usage: dict[str, Any], tokens: int | None, stream: bool
) -> None:
    meter = stream_meter(dialect=METERED[path])
    body: dict[str, Any] = {"status": "completed", "usage": usage, "choices": []}
    if not stream:
        meter.unary(json.dumps(body).encode())
        meter.unary_end()
    elif path == "/v1/responses":
        meter.stream(named({"type": "response.completed", "response": body}), 1.0)
    elif path == "/v1/messages":
        meter.stream(named({"type": "message_delta", "usage": usage}), 1.0)
    else:
        meter.stream(b"data: " + json.dumps(body).encode() + b"\n\n", 1.0)
    assert (meter.completion_tokens, meter.reasoning_tokens) == (3, tokens)


async def test_reasoning_tokens_are_in_the_record(tmp_path: Path) -> None:
    usage = CHAT_USAGE | details({"reasoning_tokens": 2})
    event = b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n"

    async def reasons(received: Received) -> None:
        api = APIS["chat"]
        await received.send(STREAM_HEAD, *map(chunk, (api.reasoning, api.output, event, DONE)), END)

    async with staged(tmp_path, reasons) as stage:
        await stage.ask(post(APIS["chat"]))
        record = await stage.record()
    assert (record.completion_tokens, record.reasoning_tokens) == (3, 2)
