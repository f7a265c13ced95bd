"""A missed evaluation, or a Prometheus that is down, loses at most the events of its own time."""

from collections.abc import Iterable

import pytest

from exporters.text.units import spell_duration
from tests.support.promtool import Case, Pace, Promtool

LABELS = 'class="siso",model="org/m",slo="ttft"'
QUIET, BUSY = 3, 38
"""Steps without events at the start and the end, and with events between them."""
GROWTH = 7
EVALUATED = 'rules{are="evaluated"}'
BEGUN = [14, 19, 21, 22, 23, 24]
"""The first missed step; a dozen is full at steps 11, 23 and 35."""


def outage(pace: Pace, first_step: int, missed: int, *, down: bool) -> tuple[dict[str, str], float, float]:
    """Counters, and their growth while these steps were not evaluated, and altogether.

    Nothing is scraped either while Prometheus is `down`. It begins and ends in the middle of a step, so that a part of
    a step is scraped and not counted yet.
    """
    growth = [0] * pace.scrapes(QUIET) + [GROWTH] * pace.scrapes(BUSY) + [0] * pace.scrapes(QUIET)
    values = [1000.0]
    for each in growth:
        values.append(values[-1] + each)
    first, last = pace.scrapes(first_step - 0.4), pace.scrapes(first_step + missed - 0.6)

    def text(scraped: Iterable[float]) -> str:
        return " ".join("_" if down and first <= at <= last else f"{value:g}" for at, value in enumerate(scraped))

    series = {f'llm_slo_{kind}_total{{{LABELS},tenant="other"}}': text(values) for kind in ("events", "bad_events")}
    series[EVALUATED] = " ".join("0" if first <= at <= last else "1" for at in range(len(values)))
    return series, values[last + 1] - values[first - 1], values[-1] - values[0]


def counted(pace: Pace, series: dict[str, str], least: float, most: float) -> Case:
    """Expects a count of the period within these limits, after the last dozen and in it."""
    window = f'window="{spell_duration(pace.spec.period)}"'
    count = f"llm_slo:events:increase{{{window}}}"
    case = Case(pace.spec, series, pace.step)
    within = f"{count} >= bool {least} == bool 1 and {count} <= {most}"
    return case.expect(pace.seconds(QUIET + BUSY + 2), within, {f"{{{LABELS},{window}}}": 1})


@pytest.mark.parametrize("down", [False, True], ids=["missed evaluations", "Prometheus is down"])
@pytest.mark.parametrize("missed", [1, 2, 5, 10])
def test_every_event_is_counted_if_less_than_a_dozen_steps_are_missed(
    promtool: Promtool, pace: Pace, missed: int, down: bool
) -> None:
    cases = []
    for first in BEGUN:
        series, _, grown = outage(pace, first, missed, down=down)
        cases.append(counted(pace, series, grown - 0.1, grown + 0.1))
    promtool.test(cases, condition=f"{EVALUATED} == 1")


@pytest.mark.parametrize("missed", [11, 12, 15])
def test_a_longer_outage_loses_its_own_events_and_at_most_those_of_a_step(
    promtool: Promtool, pace: Pace, missed: int
) -> None:
    cases = []
    for first in BEGUN:
        series, lost, grown = outage(pace, first, missed, down=True)
        cases.append(counted(pace, series, grown - lost - GROWTH * pace.scrapes(1), grown))
    promtool.test(cases, condition=f"{EVALUATED} == 1")
