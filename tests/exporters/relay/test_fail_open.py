"""After an error in the sidecar the client still receives a response and the request is counted."""

import asyncio
import re
import time
from functools import partial
from pathlib import Path

import pytest

from exporters.records.messages import frame
from exporters.relay.dialects import chat, completion_events
from exporters.relay.metering.measurement import Measurement
from exporters.vocabulary.signals import Outcome, Phase, Verdict
from tests.support.scripted_relay import (
    CHAT,
    CHAT_WITH_USAGE,
    DONE,
    END,
    EVENTS,
    ROLE,
    STREAM_HEAD,
    USAGE,
    Received,
    body_of,
    chunk,
    content,
    error_in,
    holds,
    ok,
    post,
    staged,
    whole_stream,
)
from tests.support.waiting import until


def fail(*_: object, **__: object) -> bytes:
    raise RuntimeError("an error")


@pytest.mark.parametrize(
    "where, kept",
    [
        pytest.param("measurement.Judge", False, id="at the start"),
        pytest.param("meter.Meter.stream", False, id="in the stream"),
        pytest.param("meter.Meter.count_chunk", False, id="on the fast path"),
        pytest.param("meter.Meter.finish", False, id="at the end"),
        pytest.param("meter.Meter.latencies", True, id="in the record"),
    ],
)
async def test_a_metering_error_does_not_change_the_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, kept: bool
) -> None:
    async with staged(tmp_path, whole_stream) as stage:
        monkeypatch.setattr(f"exporters.relay.metering.{where}", fail)
        response = await stage.ask(post(CHAT_WITH_USAGE))
        assert body_of(response) == b"".join(EVENTS) + USAGE + DONE
        record = await stage.record()
        assert (record.outcome, record.unmetered) == (Outcome.OK, "RuntimeError")
        assert (set(record.slo.values()) == {Verdict.GOOD}) == kept


def fail_on(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    """Make the measuring of each event that contains this text fail."""
    decode = chat.decode

    def decode_or_fail(data: bytes) -> completion_events.CompletionEvent:
        return completion_events.CompletionEvent() if text in data and fail() else decode(data)

    monkeypatch.setattr(chat, "decode", decode_or_fail)
    monkeypatch.setattr(chat, "decode_first", decode_or_fail)


HALF = len(content("b")) // 2


@pytest.mark.parametrize(
    "reads, verdicts",
    [
        pytest.param([ROLE + content("a") + content("b")[:HALF], content("b")[HALF:] + content("c") + USAGE, DONE],
            {"ttft": Verdict.GOOD, "availability": Verdict.ABANDONED},
            id="an event in two reads, after the first token"),
        pytest.param([ROLE, content("b")[:HALF], content("b")[HALF:-1], content("b")[-1:] + content("c") + DONE],
            {"ttft": Verdict.ABANDONED, "availability": Verdict.ABANDONED}, id="the first token in three reads"),
        pytest.param([ROLE + content("a") + content("b"), content("c"), USAGE + DONE],
            {"ttft": Verdict.GOOD, "availability": Verdict.ABANDONED}, id="an event in one read with other events"),
        pytest.param([ROLE, content("a") + content("b")[:-1]],
            {"ttft": Verdict.GOOD, "availability": Verdict.ABANDONED}, id="an unterminated last event"),
    ],
)  # fmt: skip
async def test_a_fault_abandons_undecided_verdicts_and_forwards_every_byte_held_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: list[bytes], verdicts: dict[str, Verdict]
) -> None:
    fail_on(monkeypatch, b'"b"')
    read_bytes = 0
    observe = Measurement.observe

    def count(measurement: Measurement, pieces: list[bytes], at: float, *, event_stream: bool) -> list[bytes]:
        nonlocal read_bytes
        read_bytes += sum(map(len, pieces))
        return observe(measurement, pieces, at, event_stream=event_stream)

    monkeypatch.setattr(Measurement, "observe", count)

    def has_read(number: int) -> bool:
        return read_bytes == sum(map(len, reads[:number]))

    async def send_in_reads(received: Received) -> None:
        await received.send(STREAM_HEAD)
        for number, read in enumerate(reads, 1):
            await received.send(chunk(read))
            await until(partial(has_read, number))
        await received.send(END)

    async with staged(tmp_path, send_in_reads) as stage:
        response = await stage.ask(post(CHAT))
        assert body_of(response) == b"".join(reads)
        record = await stage.record()
        assert (record.outcome, record.unmetered, record.slo) == (Outcome.OK, "RuntimeError", verdicts)
        assert (record.completion_tokens, record.tpot, record.gap_counts) == (None, None, {})


