"""The demo's story as facts: when each thing happened, and whether that is what was promised."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compose.request_log_totals import ClassFigures
from compose.webhook import Notification
from exporters.comparison.comparison_windows import Window
from exporters.prometheus_api import Sample
from exporters.quantities import number
from exporters.signals import Label

PAGE = {"class": "siso", "slo": "ttft", "severity": "page"}
SETTING = "enable_prefix_caching"

PAGE_WITHIN = 150.0
RESOLVED_WITHIN = 240.0
GOODPUT_FALL = 0.30
TOKENS_FALL = 0.20
FLIP_WITHIN = 2.0

# Left out of each window: the first requests of a phase still meet the state that the phase before has left behind.
BASELINE_SETTLE = 10.0
OVERLOAD_SETTLE = 15.0
FLIP_SETTLE = 20.0


@dataclass(frozen=True, slots=True)
class Times:
    """Unix seconds; `flip` is when it was asked for."""

    load: float
    overload: float
    flip: float
    stop: float

    @property
    def windows(self) -> dict[str, Window]:
        """What is compared: with the state that it shows having settled."""
        return {
            "baseline": Window(self.load + BASELINE_SETTLE, self.overload),
            "overload": Window(self.overload + OVERLOAD_SETTLE, self.flip),
            "after flip": Window(self.flip + FLIP_SETTLE, self.stop),
        }


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was promised, what was found, and whether that keeps it."""

    promise: str
    found: str
    kept: bool


def page_arrived(notifications: Sequence[Notification], since: float) -> Notification | None:
    """The first page of the story."""
    return next((each for each in notifications if _is_page(each, "firing") and each.arrived >= since), None)


def resolved_at(notifications: Sequence[Notification], since: float) -> float | None:
    """When the last page of the story was resolved; None while one still fires.

    More than one tier can page for the same SLO, and may do so again in between.
    """
    last: dict[tuple[tuple[str, str], ...], Notification] = {}
    for each in sorted(notifications, key=lambda each: each.arrived):
        if _is_page(each, "firing") or _is_page(each, "resolved"):
            last[tuple(sorted(each.labels.items()))] = each
    if not last or any(each.status != "resolved" for each in last.values()):
        return None
    at = max(each.arrived for each in last.values())
    return at if at >= since else None


def _is_page(notification: Notification, status: str) -> bool:
    return notification.status == status and notification.receiver == "page" and notification.has(**PAGE)


def goodput_falls(baseline: ClassFigures, overload: ClassFigures) -> Check:
    promise = f"{baseline.name} goodput falls by 30 points or more"
    if baseline.goodput is None or overload.goodput is None:
        return Check(promise, "no request was judged in one of the windows", kept=False)
    fall = round(baseline.goodput - overload.goodput, 9)
    found = f"{baseline.goodput:.1%} to {overload.goodput:.1%}: {fall * 100:.0f} points"
    return Check(promise, found, fall >= GOODPUT_FALL)


def tokens_stay(baseline: float, overload: float) -> Check:
    """Tokens/s are the engine's own counters in Prometheus: what it did, whoever still waited for it."""
    promise = "while tokens/s (prompt and completion, engine's counters) fall by less than 20 %"
    if baseline <= 0:
        return Check(promise, "the engine counted no tokens in the baseline", kept=False)
    found = f"{baseline:.0f}/s to {overload:.0f}/s: {overload / baseline - 1:+.0%}"
    return Check(promise, found, overload > baseline * (1 - TOKENS_FALL))


def page_in_time(notifications: Sequence[Notification], overload: float) -> Check:
    wanted = " ".join(f"{key}={value}" for key, value in PAGE.items())
    promise = f"a page with {wanted} arrives within {number(PAGE_WITHIN)} s of the overload"
    page = page_arrived(notifications, overload)
    if page is None:
        others = sorted({f"{each.labels.get('severity')} {each.name}" for each in notifications})
        return Check(promise, f"none; arrived: {', '.join(others) or 'nothing'}", kept=False)
    after = page.arrived - overload
    return Check(promise, f"{page.name} after {after:.0f} s", after <= PAGE_WITHIN)


def resolved_in_time(notifications: Sequence[Notification], flip: float) -> Check:
    promise = f"it is resolved within {number(RESOLVED_WITHIN)} s of the flip"
    at = resolved_at(notifications, flip)
    if at is None:
        return Check(promise, "not resolved", kept=False)
    return Check(promise, f"after {at - flip:.0f} s", at - flip <= RESOLVED_WITHIN)


def flip_drawn(points: Sequence[Sample], flip: float) -> Check:
    """`points`: what the dashboard's annotation query returns, values in unix milliseconds."""
    promise = f"the flip annotation has exactly one point for {SETTING}, within {number(FLIP_WITHIN)} s of the flip"
    ours = [each.value / 1000 for each in points if each.labels.get(Label.SETTING) == SETTING]
    if len(ours) != 1:
        return Check(promise, f"{len(ours)} points", kept=False)
    return Check(promise, f"one, {ours[0] - flip:+.2f} s from it", abs(ours[0] - flip) <= FLIP_WITHIN)


def panels_filled(code: int, last_line: str) -> Check:
    return Check("dashboards audit finds no empty panel", last_line, code == 0)


def recovers(overload: ClassFigures, after: ClassFigures) -> Check:
    """Not a figure anybody promised, but without it the story has no end."""
    promise = f"{overload.name} goodput recovers after the flip"
    if overload.goodput is None or after.goodput is None:
        return Check(promise, "no request was judged in one of the windows", kept=False)
    found = f"{overload.goodput:.1%} to {after.goodput:.1%}"
    return Check(promise, found, after.goodput - overload.goodput >= GOODPUT_FALL)


def of_class(figures: Mapping[str, Sequence[ClassFigures]], window: str, name: str) -> ClassFigures:
    return next(each for each in figures[window] if each.name == name)
