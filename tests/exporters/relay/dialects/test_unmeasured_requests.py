"""Requests that have no response to measure: in the background, by id and in batches."""

from pathlib import Path

import pytest

from exporters.relay.dialects.paths import endpoint_of_path
from exporters.requestlog.writer import log_entry
from exporters.vocabulary.signals import Endpoint, Outcome
from tests.contract.recordings import recording
from tests.support import scripted_relay
from tests.support.api_streams import RESPONSES
from tests.support.scripted_relay import (
    END,
    OK,
    STREAM_HEAD,
    Received,
    body_of,
    chunk,
    closes,
    error_in,
    holds,
    ok,
    staged,
)

BACKGROUND = RESPONSES.request.replace(b"{", b'{"background":true,', 1)


@pytest.mark.parametrize(
    "method, path",
    [
        ("GET", "/v1/responses/resp_1"),
        ("DELETE", "/v1/responses/resp_1"),
        ("POST", "/v1/responses/resp_1/cancel"),
        ("POST", "/v1/chat/completions/batch"),
        ("GET", "/v1/models"),
        ("GET", "/health"),
        ("POST", "/v1/audio/speech?x=1"),
    ],
)
async def test_a_request_without_tokens_passes_with_its_duration_and_outcome(
    tmp_path: Path, method: str, path: str
) -> None:
    async with staged(tmp_path, ok) as stage:
        request = f"{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}"
        assert (await stage.ask(request.encode())).endswith(OK.partition(b"\r\n\r\n")[2])
        assert stage.requests[0].head.startswith(f"{method} {path} HTTP/1.1\r\n".encode())
        assert stage.requests[0].body == b"{}"
        record = await stage.record()
    route = path.partition("?")[0]
    assert (record.outcome, record.route, record.metered) == (Outcome.OK, route, False)
    assert (record.slo, record.goodput, record.request_class, record.model) == ({}, None, "other", "")
    assert record.api is endpoint_of_path(route)
    assert record.e2e > 0


@pytest.mark.parametrize("name", ["responses-retrieve", "responses-cancel"])
async def test_a_recorded_request_without_tokens_passes_unchanged(tmp_path: Path, name: str) -> None:
    recorded = recording(name)
    async with staged(tmp_path, closes(recorded.response)) as stage:
        assert (await stage.ask(recorded.request)).endswith(b"\r\n\r\n" + recorded.content)
        record = await stage.record()
    assert (record.status, record.metered, record.slo) == (recorded.status, False, {})


@pytest.mark.parametrize("stream", [True, False])
async def test_a_background_response_is_no_slo_event(tmp_path: Path, stream: bool) -> None:
    request = BACKGROUND if stream else BACKGROUND.replace(b'"stream":true,', b"")

    async def queue(received: Received) -> None:
        if stream:
            await received.send(STREAM_HEAD, chunk(RESPONSES.start))
        await received.send(*([END] if stream else [OK]))

    async with staged(tmp_path, queue) as stage:
        response = await stage.ask(scripted_relay.post(request, path="/v1/responses"))
        assert (body_of(response) if stream else response[-2:]) == (RESPONSES.start if stream else b"ok")
        assert stage.requests[0].body == request
        record = await stage.record()
        assert stage.judged == []
    assert (record.outcome, record.metered, record.slo, record.goodput) == (Outcome.OK, False, {}, None)
    assert (record.request_class, record.model, record.prompt_sha256, record.unparsed) == ("other", "", None, None)
    assert (record.route, record.api) == ("/v1/responses", Endpoint.RESPONSES_BACKGROUND)
    assert log_entry(record, "relay-0-abc:1", None).background is True


async def test_an_open_background_response_is_in_no_gauge_and_its_stream_is_not_cut(tmp_path: Path) -> None:
    async with staged(tmp_path, holds(STREAM_HEAD, chunk(RESPONSES.start))) as stage:
        client = await stage.client(scripted_relay.post(BACKGROUND, path="/v1/responses"))
        await client.until(RESPONSES.start)
        (exchange,) = stage.relay._open
        assert not exchange.measurement.metered
        assert not exchange.measurement.awaits_first_token
        assert exchange.measurement.phase == "streaming"


async def test_a_background_response_that_the_engine_rejects_is_a_client_error(tmp_path: Path) -> None:
    recorded = recording("responses-background")
    async with staged(tmp_path, closes(recorded.response)) as stage:
        response = await stage.ask(recorded.request)
        assert error_in(response)["param"] == "background"
        assert (await stage.record()).outcome is Outcome.CLIENT_ERROR