async def test_a_stream_with_a_fault_is_no_longer_waiting_and_its_deadlines_do_not_apply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_on(monkeypatch, b'"b"')
    async with staged(tmp_path, holds(STREAM_HEAD, chunk(content("b")))) as stage:
        client = await stage.client(post(CHAT))
        await client.until(content("b"))
        (exchange,) = stage.relay._open
        measurement = exchange.measurement
        assert (measurement.phase, measurement.awaits_first_token) == (Phase.STREAMING, False)
        measurement.check_deadline(time.monotonic() + 1000)
        await until(lambda: stage.judged)
        (judged,) = stage.judged
        assert judged.slo == {"ttft": Verdict.ABANDONED, "availability": Verdict.ABANDONED}
        assert not judged.goodput_lost
        client.leave()
        record = await stage.record()
        assert (record.goodput, set(record.counted)) == (None, {"ttft", "availability"})


async def test_a_fault_at_a_deadline_stops_neither_the_timer_nor_the_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = asyncio.Event()

    async def later(received: Received) -> None:
        await received.send(STREAM_HEAD, chunk(ROLE[:HALF]))
        await judged.wait()
        await received.send(chunk(ROLE[HALF:]), chunk(content("a", "stop")), chunk(DONE), END)

    async with staged(tmp_path, later) as stage:
        monkeypatch.setattr("exporters.vocabulary.verdicts.Judge.check_deadlines", fail)
        client = await stage.client(post(CHAT, headers=f"x-request-start: t={time.time() - 40:.6f}\r\n"))
        await until(lambda: stage.judged)
        judged.set()
        assert body_of(await client.rest()) == ROLE + content("a", "stop") + DONE
        record = await stage.record()
        assert (record.outcome, record.unmetered) == (Outcome.OK, "RuntimeError")
        assert record.slo == {"ttft": Verdict.ABANDONED, "availability": Verdict.ABANDONED}


@pytest.mark.parametrize(
    "where",
    [
        pytest.param("exporters.relay.connections.message_heads.request_head", id="of the request"),
        pytest.param("exporters.relay.connections.message_heads.response_head", id="of the response"),
    ],
)
async def test_a_relaying_error_returns_502_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    async with staged(tmp_path, whole_stream) as stage:
        monkeypatch.setattr(where, fail)
        response = await stage.ask(post(CHAT))
        assert response.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
        assert error_in(response)["code"] == "internal_error"
        assert (await stage.record()).outcome is Outcome.UPSTREAM_ERROR


async def test_errors_of_one_kind_are_logged_once_with_their_location(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with staged(tmp_path, whole_stream) as stage:
        monkeypatch.setattr("exporters.relay.metering.meter.Meter.stream", fail)
        for _ in range(2):
            await stage.ask(post(CHAT))
        (logged,) = caplog.records
        assert (logged.name, logged.levelname) == ("vllm_slo.relay", "ERROR")
        message = "metering failed; the request is forwarded unmetered: RuntimeError at "
        assert re.fullmatch(re.escape(message + __file__) + r":\d+", logged.getMessage())


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"stream":true,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", id="too deeply nested"),
        pytest.param(b'{"stream":true,"model":"\xff"}', id="invalid UTF-8"),
        pytest.param(b'{"stream":tru', id="truncated"),
        pytest.param(b"", id="empty"),
        pytest.param(b'{"model":"m","max_tokens":9223372036854775808}', id="max_tokens over 64 bits"),
        pytest.param(b'{"model":"m","max_completion_tokens":1%s}' % (b"0" * 24), id="larger max_completion_tokens"),
        pytest.param(b'{"model":"m","prompt":[1%s]}' % (b"0" * 24), id="a prompt token over 64 bits"),
    ],
)
async def test_a_body_that_cannot_be_parsed_is_forwarded_and_recorded(tmp_path: Path, body: bytes) -> None:
    async with staged(tmp_path, ok) as stage:
        assert (await stage.ask(post(body))).endswith(b"ok")
        assert stage.requests[0].body == body
        record = await stage.record()
        assert (record.outcome, record.unparsed) == (Outcome.OK, "not_understood")
        assert all(frame(batch) for batch in stage.sender.outbox.batches())
