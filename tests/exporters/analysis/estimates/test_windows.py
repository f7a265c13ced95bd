"""The two windows are equal and exclude the change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.analysis.estimates.windows import Change, Coverage, Plan, Window, plan
from exporters.text.errors import UsageError

CHANGE = Change(1000.0, 1005.0, "a -> b")
ALL = Coverage(0.0, 2000.0, "the log")


def planned(
    change: Change = CHANGE,
    *others: Change,
    outages: tuple[Window, ...] = (),
    window: float = 600.0,
    settle: float = 30.0,
    coverage: Coverage = ALL,
) -> Plan:
    return plan(change, others=(change, *others), outages=outages, window=window, settle=settle, coverage=coverage)


@pytest.mark.parametrize(
    "windows, before, after, shortened",
    [
        pytest.param(
            planned(), (400, 1000), (1035, 1635), "", id="until the change, and from the end of the settling time"
        ),
        pytest.param(
            planned(outages=(Window(1004, 1060),)),
            (400, 1000),
            (1090, 1690),
            "",
            id="the settling time starts after a restart",
        ),
        pytest.param(
            planned(outages=(Window(800, 900),)), (400, 1000), (1035, 1635), "", id="an earlier outage is not excluded"
        ),
        pytest.param(
            planned(CHANGE, Change(1020, 1021, "b -> c")),
            (400, 1000),
            (1051, 1651),
            "",
            id="changes within the settling time are one change",
        ),
        pytest.param(
            planned(Change(1001, 1001, "as given"), Change(1003, 1010, "a -> b")),
            (401, 1001),
            (1040, 1640),
            "",
            id="a given time includes the change at that time",
        ),
        pytest.param(
            planned(CHANGE, Change(700, 701, "z -> a")),
            (731, 1000),
            (1035, 1304),
            "10m requested, but another change is close before it",
            id="an earlier change and its settling time shorten both",
        ),
        pytest.param(
            planned(CHANGE, Change(1335, 1336, "b -> c")),
            (700, 1000),
            (1035, 1335),
            "10m requested, but another change is close after it",
            id="a later change shortens both",
        ),
        pytest.param(
            planned(coverage=Coverage(900, 2000, "the log")),
            (900, 1000),
            (1035, 1135),
            "10m requested, but the log starts soon before the change",
            id="the log starts late",
        ),
        pytest.param(
            planned(coverage=Coverage(0, 1100, "the log")),
            (935, 1000),
            (1035, 1100),
            "10m requested, but the log ends soon after the change",
            id="the log ends early",
        ),
    ],
)
def test_the_windows_exclude_changes_restarts_and_settling_times(
    windows: Plan, before: tuple[float, float], after: tuple[float, float], shortened: str
) -> None:
    assert (windows.before, windows.after, windows.shortened) == (Window(*before), Window(*after), shortened)


def test_settings_that_changed_together_are_listed_in_order() -> None:
    """The fingerprint is known from the first response, after the settings that it is the hash of."""
    windows = planned(Change(1020, 1021, "b -> c"), CHANGE, Change(1030, 1031, "c -> d"), Change(1900, 1901, "d -> e"))
    assert windows.change == Change(1000, 1031, "a -> b; b -> c; c -> d")


def test_outages_around_the_change_are_one_restart() -> None:
    assert planned(outages=(Window(990, 999), Window(1004, 1060))).restart == Window(990, 1060)


@given(st.floats(1, 5000), st.floats(0, 900), st.floats(0, 999), st.floats(1950, 3000))
def test_the_windows_are_equal_and_exclude_the_change(window: float, settle: float, begins: float, ends: float) -> None:
    windows = planned(window=window, settle=settle, coverage=Coverage(begins, ends, "the log"))
    assert windows.before.seconds == pytest.approx(windows.after.seconds)
    assert begins - 1e-6 <= windows.before.start < windows.before.end == CHANGE.start
    assert CHANGE.end + settle == windows.after.start < windows.after.end <= ends + 1e-6


@pytest.mark.parametrize(
    "coverage, why",
    [
        pytest.param(Coverage(1000, 2000, "the log"), "the log starts soon before the change", id="nothing before"),
        pytest.param(Coverage(0, 1030, "the log"), "the log ends soon after the change", id="nothing after it"),
    ],
)
def test_an_empty_window_is_rejected(coverage: Coverage, why: str) -> None:
    with pytest.raises(UsageError) as refused:
        planned(coverage=coverage)
    assert str(refused.value) == (
        f"--around: nothing to compare: with 30s settling time one window is empty: {why}; "
        "choose another change, a shorter --settle, or wait"
    )
