"""The board "Flip compare" on a real Prometheus with an hour that is known to the request."""

import json
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest

from compose.prometheus_tools import Tools
from dashboards.audit import Check, Span, checks_of, first_answers
from dashboards.boards.config_change import BOARD
from dashboards.command import GENERATED
from dashboards.interpolation import expand, intervals
from exporters import signals
from exporters.prometheus_api import Prometheus
from tests.support.ports import free_port
from tests.support.prometheus_blocks import prometheus_over

EVERY = 5
FLIP = 1_700_000_000.0
DOWN, UP = FLIP - 9, FLIP + 26
"""The first scrape that finds no engine, and the first one after the restart that finds it again."""

EARLIER, LATER = FLIP - 1000, FLIP + 900
"""Two other flips."""

OF = 'instance="s:1",model="m",class="siso"'

# Growth per second before, while the engine is down, and after; for 20 s after it is up nothing grows.
COUNTERS: dict[str, tuple[float, float, float]] = {
    f'{signals.REQUESTS.name}{{{OF},outcome="ok"}}': (3, 0, 4),
    f'{signals.REQUESTS.name}{{{OF},outcome="client_error"}}': (1, 0, 0),
    f'{signals.REQUESTS.name}{{{OF},outcome="upstream_unreachable"}}': (0, 50, 0),
    f'{signals.SLO_EVENTS.name}{{{OF},slo="ttft"}}': (2, 50, 4),
    f'{signals.SLO_BAD.name}{{{OF},slo="ttft"}}': (1, 50, 0.2),
    f"{signals.GOODPUT_EVENTS.name}{{{OF}}}": (2, 50, 4),
    f"{signals.GOODPUT_REQUESTS.name}{{{OF}}}": (0.5, 0, 3.6),
    f"{signals.PROMPT_TOKENS.name}{{{OF}}}": (300, 0, 300),
    f"{signals.COMPLETION_TOKENS.name}{{{OF}}}": (60, 0, 90),
    f"{signals.CACHED_TOKENS.name}{{{OF}}}": (0, 0, 150),
    **{
        f'{histogram.bucket}{{{OF},le="{le}"}}': growth
        for histogram in (signals.TTFT, signals.QUEUE, signals.TPOT)
        for le, growth in {"1.0": (0.0, 0.0, 2.0), "2.0": (2.0, 0.0, 2.0), "+Inf": (2.0, 50.0, 2.0)}.items()
    },
}
BEFORE_AND_AFTER: dict[str, tuple[float, float, float]] = {
    "Goodput": (0.25, 0.9, 0.65),
    "SLO attainment": (0.5, 0.95, 0.45),
    "Requests offered": (4, 4, 0),
    "TTFT p50": (1.5, 0.5, 0.5 / 1.5 - 1),
    "TTFT p95": (1.95, 0.95, 0.95 / 1.95 - 1),
    "Queue time p95": (1.95, 0.95, 0.95 / 1.95 - 1),
    "TPOT p95": (1.95, 0.95, 0.95 / 1.95 - 1),
    "Client errors": (0.25, 0, -0.25),
    "Tokens": (360, 390, 390 / 360 - 1),
    "Prefix cache hits": (0, 0.5, 0.5),
}


def lines() -> Iterator[str]:
    """All of it in OpenMetrics, from 20 minutes before the flip to 20 minutes after it."""
    families: dict[str, list[str]] = {}
    totals = dict.fromkeys(COUNTERS, 1000.0)
    for step in range(-240, 240):
        at = FLIP + 1 + step * EVERY
        samples = dict(totals)
        down = DOWN <= at < UP
        samples[f'{signals.ENGINE_UP.name}{{instance="s:1",engine="e"}}'] = float(not down)
        samples[f'{signals.IN_FLIGHT.name}{{{OF},phase="waiting"}}'] = 5.0 if at < FLIP else 2.0
        if not down:
            revision = ("a" if at < FLIP else "b") * 12
            samples[f'{signals.ENGINE_CONFIG_INFO.name}{{instance="s:1",engine="e",revision="{revision}"}}'] = 1
        for when, setting in (
            (EARLIER, 'setting="x",old="1",new="2"'),
            (FLIP, 'setting="enable_prefix_caching",old="False",new="True"'),
            (LATER, 'setting="x",old="2",new="1"'),
        ):
            if at >= when:
                samples[f'{signals.ENGINE_CONFIG_CHANGE.name}{{instance="s:1",engine="e",{setting}}}'] = when
        for series, value in samples.items():
            families.setdefault(series.partition("{")[0], []).append(f"{series} {value} {at}\n")
        for series, growth in COUNTERS.items():
            if not UP <= at < UP + 20:
                totals[series] += EVERY * growth[0 if at + EVERY < DOWN else 1 if at < UP else 2]
    return chain.from_iterable(families.values())


@pytest.fixture(scope="module")
def prometheus(tools: Tools) -> Iterator[Prometheus]:
    with prometheus_over(lines(), free_port(), tools) as url:
        yield Prometheus(url)


