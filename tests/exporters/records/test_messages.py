"""Messages between relay and exporter are decoded from any split of the bytes."""

import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporters.records.messages import (
    Batch,
    Footprint,
    Frames,
    FromRelay,
    Hello,
    Judged,
    OpenRequests,
    Refused,
    Snapshot,
    frame,
)
from exporters.vocabulary.signals import Verdict
from tests.support.sample_records import finished

MESSAGES: list[Hello | Batch | Snapshot] = [
    Hello("relay-0", "life-1"),
    Batch(1, [finished(slo={"ttft": Verdict.GOOD}), Judged("m", "short", "other", {"ttft": Verdict.BAD}, True)]),
    Batch(3, [Refused(431, "head_too_large")]),
    Snapshot([OpenRequests("m", "short", 3, 4, 12.5)], 0.01, 7, draining=False, footprint=Footprint(12.5, None)),
    Batch(4, []),
]


@settings(max_examples=40)
@given(st.lists(st.integers(0, 2000), max_size=12))
def test_messages_come_back_whole_and_in_order_however_the_bytes_are_split(cuts: list[int]) -> None:
    data = b"".join(frame(message) for message in MESSAGES)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    frames = Frames()
    payloads = [payload for a, b in itertools.pairwise(edges) for payload in frames.feed(data[a:b])]
    assert [msgspec.msgpack.decode(payload, type=FromRelay) for payload in payloads] == MESSAGES


@pytest.mark.parametrize(
    "times,frontend",
    [
        pytest.param({"ttft": 1.0, "queue": 0.5, "prefill": 0.25}, 0.25, id="what the engine does not report"),
        pytest.param({"ttft": 1.0, "queue": 0.25, "prefill": 0.25, "before_relay": 0.25}, 0.25, id="behind a gateway"),
        pytest.param({"ttft": 0.5, "queue": 0.25, "prefill": 0.5}, 0.0, id="never negative"),
        pytest.param({"ttft": 1.0, "queue": 0.25}, None, id="no prefill time"),
        pytest.param({"ttft": 1.0, "prefill": 0.25}, None, id="no queue time"),
        pytest.param({"queue": 0.25, "prefill": 0.25}, None, id="no first token"),
    ],
)
def test_front_end_time_is_ttft_from_the_end_of_the_upload_without_queue_and_prefill(
    times: dict[str, float], frontend: float | None
) -> None:
    assert finished(**times).frontend == frontend
