"""The observations that are config changes, their times, and that each config change counts once."""

from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.engines.changes.config_changes import (
    FINGERPRINT,
    FINGERPRINT_WAIT,
    MAX_CHANGES,
    SAME_CHANGE_SECONDS,
    ConfigChange,
    ConfigWatch,
    DeclarationResult,
    revision,
)

START = 1000.0


WORDS = st.text("aß,=\n", max_size=5)


def watch_of(settings: Mapping[str, str], *, start: float | None = START) -> ConfigWatch:
    """Observed at 1010; the first observation is not a change."""
    watch = ConfigWatch()
    assert watch.observe(settings, start, 1010.0) == []
    return watch


def watch_with_fingerprint(
    fingerprint: str, settings: Mapping[str, str], *, start: float | None = START
) -> ConfigWatch:
    """Observed at 1010 and, with a response, at 1020."""
    watch = watch_of(settings, start=start)
    watch.observe_fingerprint(fingerprint, 1015.0)
    assert watch.observe(settings, start, 1020.0) == []
    assert watch.settings[FINGERPRINT] == fingerprint
    return watch


def changes_of(watch: ConfigWatch) -> list[tuple[str, str, str, float]]:
    return [(change.setting, change.old, change.new, change.at) for change in watch.changes]


def test_a_change_is_dated_to_the_engines_start() -> None:
    watch = watch_of({"caching": "False", "block_size": "32"})
    expected = ConfigChange("caching", "False", "True", 1020.5)
    assert watch.observe({"caching": "True", "block_size": "32"}, 1020.5, 1042.0) == [expected]
    assert watch.changes == [expected]


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(None, id="unknown"),
        pytest.param(START, id="before the last observation: the same process"),
        pytest.param(1001.0, id="before the last observation: a clock that is behind"),
        pytest.param(9999.0, id="in the future: a clock that is ahead"),
    ],
)
def test_a_change_is_dated_to_the_observation_when_the_start_cannot_be_its_time(start: float | None) -> None:
    assert watch_of({"caching": "False"}).observe({"caching": "True"}, start, 1042.0)[0].at == 1042.0


def test_a_setting_that_is_read_late_is_still_dated_to_the_start() -> None:
    """The models request fails at the first scrapes of the process."""
    watch = watch_of({"caching": "False", "max_model_len": "2048"})
    assert watch.observe({"caching": "False"}, 1020.5, 1042.0) == []
    assert watch.observe({"caching": "False"}, 1020.5, 1057.0) == []
    settings = {"caching": "False", "max_model_len": "1024"}
    assert watch.observe(settings, 1020.5, 1072.0) == [ConfigChange("max_model_len", "2048", "1024", 1020.5)]


def test_a_restart_with_the_same_settings_is_no_config_change() -> None:
    watch = watch_with_fingerprint("f-1", {"caching": "False"})
    before = watch.revision
    assert watch.observe({"caching": "False"}, 1030.0, 1042.0) == []
    watch.observe_fingerprint("f-1", 1045.0)
    assert watch.observe({"caching": "False"}, 1030.0, 1057.0) == []
    assert (watch.changes, watch.revision) == ([], before)


def test_a_setting_that_appears_or_is_not_shown_for_a_while_is_no_config_change() -> None:
    watch = watch_of({"caching": "False"})
    assert watch.observe({"caching": "False", "version": "0.32.0"}, START, 1020.0) == []
    assert watch.observe({"caching": "False"}, START, 1030.0) == []
    assert watch.settings == {"caching": "False", "version": "0.32.0"}


def test_a_change_back_and_forth_keeps_the_last_time_of_each_direction() -> None:
    watch = watch_of({"caching": "False"})
    for at, value in ((1100.0, "True"), (1200.0, "False"), (1300.0, "True")):
        watch.observe({"caching": value}, None, at)
    assert changes_of(watch) == [("caching", "True", "False", 1200.0), ("caching", "False", "True", 1300.0)]


def test_only_the_last_changes_are_stored() -> None:
    watch = watch_of({"image": "0"})
    for n in range(1, MAX_CHANGES + 50):
        watch.observe({"image": str(n)}, None, 1010.0 + n)
    assert [change.new for change in watch.changes] == [str(n) for n in range(50, MAX_CHANGES + 50)]


# The fingerprint.


def test_another_fingerprint_of_a_new_process_is_a_config_change_at_its_start() -> None:
    watch = watch_with_fingerprint("f-1", {"caching": "False"})
    assert watch.observe({"caching": "False"}, 1030.0, 1042.0) == []
    watch.observe_fingerprint("f-2", 5000.0)  # the first response after the restart
    assert watch.changes == [ConfigChange(FINGERPRINT, "f-1", "f-2", 1030.0)]
    assert watch.settings[FINGERPRINT] == "f-2"