class Shown:
    """What the board shows of a time; `given` are variables that somebody has chosen."""

    def __init__(self, prometheus: Prometheus, start: float, end: float, **given: str) -> None:
        page = json.loads((GENERATED / BOARD.file_name).read_text(encoding="utf-8"))
        for variable in page["templating"]["list"]:
            if variable["name"] in given:
                variable.update(type="custom", current={"value": given[variable["name"]]})
        self._prometheus = prometheus
        self._span = Span(start, end, EVERY)
        self._checks = list(checks_of(page))
        self.variables = {**self._checks[0].values, **first_answers(self._checks, prometheus, self._span)}

    def of(self, panel: str) -> list[list[tuple[dict[str, str], float]]]:
        """The answers to the panel's queries."""
        return [self._answer(check) for check in self._checks if check.panel == panel]

    def _answer(self, check: Check) -> list[tuple[dict[str, str], float]]:
        values = {**self.variables, **intervals(self._span.seconds, EVERY)}
        asked = {"query": expand(check.expression, values), "time": f"{self._span.end:.3f}"}
        found: list[dict[str, Any]] = self._prometheus.get("/api/v1/query", asked)["result"]
        return [(one["metric"], float(one["value"][1])) for one in found]


@pytest.mark.parametrize(
    "end, given, length",
    [
        pytest.param(FLIP + 800, {}, 600, id="as long as asked for"),
        pytest.param(FLIP + 455, {}, 400, id="the time shown ends"),
        pytest.param(FLIP + 1100, {"flip": f"{FLIP:.0f}", "span": "3600"}, 845, id="another flip after it"),
        pytest.param(FLIP + 1100, {"flip": f"{EARLIER:.0f}", "span": "3600"}, 195, id="the record begins before it"),
    ],
)
def test_windows_are_equal_and_leave_out_the_restart_and_other_flips(
    prometheus: Prometheus, end: float, given: dict[str, str], length: int
) -> None:
    shown = Shown(prometheus, FLIP - 1200, end, **given).variables
    assert shown["length"] == str(length)


def test_the_newest_flip_is_chosen_and_its_windows_end_and_begin_around_the_restart(prometheus: Prometheus) -> None:
    shown = Shown(prometheus, FLIP - 1100, FLIP + 800).variables
    assert [shown[name] for name in ("flip", "before", "after")] == [f"{at:.0f}" for at in (FLIP, FLIP - 10, FLIP + 55)]


def test_without_a_flip_nothing_is_broken_and_nothing_shown(prometheus: Prometheus) -> None:
    shown = Shown(prometheus, FLIP + 200, FLIP + 800)
    assert shown.variables["flip"] == f"{FLIP + 800:.0f}"
    assert [shown.of(panel)[1] for panel in BEFORE_AND_AFTER] == [[]] * len(BEFORE_AND_AFTER)


@pytest.mark.parametrize("panel", BEFORE_AND_AFTER)
def test_before_and_after_are_what_they_were_whatever_happened_between(prometheus: Prometheus, panel: str) -> None:
    answers = Shown(prometheus, FLIP - 1100, FLIP + 800).of(panel)
    assert [{labels["class"] for labels, _ in answer} for answer in answers[:3]] == [{"siso"}] * 3
    assert [value for answer in answers[:3] for _, value in answer] == pytest.approx(BEFORE_AND_AFTER[panel], abs=1e-6)


def test_the_flip_says_what_changed_and_which_revisions_are_compared(prometheus: Prometheus) -> None:
    changed, before, after = Shown(prometheus, FLIP - 1100, FLIP + 800).of("Flip")
    assert changed == [({"setting": "enable_prefix_caching", "old": "False", "new": "True"}, FLIP * 1000)]
    assert before == [({"revision": "a" * 12}, (FLIP - 10) * 1000)]
    assert after == [({"revision": "b" * 12}, (FLIP + 55) * 1000)]


def test_the_side_with_fewer_judged_requests_is_told(prometheus: Prometheus) -> None:
    ((_, judged),) = Shown(prometheus, FLIP - 1100, FLIP + 800).of("Goodput")[3]
    assert judged == pytest.approx(2 * 600)


def test_each_revision_has_the_events_of_its_own_time(prometheus: Prometheus) -> None:
    shown = Shown(prometheus, FLIP - 1100, FLIP + 1100)
    (attainment,) = shown.of("Attainment by revision")
    found = {(labels["class"], labels["revision"]): value for labels, value in attainment}
    wanted = {("ttft siso", "a" * 12): 0.5, ("ttft siso", "b" * 12): 0.95}
    assert found == pytest.approx(wanted)
    (events,) = shown.of("Events by revision")
    counts = {labels["revision"]: value for labels, value in events}
    assert counts == pytest.approx({"a" * 12: 2 * 1100, "b" * 12: 4 * 1050}, rel=0.05)
