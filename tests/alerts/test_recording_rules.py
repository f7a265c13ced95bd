"""Recorded counts add up, whatever the traffic does."""

import pytest

from alerts.rule_file import render
from exporters.quantities import spell_duration
from exporters.slos import load
from tests.support.promtool import ROOT, Case, Pace, Promtool, counter

SHIPPED = load(ROOT / "alerts/slos.yaml")
LABELS = 'class="siso",model="org/m",slo="ttft"'


def test_promtool_takes_the_rules_of_both_files(promtool: Promtool, pace: Pace) -> None:
    promtool.check(render(pace.spec))


def test_the_budget_weighs_by_traffic_where_a_mean_of_ratios_would_be_far_off(promtool: Promtool) -> None:
    """An hour busy at 0 % errors, then an hour at 2 % of that traffic with half of it bad: truly 0.0098."""
    pace = Pace(SHIPPED)
    spent = f'llm_slo:error_ratio{{{LABELS},window="{spell_duration(SHIPPED.period)}"}}'
    series = pace.slo_events((2, 0, 0), (12, 600, 0), (12, 12, 0.5), (4, 0, 0))
    true = (240 * 12 * 0.5 * 12 / 12) / (240 * 600 + 240 * 12)
    assert true == pytest.approx(0.0098, rel=0.01)
    at = pace.seconds(29)
    promtool.test(
        [
            Case(SHIPPED, series, pace.step)
            .expect(
                at,
                f"abs({spent} / {true} - 1) < bool 0.05",
                {"{" + LABELS + f', window="{spell_duration(SHIPPED.period)}"}}': 1},
            )
            .expect(at, f"abs(1 - llm_slo:budget_remaining_ratio - {true / 0.05}) < bool 0.01", {"{" + LABELS + "}": 1})
        ]
    )


