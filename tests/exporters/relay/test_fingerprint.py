"""The `system_fingerprint` of a response, in any event or body."""

import json

import pytest

from exporters.relay.metering.meter import MAX_FINGERPRINT
from tests.support.event_streams import stream_meter

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


def test_a_unary_response_has_a_fingerprint() -> None:
    meter = stream_meter()
    meter.unary(json.dumps({"choices": [LAST], "usage": USAGE, "system_fingerprint": "f-1"}).encode())
    meter.unary_end()
    assert meter.fingerprint == "f-1"
