"""After an error in the sidecar the client still receives a response and the request is counted."""

import re
from pathlib import Path

import pytest

from exporters.records import frame
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


def fail(*_: object, **__: object) -> bytes:
    raise RuntimeError("an error")


@pytest.mark.parametrize(
    "where",
    [
        pytest.param("exporters.relay.measurement.Judge", id="at the start"),
        pytest.param("exporters.relay.meter.Meter.stream", id="in the stream"),
        pytest.param("exporters.relay.meter.Meter.count_chunk", id="on the fast path"),
        pytest.param("exporters.relay.meter.Meter.finish", id="at the end"),
        pytest.param("exporters.relay.meter.Meter.latencies", id="in the record"),
    ],
)
async def test_a_metering_error_does_not_change_the_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    async with staged(tmp_path, whole_stream) as stage:
        monkeypatch.setattr(where, fail)
        response = await stage.ask(post(CHAT_WITH_USAGE))
        assert body_of(response) == b"".join(EVENTS) + USAGE + DONE
        record = await stage.record()
        assert (record.outcome, record.unmetered) == (Outcome.OK, "RuntimeError")


@pytest.mark.parametrize(
    "where",
    [
        pytest.param("exporters.relay.message_heads.request_head", id="of the request"),
        pytest.param("exporters.relay.message_heads.response_head", id="of the response"),
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
        monkeypatch.setattr("exporters.relay.meter.Meter.stream", fail)
        for _ in range(2):
            await stage.ask(post(CHAT))
        (logged,) = caplog.records
        assert (logged.name, logged.levelname) == ("vllm_slo.relay", "ERROR")
        message = "metering failed; the request is forwarded unmetered: RuntimeError('an error') at "
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
