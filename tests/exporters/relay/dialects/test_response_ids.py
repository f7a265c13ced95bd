"""The id, the model and the `system_fingerprint` of a response, in its events or its unary body."""

import json
from pathlib import Path

import pytest

from exporters.relay.dialects import chat
from exporters.relay.dialects.paths import METERED
from exporters.relay.metering.meter import MAX_FINGERPRINT, Meter
from tests.contract.recordings import NAMES, Recording, recording
from tests.support.event_streams import stream_meter
from tests.support.scripted_relay import CHAT, answers, post, staged

ANSWERED = [name for name in NAMES if recording(name).path in METERED and recording(name).status == 200]
WITHOUT_ID = {"messages-count-tokens", "tokenize", "tokenize-messages", "detokenize"}


def first_object(recorded: Recording) -> dict[str, str]:
    """The object with the id: the unary body, the first chunk, or the response or message in the first event."""
    if not recorded.content.startswith((b"data: ", b"event: ")):
        body: dict[str, str] = json.loads(recorded.content)
        return body
    event = json.loads(recorded.content.partition(b"data: ")[2].partition(b"\n")[0])
    found: dict[str, str] = event.get("response") or event.get("message") or event
    return found


def measured(recorded: Recording) -> Meter:
    meter = stream_meter(dialect=METERED[recorded.path])
    if recorded.content.startswith((b"data: ", b"event: ")):
        meter.stream(recorded.content, 1.0)
    else:
        meter.unary(recorded.content)
        meter.unary_end()
    return meter


@pytest.mark.parametrize("name", ANSWERED)
def test_a_recorded_response_has_its_id_and_model(name: str) -> None:
    recorded = recording(name)
    meter, expected = measured(recorded), first_object(recorded)
    assert (meter.response_id, meter.response_model) == (expected.get("id"), expected.get("model"))
    assert meter.response_id or name in WITHOUT_ID


def test_an_id_in_a_later_event_is_found_and_further_ones_are_not_decoded() -> None:
    meter = stream_meter(dialect=chat)
    meter.stream(b'data: {"choices":[]}\n\n', 1.0)
    meter.stream(b'data: {"id":"a","model":"m","choices":[]}\n\n', 1.0)
    meter.stream(b'data: {"id":"b","model":"n","choices":[]}\n\n', 1.0)
    assert (meter.response_id, meter.response_model) == ("a", "m")


@pytest.mark.parametrize(
    "body,identified",
    [
        pytest.param({"id": "chatcmpl-1", "model": "tiny-v2"}, ("chatcmpl-1", "tiny-v2"), id="strings"),
        pytest.param({"id": 7, "model": ["tiny"]}, (None, None), id="other types"),
        pytest.param({"id": "", "model": None}, (None, None), id="empty"),
        pytest.param({}, (None, None), id="absent"),
        pytest.param({"id": "i" * 1000, "model": "m" * 1000}, ("i" * 256, "m" * 256), id="long"),
    ],
)
async def test_the_record_has_the_id_and_model_and_the_response_is_measured_without(
    tmp_path: Path, body: dict[str, object], identified: tuple[str | None, str | None]
) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    answer = {**body, "choices": [{"message": {"content": "a"}, "finish_reason": "stop"}], "usage": usage}
    async with staged(tmp_path, answers(answer)) as stage:
        await stage.ask(post(CHAT))
        record = await stage.record()
    assert (record.completion_tokens, record.finish_reason) == (2, "stop")
    assert (record.response_id, record.response_model) == identified


TEXT = {"index": 0, "delta": {"content": "a"}, "finish_reason": None}
LAST = {"index": 0, "delta": {}, "finish_reason": "stop"}
USAGE = {"prompt_tokens": 3, "completion_tokens": 2}


@pytest.mark.parametrize(
    "events, fingerprint",
    [
        pytest.param(
            [{"choices": [TEXT]}, {"choices": [LAST]}, {"choices": [], "usage": USAGE, "system_fingerprint": "f-1"}],
            "f-1",
            id="with the usage, as vLLM sends it",
        ),
        pytest.param([{"choices": [TEXT]}, {"choices": [LAST], "system_fingerprint": "f-1"}], "f-1",
            id="with the last chunk"),
        pytest.param([{"choices": [TEXT], "system_fingerprint": "f-1"}] * 3, "f-1", id="with each chunk"),
        pytest.param([{"choices": [LAST], "system_fingerprint": None}, {"choices": [], "system_fingerprint": ""}], None,
            id="if it is switched off"),
        pytest.param([{"choices": [TEXT]}], None, id="nowhere"),
        pytest.param([{"choices": [LAST], "system_fingerprint": "x" * 5_000}], "x" * MAX_FINGERPRINT, id="truncated"),
    ],
)  # fmt: skip
def test_a_stream_has_a_fingerprint_and_is_forwarded_unchanged(
    events: list[dict[str, object]], fingerprint: str | None
) -> None:
    meter = stream_meter()
    for n, event in enumerate(events):
        data = b"data: " + json.dumps(event).encode() + b"\n\n"
        assert meter.stream(data, n / 100) == data
    assert meter.fingerprint == fingerprint
