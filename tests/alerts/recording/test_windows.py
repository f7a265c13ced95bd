"""Recorded counts equal the increase of the counters, for any traffic."""

import re

import pytest

from alerts.rule_file import render
from exporters.text.units import spell_duration
from exporters.vocabulary.signals import RECORDED
from exporters.vocabulary.slo_file import SloFile, load
from tests.support.promtool import ROOT, Case, Pace, Promtool, counter

SHIPPED = load(ROOT / "alerts/slos.yaml")
LABELS = 'class="siso",model="org/m",slo="ttft"'


def test_promtool_accepts_the_rules_of_both_files(promtool: Promtool, spec: SloFile) -> None:
    promtool.check(render(spec))


def test_every_event_is_in_exactly_one_step(promtool: Promtool, pace: Pace) -> None:
    """Irregular bursts: the count of the period is the growth of the counter."""
    scrapes = pace.scrapes(1)
    events = [(0, 2 * scrapes), (7, 1), (0, scrapes // 2), (100, 1), (0, 3 * scrapes), (1, scrapes), (0, 3 * scrapes)]
    grown = sum(growth * count for growth, count in events)
    period = spell_duration(pace.spec.period)
    series = pace.slo_event_runs(events, [(0, 11 * scrapes)])
    off = f'abs(llm_slo:events:increase{{window="{period}"}} - {grown}) < bool 0.01 * {grown}'
    case = Case(pace.spec, series, pace.step)
    promtool.test([case.expect(pace.seconds(11), off, {f'{{{LABELS}, window="{period}"}}': 1})])


def test_a_new_series_is_miscounted_by_at_most_one_scrape(promtool: Promtool, pace: Pace) -> None:
    """At any moment of a step; later growth is counted exactly."""
    steps, growth, starts = 6, 7, range(pace.scrapes(1))
    series = {}
    for start in starts:
        for name in ("llm_slo_events_total", "llm_slo_bad_events_total"):
            late = f"_x{start} " if start else ""
            values = late + counter((growth, pace.scrapes(steps) - start))
            series[f'{name}{{model="{start}",class="siso",slo="ttft",tenant="other"}}'] = values
    case = Case(pace.spec, series, pace.step)
    period = spell_duration(pace.spec.period)
    for start in starts:
        # A scrape is counted one scrape later.
        expected = growth * (pace.scrapes(steps) - 1 - start)
        off = f'abs(llm_slo:events:increase{{model="{start}",window="{period}"}} - {expected})'
        case.expect(pace.seconds(steps), f"count({off} <= {growth})", {"{}": 1})
    promtool.test([case])


@pytest.mark.parametrize("gone", [2, 7, 11, 12, 13])
def test_no_counts_are_lost_while_a_sidecar_is_down(promtool: Promtool, pace: Pace, gone: int) -> None:
    """A stop within a dozen of steps or at its last step; checked at every step of two dozens."""
    n = pace.scrapes(gone)
    series = pace.slo_event_runs([(10, n)], [(10, n)])
    period = spell_duration(pace.spec.period)
    case = Case(pace.spec, series, pace.step)
    for step in range(gone + 2, gone + 26):
        off = f'abs(llm_slo:events:increase{{window="{period}"}} / {10 * n} - 1)'
        case.expect(pace.seconds(step), f"count({off} < 0.1)", {"{}": 1})
    promtool.test([case])


def test_sidecars_and_tenants_are_summed(promtool: Promtool, pace: Pace) -> None:
    series = {
        **pace.slo_events((24, 10, 0.1), more=',instance="a:1"'),
        **pace.slo_events((24, 30, 0.3), more=',instance="b:1"'),
    }
    window = spell_duration(12 * pace.step)
    query = f'round(llm_slo:bad_events:ratio{{window="{window}"}}, 0.001)'
    case = Case(pace.spec, series, pace.step)
    promtool.test([case.expect(pace.seconds(24), query, {f'{{{LABELS}, window="{window}"}}': 0.25})])


def test_each_sidecar_has_its_rate_and_its_goodput_over_all_classes(promtool: Promtool, pace: Pace) -> None:
    def count(name: str, growth: float, instance: str, name_of_class: str, more: str = "") -> dict[str, str]:
        labels = f'model="m",class="{name_of_class}",tenant="other",instance="{instance}"{more}'
        return {f"{name}{{{labels}}}": counter((growth, pace.scrapes(10)))}

    series: dict[str, str] = {}
    for instance, name, all_of_them, good in (("s:1", "siso", 8, 4), ("s:1", "lilo", 8, 8), ("s:2", "siso", 0, 0)):
        series |= count("llm_requests_total", all_of_them, instance, name, ',outcome="ok",stream="true"')
        series |= count("llm_goodput_events_total", all_of_them, instance, name)
        series |= count("llm_goodput_requests_total", good, instance, name)
    at, rate = pace.seconds(8), 16 / pace.spec.scrape_interval
    case = Case(pace.spec, series, pace.step)
    case.expect(at, "llm_instance:good_requests:ratio", {'llm_instance:good_requests:ratio{instance="s:1"}': 0.75})
    is_rate = f"abs(llm_instance:requests:rate - {rate}) < bool 0.01"
    promtool.test([case.expect(at, is_rate, {'{instance="s:1"}': 1, '{instance="s:2"}': 0})])


def test_without_traffic_ratios_are_absent_and_never_nan(promtool: Promtool, pace: Pace) -> None:
    quiet = pace.slo_events((40, 0, 0), start=0)
    quiet |= {
        f'llm_goodput_{kind}_total{{model="org/m",class="siso",tenant="other"}}': "0x100000"
        for kind in ("events", "requests")
    }
    at = pace.seconds(40)
    names = (
        "llm_slo:bad_events:ratio",
        "llm_slo:error_budget:burn_rate",
        "llm_goodput:requests:ratio",
        "llm_slo:error_budget:remaining_ratio",
    )
    case = Case(pace.spec, quiet, pace.step)
    for name in names:
        case.expect(at, name, {})
    promtool.test([case])


def test_objectives_and_thresholds_are_series(promtool: Promtool, pace: Pace) -> None:
    case, threshold = Case(pace.spec, {}, pace.step), 'llm_slo:threshold:seconds{class="%s", slo="itl"}'
    objective = 'llm_slo:objective:ratio{class="siso",slo="ttft"}'
    case.expect(
        pace.seconds(2), 'llm_slo:threshold:seconds{slo="itl"}', {threshold % "silo": 0.25, threshold % "lilo": 0.25}
    )
    promtool.test([case.expect(pace.seconds(2), objective, {objective: 0.95})])


def test_the_committed_rules_are_up_to_date() -> None:
    committed = ROOT / "alerts/generated/rules.yaml"
    assert committed.read_text() == render(SHIPPED), "run: make generate"


def test_recorded_series_are_named_level_metric_operations() -> None:
    for each in RECORDED:
        assert re.fullmatch(r"llm_[a-z_]+:[a-z_]+:[a-z0-9_]+", each.name), each.name
