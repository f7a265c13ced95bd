"""The checks of the demo: each passes on the expected events, and fails on others."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from compose.demo import checks
from compose.demo.request_log_totals import ClassFigures
from compose.lab.webhook import Notification
from exporters.analysis.prometheus_api import Sample

SISO = ClassFigures("siso", 100, 100, 1.0, 0.1, 0.2, 300.0, 200.0, 0.0)
BURN = {"alertname": "LLMErrorBudgetBurn", **checks.PAGE}
NONE = "no such page; received: "


def notification(arrived_at: float, status: str = "firing", **labels: str) -> Notification:
    return Notification(
        arrived_at=arrived_at,
        receiver="page",
        status=status,
        labels=BURN | labels,
        annotations={},
        started="",
        fingerprint="",
    )


def goodput(share: float | None) -> ClassFigures:
    return replace(SISO, goodput=share)


@pytest.mark.parametrize(
    "overload, passed, result",
    [
        pytest.param(0.7, True, "100.0% to 70.0%: 30 points", id="30 points"),
        pytest.param(0.75, False, "100.0% to 75.0%: 25 points", id="25 points"),
        pytest.param(None, False, "no request was judged in one of the windows", id="nothing judged"),
    ],
)
def test_goodput_must_fall_by_30_points(overload: float | None, passed: bool, result: str) -> None:
    check = checks.goodput_falls(SISO, goodput(overload))
    assert (check.passed, check.result) == (passed, result)


@pytest.mark.parametrize(
    "baseline, overload, passed",
    [
        pytest.param(1000, 2000, True, id="more work than before"),
        pytest.param(1000, 801, True, id="a little less"),
        pytest.param(1000, 800, False, id="a fifth less"),
        pytest.param(0, 800, False, id="no baseline"),
    ],
)
def test_tokens_must_not_fall_by_a_fifth(baseline: float, overload: float, passed: bool) -> None:
    check = checks.tokens_stay(baseline, overload)
    assert (check.claim, check.passed) == ("engine output tokens/s fall by less than 20 %", passed)


@pytest.mark.parametrize(
    "arrivals, passed, result",
    [
        pytest.param([notification(1030)], True, "LLMErrorBudgetBurn after 30 s", id="in time"),
        pytest.param([notification(1151)], False, "LLMErrorBudgetBurn after 151 s", id="late"),
        pytest.param([notification(990)], False, f"{NONE}page LLMErrorBudgetBurn", id="before the overload"),
        pytest.param([notification(1030, **{"class": "liso"})], False, f"{NONE}page LLMErrorBudgetBurn", id="class"),
        pytest.param([notification(1030, slo="itl")], False, f"{NONE}page LLMErrorBudgetBurn", id="another SLO"),
        pytest.param([notification(1030, severity="ticket")], False, f"{NONE}ticket LLMErrorBudgetBurn", id="ticket"),
        pytest.param([], False, f"{NONE}none", id="nothing"),
    ],
)
def test_the_page_must_arrive_in_time_with_its_labels(
    arrivals: Sequence[Notification], passed: bool, result: str
) -> None:
    check = checks.page_in_time(arrivals, overload=1000)
    assert (check.passed, check.result) == (passed, result)


@pytest.mark.parametrize(
    "arrivals, passed, result",
    [
        pytest.param([notification(1), notification(40, "resolved")], True, "after 30 s", id="in time"),
        pytest.param([notification(1), notification(251, "resolved")], False, "after 241 s", id="late"),
        pytest.param([notification(1)], False, "not resolved", id="still fires"),
        pytest.param([], False, "not resolved", id="never fired"),
        pytest.param([notification(1), notification(5, "resolved")], False, "not resolved", id="resolved before it"),
        pytest.param(
            [notification(1, tier="fast"), notification(2, tier="slow"), notification(30, "resolved", tier="fast")],
            False,
            "not resolved",
            id="another tier still fires",
        ),
        pytest.param(
            [notification(1), notification(20, "resolved"), notification(25)],
            False,
            "not resolved",
            id="fires again after it resolved",
        ),
        pytest.param(
            [notification(1), notification(40, "resolved"), notification(41, "firing", slo="availability")],
            True,
            "after 30 s",
            id="a page for another SLO does not matter",
        ),
    ],
)
def test_every_tier_of_the_page_must_be_resolved_in_time(
    arrivals: Sequence[Notification], passed: bool, result: str
) -> None:
    check = checks.resolved_in_time(arrivals, config_change=10)
    assert (check.passed, check.result) == (passed, result)


@pytest.mark.parametrize(
    "models, passed, result",
    [
        pytest.param(["m"] * 9, True, "1 opened, 8 updates", id="one incident"),
        pytest.param(["a", "b", "c", "d"], False, "4 opened, 0 updates", id="four"),
    ],
)
def test_the_demo_must_not_open_more_than_three_pages(models: Sequence[str], passed: bool, result: str) -> None:
    arrivals = [notification(at, model=model, number=str(at)) for at, model in enumerate(models)]
    check = checks.few_pages_opened(arrivals)
    assert (check.passed, check.result) == (passed, result)


def point(at: float, setting: str = checks.SETTING) -> Sample:
    return Sample({"setting": setting, "old": "False", "new": "True"}, at * 1000)


@pytest.mark.parametrize(
    "points, passed, result",
    [
        pytest.param([point(101.5), point(90, "version")], True, "offset +1.50 s", id="one, among others"),
        pytest.param([point(103)], False, "offset +3.00 s", id="late"),
        pytest.param([point(97)], False, "offset -3.00 s", id="early"),
        pytest.param([point(100), point(100)], False, "2 points", id="two"),
        pytest.param([], False, "0 points", id="none"),
    ],
)
def test_the_config_change_must_be_drawn_once_and_at_its_time(
    points: Sequence[Sample], passed: bool, result: str
) -> None:
    check = checks.config_change_drawn(points, config_change=100)
    assert (check.passed, check.result) == (passed, result)


@pytest.mark.parametrize("after, passed", [(0.95, True), (0.2, False), (None, False)])
def test_goodput_must_recover(after: float | None, passed: bool) -> None:
    assert checks.recovers(goodput(0.05), goodput(after)).passed is passed


def test_the_windows_exclude_the_transitions() -> None:
    windows = checks.Times(load=0, overload=75, config_change=160, stop=280).windows
    assert {name: (window.start, window.end) for name, window in windows.items()} == {
        "baseline": (10, 75),
        "overload": (90, 160),
        "after change": (180, 280),
    }
