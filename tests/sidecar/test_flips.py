"""What is a change of configuration, and when it was."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from exporters.engines.flips import Change, ConfigWatch, revision

START = 1000.0


def watched(settings: dict[str, str], *, start: float | None = START, at: float = 1010.0) -> ConfigWatch:
    watch = ConfigWatch()
    assert watch.observe(settings, start, at) == []
    return watch


def test_the_first_look_is_no_change() -> None:
    assert watched({"enable_prefix_caching": "False"}).changes == {}


def test_a_change_is_dated_to_the_engines_start() -> None:
    watch = watched({"caching": "False", "block_size": "32"})
    expected = Change("caching", "False", "True", 1020.5)
    assert watch.observe({"caching": "True", "block_size": "32"}, 1020.5, 1042.0) == [expected]
    assert watch.changes == {("caching", "False", "True"): expected}


def test_a_change_is_dated_to_the_look_when_the_start_is_not_known_or_lies_before_the_last_look() -> None:
    assert watched({"caching": "False"}).observe({"caching": "True"}, None, 1042.0)[0].at == 1042.0
    assert watched({"caching": "False"}).observe({"caching": "True"}, START, 1042.0)[0].at == 1042.0
    assert watched({"caching": "False"}).observe({"caching": "True"}, 9999.0, 1042.0)[0].at == 1042.0


def test_a_restart_with_the_same_settings_is_no_flip() -> None:
    watch = watched({"caching": "False"})
    before = watch.revision
    assert watch.observe({"caching": "False"}, 1020.0, 1042.0) == []
    assert (watch.changes, watch.revision) == ({}, before)


def test_a_setting_that_appears_or_is_not_shown_for_a_while_is_no_flip() -> None:
    watch = watched({"caching": "False"})
    assert watch.observe({"caching": "False", "version": "0.32.0"}, START, 1020.0) == []
    assert watch.observe({"caching": "False"}, START, 1030.0) == []
    assert watch.settings == {"caching": "False", "version": "0.32.0"}


def test_a_flip_back_and_forth_keeps_the_last_time_of_each_direction() -> None:
    watch = watched({"caching": "False"})
    for at, value in ((1100.0, "True"), (1200.0, "False"), (1300.0, "True")):
        watch.observe({"caching": value}, None, at)
    assert {key: change.at for key, change in watch.changes.items()} == {
        ("caching", "False", "True"): 1300.0,
        ("caching", "True", "False"): 1200.0,
    }


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=6), st.randoms())
def test_a_revision_depends_on_the_settings_and_not_on_their_order(settings: dict[str, str], random: Random) -> None:
    items = list(settings.items())
    random.shuffle(items)
    assert revision(dict(items)) == revision(settings)
    assert revision({**settings, "one more": "x"}) != revision(settings)