def test_a_response_of_the_previous_process_is_not_attributed_to_the_next() -> None:
    watch = watch_with_fingerprint("f-1", {})
    watch.observe({}, 1030.0, 1042.0)
    watch.observe_fingerprint("f-1", 1029.0)  # its record arrived late
    watch.observe({}, 1030.0, 1050.0)
    watch.observe_fingerprint("f-2", 1055.0)
    assert watch.changes == [ConfigChange(FINGERPRINT, "f-1", "f-2", 1030.0)]


def unresponded_watch() -> ConfigWatch:
    """Scraped, without a response yet."""
    watch = watch_of({"caching": "False"})
    watch.fingerprint_pending = True
    assert watch.revision is None
    return watch


def test_the_first_revision_has_the_first_fingerprint() -> None:
    watch = unresponded_watch()
    watch.observe_fingerprint("f-1", 1015.0)
    assert watch.revision == revision({"caching": "False", FINGERPRINT: "f-1"})


def test_an_engine_whose_completions_have_no_fingerprint_has_a_revision_from_the_first() -> None:
    watch = unresponded_watch()
    watch.observe_no_fingerprint(1015.0, certain=True)
    assert watch.revision == revision({"caching": "False"})


def test_responses_of_apis_without_a_fingerprint_leave_time_for_one_with_it() -> None:
    watch = unresponded_watch()
    for at in (1015.0, 1014.0 + FINGERPRINT_WAIT):
        watch.observe_no_fingerprint(at, certain=False)
    assert watch.revision is None
    watch.observe_no_fingerprint(1015.0 + FINGERPRINT_WAIT, certain=False)
    assert watch.revision == revision({"caching": "False"})


def test_after_a_restart_of_the_engine_the_known_revision_lasts_until_the_next_fingerprint() -> None:
    watch = unresponded_watch()
    watch.observe_fingerprint("f-1", 1015.0)
    before = watch.revision
    watch.observe({"caching": "False"}, 1030.0, 1042.0)
    assert watch.revision == before
    watch.observe_fingerprint("f-2", 1045.0)
    assert watch.revision not in {None, before}


def test_another_fingerprint_of_the_same_process_is_from_another_engine() -> None:
    watch = watch_with_fingerprint("f-1", {})
    watch.observe_fingerprint("f-2", 1025.0)
    watch.observe({}, START, 1030.0)
    assert watch.changes == []
    assert watch.settings[FINGERPRINT] == "f-1"


def test_a_fingerprint_waits_for_the_response_that_may_show_the_changed_setting() -> None:
    watch = watch_with_fingerprint("f-1", {"dtype": "bfloat16"})
    watch.settings_pending = True
    watch.observe({}, 1030.0, 1042.0)
    watch.observe_fingerprint("f-2", 1045.0)
    assert watch.changes == []
    watch.settings_pending = False
    watch.observe({"dtype": "float32"}, 1030.0, 1057.0)
    assert changes_of(watch) == [("dtype", "bfloat16", "float32", 1030.0)]
    assert watch.settings[FINGERPRINT] == "f-2"


@pytest.mark.parametrize("start", [pytest.param(1030.0, id="known start"), pytest.param(None, id="unknown start")])
@pytest.mark.parametrize("fingerprint_first", [False, True])
def test_a_config_change_that_a_setting_and_the_fingerprint_show_counts_once(
    start: float | None, *, fingerprint_first: bool
) -> None:
    watch = watch_with_fingerprint("f-1", {"len": "2048"}, start=None if start is None else START)
    observations: list[tuple[dict[str, str], str | None]] = [({"len": "1024"}, None), ({"len": "1024"}, "f-2")]
    if fingerprint_first:
        observations = [({}, None), ({}, "f-2"), ({"len": "1024"}, None)]
    for n, (settings, fingerprint) in enumerate(observations):
        if fingerprint is not None:
            watch.observe_fingerprint(fingerprint, 1040.0 + 15 * n)
        watch.observe(settings, start, 1042.0 + 15 * n)
    assert [change.setting for change in watch.changes] == ["len"]
    assert (watch.settings["len"], watch.settings[FINGERPRINT]) == ("1024", "f-2")


def test_a_second_restart_soon_after_is_another_config_change() -> None:
    watch = watch_with_fingerprint("f-1", {"len": "2048"})
    watch.observe({"len": "1024"}, 1030.0, 1042.0)
    watch.observe_fingerprint("f-2", 1045.0)
    watch.observe({"len": "1024"}, 1030.0, 1057.0)
    watch.observe({"len": "1024"}, 1060.0, 1072.0)
    watch.observe_fingerprint("f-3", 1075.0)
    watch.observe({"len": "1024"}, 1060.0, 1087.0)
    assert changes_of(watch) == [("len", "2048", "1024", 1030.0), (FINGERPRINT, "f-2", "f-3", 1060.0)]


# Declarations of an operator.


