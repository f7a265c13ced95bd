"""The checks of the demo: each passes on the expected events, and fails on others."""

from collections.abc import Mapping
from dataclasses import replace

from compose.demo import checks
from compose.demo.checks import Check
from compose.demo.incidents import count_incidents
from compose.demo.request_log_totals import ClassFigures
from compose.lab.webhook import Notification
from exporters.analysis.prometheus_api import Sample
from tests.compose.golden_texts import assert_golden

SISO = ClassFigures("siso", 100, 100, 1.0, 0.1, 0.2, 300.0, 200.0, 0.0)
BURN = {"alertname": "LLMErrorBudgetBurn", **checks.PAGE}


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


def golden(name: str, found: Mapping[str, Check]) -> None:
    assert_golden(__file__, name, {case: f"{each.passed}: {each.claim}: {each.result}" for case, each in found.items()})


def test_goodput_must_fall_by_30_points_and_recover() -> None:
    shares = {"30 points": 0.7, "25 points": 0.75, "nothing judged": None}
    found = {name: checks.goodput_falls(SISO, goodput(share)) for name, share in shares.items()}
    for name, after in {"recovers": 0.95, "does not recover": 0.2, "nothing judged after": None}.items():
        found[name] = checks.recovers(goodput(0.05), goodput(after))
    golden("goodput", found)


def test_tokens_must_not_fall_by_a_fifth() -> None:
    cases = {"more work than before": (1000, 2000), "a little less": (1000, 801), "a fifth less": (1000, 800)}
    golden("tokens", {name: checks.tokens_stay(*each) for name, each in (cases | {"no baseline": (0, 800)}).items()})


def test_the_page_must_arrive_in_time_with_its_labels() -> None:
    cases = {
        "in time": [notification(1030)],
        "late": [notification(1151)],
        "before the overload": [notification(990)],
        "class": [notification(1030, **{"class": "liso"})],
        "another SLO": [notification(1030, slo="itl")],
        "ticket": [notification(1030, severity="ticket")],
        "nothing": [],
    }
    golden("page", {name: checks.page_in_time(arrivals, overload=1000) for name, arrivals in cases.items()})


def test_every_tier_of_the_page_must_be_resolved_in_time() -> None:
    tiers = [notification(1, tier="fast"), notification(2, tier="slow"), notification(30, "resolved", tier="fast")]
    cases = {
        "in time": [notification(1), notification(40, "resolved")],
        "late": [notification(1), notification(251, "resolved")],
        "still fires": [notification(1)],
        "never fired": [],
        "resolved before it": [notification(1), notification(5, "resolved")],
        "another tier still fires": tiers,
        "fires again after it resolved": [notification(1), notification(20, "resolved"), notification(25)],
        "another SLO": [notification(1), notification(40, "resolved"), notification(41, slo="availability")],
    }
    golden("resolved", {name: checks.resolved_in_time(arrivals, config_change=10) for name, arrivals in cases.items()})


def test_the_demo_must_not_open_more_than_three_pages() -> None:
    found = {}
    for name, models in {"one incident": "m" * 9, "four": "abcd"}.items():
        arrivals = [notification(at, model=model, number=str(at)) for at, model in enumerate(models)]
        found[name] = checks.few_pages_opened(arrivals)
    golden("pages opened", found)


def point(at: float, setting: str = checks.SETTING) -> Sample:
    return Sample({"setting": setting, "old": "False", "new": "True"}, at * 1000)


def test_the_config_change_must_be_drawn_once_and_at_its_time() -> None:
    cases = {
        "one, among others": [point(101.5), point(90, "version")],
        "late": [point(103)],
        "early": [point(97)],
        "two": [point(100), point(100)],
        "none": [],
    }
    golden("config change", {name: checks.config_change_drawn(each, config_change=100) for name, each in cases.items()})


def test_the_windows_exclude_the_transitions() -> None:
    windows = checks.Times(load=0, overload=75, config_change=160, stop=280).windows
    assert {name: (window.start, window.end) for name, window in windows.items()} == {
        "baseline": (10, 75),
        "overload": (90, 160),
        "after change": (180, 280),
    }


def test_an_incident_is_a_group_that_goes_from_nothing_firing_to_firing() -> None:
    """Groups are by model; others are given."""
    one, other = notification(1, model="m"), notification(1, model="m", slo="x")
    cases = {
        "nothing": [],
        "one": [one],
        "two": [one, other],
        "two models": [one, notification(1, model="n")],
        "joined and partly resolved": [
            one,
            notification(2, model="m", slo="x"),
            notification(9, "resolved", model="m"),
        ],
        "opened again": [one, notification(2, "resolved", model="m"), notification(3, model="m")],
    }
    found = {name: str(count_incidents(arrivals, "page")) for name, arrivals in cases.items()}
    found["another receiver"] = str(count_incidents([one], "ticket"))
    found["other groups"] = str(count_incidents([one, other], "page", ["slo", "model"]))
    assert_golden(__file__, "incidents", found)
