"""Whatever goes wrong in the sidecar itself, the client gets an answer and the request is counted."""

import re
from pathlib import Path

import pytest

from exporters.signals import Outcome
from tests.support.scripted_relay import (
    CHAT,
    CHAT_WITH_USAGE,
    DONE,
    EVENTS,
    USAGE,
    body_of,
    error_in,
    ok,
    post,
    staged,
    whole_stream,
)


@pytest.mark.parametrize(
    "where",
    [
        pytest.param("exporters.relay.measurement.Judge", id="when it begins"),
        pytest.param("exporters.relay.meter.Meter.stream", id="in the stream"),
        pytest.param("exporters.relay.meter.Meter.count_chunk", id="on the fast path"),
        pytest.param("exporters.relay.meter.Meter.finish", id="at its end"),
        pytest.param("exporters.relay.meter.Meter.latencies", id="in its record"),
    ],
)
async def test_a_fault_in_measuring_never_costs_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    async with staged(tmp_path, whole_stream) as stage:

        def fault(*_: object, **__: object) -> bytes:
            raise RuntimeError("a fault")

        monkeypatch.setattr(where, fault)
        answer = await stage.ask(post(CHAT_WITH_USAGE))
        assert body_of(answer) == b"".join(EVENTS) + USAGE + DONE
        record = await stage.record()
        assert (record.outcome, record.unmetered) == (Outcome.OK, "RuntimeError")


@pytest.mark.parametrize(
    "where",
    [
        pytest.param("exporters.relay.message_heads.request_head", id="of the request"),
        pytest.param("exporters.relay.message_heads.response_head", id="of the response"),
    ],
)
async def test_a_fault_in_relaying_is_an_answer_and_not_a_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    async with staged(tmp_path, whole_stream) as stage:

        def fault(*_: object, **__: object) -> bytes:
            raise RuntimeError("a fault")

        monkeypatch.setattr(where, fault)
        answer = await stage.ask(post(CHAT))
        assert answer.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
        assert error_in(answer)["code"] == "internal_error"
        assert (await stage.record()).outcome is Outcome.UPSTREAM_ERROR


async def test_faults_of_one_kind_are_logged_once_with_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with staged(tmp_path, whole_stream) as stage:

        def fault(*_: object, **__: object) -> bytes:
            raise RuntimeError("a fault")

        monkeypatch.setattr("exporters.relay.meter.Meter.stream", fault)
        for _ in range(2):
            await stage.ask(post(CHAT))
        (logged,) = caplog.records
        assert (logged.name, logged.levelname) == ("vllm_slo.relay", "ERROR")
        message = "metering failed; the request is forwarded unmetered: RuntimeError('a fault') at "
        assert re.fullmatch(re.escape(message + __file__) + r":\d+", logged.getMessage())


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"stream":true,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", id="nested without end"),
        pytest.param(b'{"stream":true,"model":"\xff"}', id="no UTF-8"),
        pytest.param(b'{"stream":tru', id="cut off"),
        pytest.param(b"", id="empty"),
    ],
)
async def test_a_body_that_cannot_be_read_is_the_engines_to_refuse(tmp_path: Path, body: bytes) -> None:
    async with staged(tmp_path, ok) as stage:
        assert (await stage.ask(post(body))).endswith(b"ok")
        assert stage.requests[0].body == body
        assert (await stage.record()).unparsed == "not_understood"
