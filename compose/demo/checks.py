"""The checks of the demo: the time of each event, and whether it is as expected."""

from collections.abc import Sequence
from dataclasses import dataclass

from compose.demo.incidents import count_incidents
from compose.demo.request_log_totals import ClassFigures
from compose.lab.webhook import Notification
from exporters.analysis.estimates.windows import Window
from exporters.analysis.prometheus_api import Sample
from exporters.text.units import number
from exporters.vocabulary.signals import Label

PAGE = {"class": "siso", "slo": "ttft", "severity": "page"}
SETTING = "enable_prefix_caching"

PAGE_WITHIN = 150.0
RESOLVED_WITHIN = 240.0
PAGES_OPENED = 3
GOODPUT_FALL = 0.30
TOKENS_FALL = 0.20
ANNOTATION_WITHIN = 2.0

# Seconds excluded from each window, because the previous phase affects the first requests of a phase.
BASELINE_SETTLE = 10.0
OVERLOAD_SETTLE = 15.0
CHANGE_SETTLE = 20.0


@dataclass(frozen=True, slots=True)
class Times:
    """Unix seconds; `config_change` is the time of its request."""

    load: float
    overload: float
    config_change: float
    stop: float

    @property
    def windows(self) -> dict[str, Window]:
        """The windows that are compared, without the transitions between phases."""
        return {
            "baseline": Window(self.load + BASELINE_SETTLE, self.overload),
            "overload": Window(self.overload + OVERLOAD_SETTLE, self.config_change),
            "after change": Window(self.config_change + CHANGE_SETTLE, self.stop),
        }


@dataclass(frozen=True, slots=True)
class Check:
    """A claim of the demo, the measured result, and whether the result confirms the claim."""

    claim: str
    result: str
    passed: bool


def page_arrived(notifications: Sequence[Notification], since: float) -> Notification | None:
    """The first page of the demo."""
    return next((each for each in notifications if _is_page(each, "firing") and each.arrived_at >= since), None)


def resolved_at(notifications: Sequence[Notification], since: float) -> float | None:
    """When the last page of the demo was resolved; None while one fires.

    More than one tier can page for the same SLO, and an alert can fire again.
    """
    last: dict[tuple[tuple[str, str], ...], Notification] = {}
    for each in sorted(notifications, key=lambda each: each.arrived_at):
        if _is_page(each, "firing") or _is_page(each, "resolved"):
            last[tuple(sorted(each.labels.items()))] = each
    if not last or any(each.status != "resolved" for each in last.values()):
        return None
    at = max(each.arrived_at for each in last.values())
    return at if at >= since else None


def _is_page(notification: Notification, status: str) -> bool:
    return notification.status == status and notification.receiver == "page" and notification.has(**PAGE)


def goodput_falls(baseline: ClassFigures, overload: ClassFigures) -> Check:
    claim = f"{baseline.name} goodput falls by 30 points or more"
    if baseline.goodput is None or overload.goodput is None:
        return Check(claim, "no request was judged in one of the windows", passed=False)
    fall = round(baseline.goodput - overload.goodput, 9)
    result = f"{baseline.goodput:.1%} to {overload.goodput:.1%}: {fall * 100:.0f} points"
    return Check(claim, result, fall >= GOODPUT_FALL)


def tokens_stay(baseline: float, overload: float) -> Check:
    """`baseline` and `overload` in tokens/s by the counter of the engine, with those that no client received."""
    claim = "engine output tokens/s fall by less than 20 %"
    if baseline <= 0:
        return Check(claim, "the engine counted no output tokens in the baseline", passed=False)
    result = f"{baseline:.0f}/s to {overload:.0f}/s: {overload / baseline - 1:+.0%}"
    return Check(claim, result, overload > baseline * (1 - TOKENS_FALL))


def page_in_time(notifications: Sequence[Notification], overload: float) -> Check:
    labels = " ".join(f"{key}={value}" for key, value in PAGE.items())
    claim = f"a page with {labels} arrives within {number(PAGE_WITHIN)} s of the overload"
    page = page_arrived(notifications, overload)
    if page is None:
        others = sorted({f"{each.labels.get('severity')} {each.name}" for each in notifications})
        return Check(claim, f"no such page; received: {', '.join(others) or 'none'}", passed=False)
    after = page.arrived_at - overload
    return Check(claim, f"{page.name} after {after:.0f} s", after <= PAGE_WITHIN)


def resolved_in_time(notifications: Sequence[Notification], config_change: float) -> Check:
    claim = f"the page is resolved within {number(RESOLVED_WITHIN)} s of the config change"
    at = resolved_at(notifications, config_change)
    if at is None:
        return Check(claim, "not resolved", passed=False)
    return Check(claim, f"after {at - config_change:.0f} s", at - config_change <= RESOLVED_WITHIN)


def few_pages_opened(notifications: Sequence[Notification]) -> Check:
    """More alerts of the same incident are updates of its page."""
    pages = count_incidents(notifications, "page")
    claim = f"at most {PAGES_OPENED} pages are opened"
    return Check(claim, f"{pages.opened} opened, {pages.updates} updates", pages.opened <= PAGES_OPENED)


def config_change_drawn(points: Sequence[Sample], config_change: float) -> Check:
    """`points` are the result of the dashboard's annotation query, in unix milliseconds."""
    claim = f"one config change annotation for {SETTING}, within {number(ANNOTATION_WITHIN)} s of the change"
    times = [each.value / 1000 for each in points if each.labels.get(Label.SETTING) == SETTING]
    if len(times) != 1:
        return Check(claim, f"{len(times)} points", passed=False)
    return Check(claim, f"offset {times[0] - config_change:+.2f} s", abs(times[0] - config_change) <= ANNOTATION_WITHIN)


def recovers(overload: ClassFigures, after: ClassFigures) -> Check:
    claim = f"{overload.name} goodput recovers after the config change"
    if overload.goodput is None or after.goodput is None:
        return Check(claim, "no request was judged in one of the windows", passed=False)
    result = f"{overload.goodput:.1%} to {after.goodput:.1%}"
    return Check(claim, result, after.goodput - overload.goodput >= GOODPUT_FALL)