def test_steps_chain_so_that_every_event_is_in_exactly_one(promtool: Promtool, pace: Pace) -> None:
    """Bursts at odd moments: the period's count is what the counter has grown by."""
    scrapes = pace.scrapes(1)
    events = [(0, 2 * scrapes), (7, 1), (0, scrapes // 2), (100, 1), (0, 3 * scrapes), (1, scrapes), (0, 3 * scrapes)]
    grown = sum(growth * count for growth, count in events)
    period = spell_duration(pace.spec.period)
    series = pace.slo_event_runs(events, [(0, 11 * scrapes)])
    at = pace.seconds(11)
    promtool.test(
        [
            Case(pace.spec, series, pace.step).expect(
                at,
                f'abs(llm_slo:events:increase{{window="{period}"}} - {grown}) < bool 0.01 * {grown}',
                {f'{{{LABELS}, window="{period}"}}': 1},
            )
        ]
    )


def test_a_counter_that_starts_again_loses_no_more_than_what_was_not_scraped(promtool: Promtool, pace: Pace) -> None:
    n = pace.scrapes(12)
    before, after = counter((10, n), start=1000), counter((10, n), start=0)
    series = {f'llm_slo_events_total{{{LABELS},tenant="other"}}': f"{before} {after}"}
    series[f'llm_slo_bad_events_total{{{LABELS},tenant="other"}}'] = f"{before} {after}"
    period = spell_duration(pace.spec.period)
    promtool.test(
        [
            Case(pace.spec, series, pace.step).expect(
                pace.seconds(24),
                f'abs(llm_slo:events:increase{{window="{period}"}} / {20 * n} - 1) < bool 0.03',
                {f'{{{LABELS}, window="{period}"}}': 1},
            )
        ]
    )


def test_a_series_that_is_born_is_off_by_no_more_than_one_scrape_brings(promtool: Promtool, pace: Pace) -> None:
    """Whenever in a step that is; all that comes later is counted exactly."""
    steps, growth, births = 6, 7, range(pace.scrapes(1))
    series = {}
    for born in births:
        for name in ("llm_slo_events_total", "llm_slo_bad_events_total"):
            late = f"_x{born} " if born else ""
            values = late + counter((growth, pace.scrapes(steps) - born))
            series[f'{name}{{model="{born}",class="siso",slo="ttft",tenant="other"}}'] = values
    case = Case(pace.spec, series, pace.step)
    period = spell_duration(pace.spec.period)
    for born in births:
        true = growth * (pace.scrapes(steps) - 1 - born)  # a scrape is counted one scrape later
        off = f'abs(llm_slo:events:increase{{model="{born}",window="{period}"}} - {true})'
        case.expect(pace.seconds(steps), f"count({off} <= {growth})", {"{}": 1})
    promtool.test([case])


@pytest.mark.parametrize("gone", [2, 7, 11, 12, 13])
def test_a_sidecar_that_is_away_takes_no_count_along(promtool: Promtool, pace: Pace, gone: int) -> None:
    """Whether it goes in the middle of a dozen of steps or with its last; looked at every step for two dozens."""
    n = pace.scrapes(gone)
    series = pace.slo_event_runs([(10, n)], [(10, n)])
    period = spell_duration(pace.spec.period)
    case = Case(pace.spec, series, pace.step)
    for step in range(gone + 2, gone + 26):
        off = f'abs(llm_slo:events:increase{{window="{period}"}} / {10 * n} - 1)'
        case.expect(pace.seconds(step), f"count({off} < 0.1)", {"{}": 1})
    promtool.test([case])


def test_sidecars_and_tenants_are_added_up(promtool: Promtool, pace: Pace) -> None:
    series = {
        **pace.slo_events((24, 10, 0.1), more=',instance="a:1"'),
        **pace.slo_events((24, 30, 0.3), more=',instance="b:1"'),
    }
    window = spell_duration(12 * pace.step)
    promtool.test(
        [
            Case(pace.spec, series, pace.step).expect(
                pace.seconds(24),
                f'round(llm_slo:error_ratio{{window="{window}"}}, 0.001)',
                {f'{{{LABELS}, window="{window}"}}': 0.25},
            )
        ]
    )


def test_each_sidecar_has_its_requests_and_its_goodput_over_all_classes_and_none_without_traffic(
    promtool: Promtool, pace: Pace
) -> None:
    def count(name: str, growth: float, instance: str, name_of_class: str, more: str = "") -> dict[str, str]:
        labels = f'model="m",class="{name_of_class}",tenant="other",instance="{instance}"{more}'
        return {f"{name}{{{labels}}}": counter((growth, pace.scrapes(10)))}

    series: dict[str, str] = {}
    for instance, name, all_of_them, good in (("s:1", "siso", 8, 4), ("s:1", "lilo", 8, 8), ("s:2", "siso", 0, 0)):
        series |= count("llm_requests_total", all_of_them, instance, name, ',outcome="ok",stream="true"')
        series |= count("llm_goodput_events_total", all_of_them, instance, name)
        series |= count("llm_goodput_requests_total", good, instance, name)
    at, rate = pace.seconds(8), 16 / pace.spec.scrape_interval
    promtool.test(
        [
            Case(pace.spec, series, pace.step)
            .expect(at, "llm_instance:goodput_ratio", {'llm_instance:goodput_ratio{instance="s:1"}': 0.75})
            .expect(
                at,
                f"abs(llm_instance:requests_per_second - {rate}) < bool 0.01",
                {'{instance="s:1"}': 1, '{instance="s:2"}': 0},
            )
        ]
    )


def test_without_traffic_ratios_are_absent_and_never_nan(promtool: Promtool, pace: Pace) -> None:
    quiet = pace.slo_events((40, 0, 0), start=0)
    quiet |= {
        f'llm_goodput_{kind}_total{{model="org/m",class="siso",tenant="other"}}': "0x100000"
        for kind in ("events", "requests")
    }
    at = pace.seconds(40)
    names = ("llm_slo:error_ratio", "llm_slo:burn_rate", "llm_goodput:ratio", "llm_slo:budget_remaining_ratio")
    case = Case(pace.spec, quiet, pace.step)
    for name in names:
        case.expect(at, name, {})
    promtool.test([case])


def test_objectives_and_thresholds_are_series_for_panels_to_draw(promtool: Promtool, pace: Pace) -> None:
    case = Case(pace.spec, {}, pace.step)
    case.expect(
        pace.seconds(2),
        "llm_slo:threshold_seconds{slo='itl'}",
        {
            'llm_slo:threshold_seconds{class="silo", slo="itl"}': 0.25,
            'llm_slo:threshold_seconds{class="lilo", slo="itl"}': 0.25,
        },
    )
    case.expect(
        pace.seconds(2),
        "llm_slo:objective_ratio{slo='ttft',class='siso'}",
        {
            'llm_slo:objective_ratio{class="siso", slo="ttft"}': 0.95,
        },
    )
    promtool.test([case])


def test_the_committed_rules_are_what_the_slo_file_gives() -> None:
    committed = ROOT / "alerts/generated/rules.yaml"
    assert committed.read_text() == render(SHIPPED), "run: make generate"