def test_a_setting_that_the_engine_does_not_show_is_declared_and_changes_the_revision() -> None:
    watch = watch_of({"caching": "False"})
    before = watch.revision
    assert watch.declare({"policy": "priority"}, "for the batch jobs", 1100.0) == {"policy": DeclarationResult.CHANGED}
    assert watch.changes == [ConfigChange("policy", "unknown", "priority", 1100.0, "for the batch jobs")]
    assert watch.settings == {"caching": "False", "policy": "priority"}
    assert watch.revision != before
    assert watch.declare({"policy": "priority"}, "", 1200.0) == {"policy": DeclarationResult.UNCHANGED}
    assert watch.declare({"policy": "fcfs"}, "", 1300.0) == {"policy": DeclarationResult.CHANGED}
    assert changes_of(watch)[1:] == [("policy", "priority", "fcfs", 1300.0)]


def test_a_declaration_survives_a_restart_of_the_engine() -> None:
    watch = watch_of({"caching": "False"})
    watch.declare({"policy": "priority"}, "", 1100.0)
    watch.observe({"caching": "False"}, 1200.0, 1210.0)
    assert watch.settings["policy"] == "priority"


def test_a_visible_setting_declared_before_its_change_counts_once_with_its_note() -> None:
    watch = watch_of({"caching": "False"})
    assert watch.declare({"caching": "true"}, "as agreed", 1015.0) == {"caching": DeclarationResult.PENDING}
    assert (watch.changes, watch.settings) == ([], {"caching": "False"})
    expected = ConfigChange("caching", "False", "True", 1020.5, "as agreed")
    assert watch.observe({"caching": "True"}, 1020.5, 1042.0) == [expected]
    watch.observe({"caching": "False"}, 1100.0, 1110.0)
    assert watch.changes == [expected, ConfigChange("caching", "True", "False", 1100.0)]


def test_a_visible_setting_declared_after_its_change_counts_once_with_its_note() -> None:
    watch = watch_of({"caching": "False"})
    watch.observe({"caching": "True"}, 1020.5, 1042.0)
    assert watch.declare({"caching": "true"}, "as agreed", 1050.0) == {"caching": DeclarationResult.NOTE_ADDED}
    assert watch.changes == [ConfigChange("caching", "False", "True", 1020.5, "as agreed")]


def test_a_declaration_of_the_shown_value_changes_nothing() -> None:
    assert watch_of({"caching": "True"}).declare({"caching": "true"}, "", 1015.0) == {
        "caching": DeclarationResult.UNCHANGED
    }


def test_a_setting_that_only_an_earlier_process_showed_can_be_declared() -> None:
    """The later process has no /server_info."""
    watch = watch_of({"caching": "False", "policy": "fcfs"})
    watch.observe({"caching": "False"}, 1020.0, 1030.0)
    assert watch.declare({"policy": "priority"}, "", 1040.0) == {"policy": DeclarationResult.CHANGED}
    assert changes_of(watch) == [("policy", "fcfs", "priority", 1040.0)]
    assert watch.settings["policy"] == "priority"


def test_a_declaration_before_the_restart_explains_the_fingerprint() -> None:
    watch = watch_with_fingerprint("f-1", {})
    watch.declare({"max_num_seqs": "8", "policy": "fcfs"}, "", 1025.0)
    watch.observe({}, 1030.0, 1042.0)
    watch.observe_fingerprint("f-2", 1045.0)
    assert [(change.setting, change.at) for change in watch.changes] == [("max_num_seqs", 1025.0), ("policy", 1025.0)]


def test_a_declaration_after_the_restart_replaces_the_change_of_the_fingerprint() -> None:
    watch = watch_with_fingerprint("f-1", {})
    watch.observe({}, 1030.0, 1042.0)
    watch.observe_fingerprint("f-2", 1045.0)
    watch.observe({}, 1030.0, 1057.0)
    watch.declare({"max_num_seqs": "8", "dtype": "float32"}, "", 1100.0)
    assert changes_of(watch) == [("max_num_seqs", "unknown", "8", 1030.0), ("dtype", "unknown", "float32", 1030.0)]


@pytest.mark.parametrize(
    "restarts",
    [
        pytest.param((1030.0, 1060.0), id="one declaration explains one restart"),
        pytest.param((1026.0 + SAME_CHANGE_SECONDS,), id="an old declaration explains none"),
    ],
)
def test_a_declaration_does_not_hide_the_next_config_change(restarts: tuple[float, ...]) -> None:
    watch = watch_with_fingerprint("f-0", {})
    watch.declare({"policy": "priority"}, "", 1025.0)
    for n, start in enumerate(restarts, 1):
        watch.observe({}, start, start + 10)
        watch.observe_fingerprint(f"f-{n}", start + 12)
        watch.observe({}, start, start + 14)
    assert [(change.setting, change.at) for change in watch.changes] == [
        ("policy", 1025.0),
        (FINGERPRINT, restarts[-1]),
    ]


@given(st.dictionaries(WORDS, WORDS, max_size=6), st.randoms())
def test_a_revision_depends_on_the_settings_and_not_on_their_order(settings: dict[str, str], random: Random) -> None:
    items = list(settings.items())
    random.shuffle(items)
    assert revision(dict(items)) == revision(settings)
    assert revision({**settings, "one more": "x"}) != revision(settings)
