"""The recorded exchanges: each is complete, unless the engine failed, and contains nothing of the machine."""

import re

import pytest

from tests.contract.recordings import FOLDER, NAMES, recording


def test_each_response_has_its_request() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {
        f"{n}.{kind}" for n in NAMES for kind in ("request", "response")
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_response_is_complete_unless_the_engine_failed_during_a_responses_stream(name: str) -> None:
    assert recording(name).complete is (name != "responses-failed-stream")


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("-stream")])
def test_a_recorded_stream_has_only_whole_events(name: str) -> None:
    found = recording(name).events
    assert all(event.data.startswith("{") for event in found if event.data != "[DONE]")
    named = {event.name is not None for event in found}
    assert named == {not name.startswith(("chat", "completions"))}


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_names_no_path_and_no_address_of_the_machine(name: str) -> None:
    both = recording(name).request + recording(name).response
    assert not re.search(rb"/root|/home|/tmp|/usr|127\.0\.0\.1|localhost", both)
