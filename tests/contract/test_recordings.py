"""The recorded exchanges: each is complete, unless the engine failed, and contains nothing of the machine."""

import re

from tests.contract.recordings import FOLDER, NAMES, recording


def test_each_response_has_its_request() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {
        f"{n}.{kind}" for n in NAMES for kind in ("request", "response")
    }


def test_each_response_is_complete_unless_the_engine_failed_during_a_responses_stream() -> None:
    assert [name for name in NAMES if not recording(name).complete] == ["responses-failed-stream"]


def test_a_recorded_stream_has_only_whole_events() -> None:
    for name in NAMES:
        if name.endswith("-stream"):
            found = recording(name).events
            assert all(event.data.startswith("{") for event in found if event.data != "[DONE]"), name
            assert {event.name is not None for event in found} == {not name.startswith(("chat", "completions"))}


def test_no_recording_names_a_path_or_an_address_of_the_machine() -> None:
    for name in NAMES:
        both = recording(name).request + recording(name).response
        assert not re.search(rb"/root|/home|/tmp|/usr|127\.0\.0\.1|localhost", both), name
