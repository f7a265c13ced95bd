"""Losses between schedule and goodput, and the outcomes of load generator and sidecar."""

import pytest

from dashboards.boards.load_test import BOARD
from dashboards.live.interpolation import expand
from exporters.vocabulary.signals import SEND_LATE, Outcome
from exporters.vocabulary.slo_file import SHIPPED, load
from tests.dashboards.calculated_columns import calculated_column
from tests.dashboards.promql_history import assert_results, limits, panel
from tests.support.promtool import Case, Promtool

RUN = 'scenario="mixed",run="2026-11-21T{}:00:00Z"'


def per_second(**growth: float) -> dict[str, float]:
    """Growth per scrape, 15 s apart, of one class: `scheduled`, `sent`, `good`, and outcomes of the load generator."""
    series = {
        "scheduled": 'llm_load_scheduled_requests_total{class="siso"}',
        "sent": 'llm_load_sent_requests_total{class="siso"}',
        "good": 'llm_goodput_requests_total{model="m",class="siso",tenant="other"}',
    }
    return {
        series.get(name, f'llm_load_ended_requests_total{{class="siso",outcome="{name}"}}'): 15 * rate
        for name, rate in growth.items()
    }


def at_sidecar(**outcomes: float) -> dict[str, float]:
    return {
        f'llm_requests_total{{model="m",class="siso",tenant="other",stream="true",outcome="{outcome}"}}': 15 * rate
        for outcome, rate in outcomes.items()
    }


def assert_result(promtool: Promtool, series: dict[str, str], query: str, samples: dict[str, float]) -> None:
    """Assert the result of the query after ten minutes."""
    case = Case(load(SHIPPED), series, interval=15)
    variables = {"__range": "10m", "__rate_interval": "1m", "model": ".*", "class": ".*", "instance": ".*"}
    case.expect(600, expand(query, variables), samples)
    promtool.test([case])


def test_each_request_that_is_not_good_is_counted_in_one_loss(promtool: Promtool) -> None:
    grown = per_second(scheduled=10, sent=9, ok=5, timeout=1, not_sent=1, good=4)
    gaps = panel(BOARD, "Lost of what was offered")
    assert [target["legendFormat"] for target in gaps["targets"]] == [
        "scheduled, not sent",
        "sent, not ended",
        "ended, not good",
    ]
    assert_results(promtool, gaps, grown, {"{}": 1}, {"{}": 3}, {"{}": 2})


def test_losses_are_never_negative_while_a_backlog_shrinks(promtool: Promtool) -> None:
    grown = per_second(scheduled=2, sent=2, ok=5, not_sent=0, good=5)
    assert_results(promtool, panel(BOARD, "Lost of what was offered"), grown, {"{}": 0}, {"{}": 0}, {"{}": 0})


def test_outcomes_are_compared_by_the_names_of_the_sidecar(promtool: Promtool) -> None:
    grown = {
        **per_second(ok=5, upstream_unreachable=0.2, timeout=1, cut=0.4, not_sent=7),
        **at_sidecar(ok=5, upstream_unreachable=0, client_abort=1.4, timeout_first_token=0.1),
    }
    load, sidecar, between = (
        {outcome: 300 * rate for outcome, rate in rates.items()}
        for rates in (
            {**dict.fromkeys(map(str, Outcome), 0.0), "ok": 5, "upstream_unreachable": 0.2, "client_abort": 1.4},
            {"ok": 5, "upstream_unreachable": 0, "client_abort": 1.4, "timeout_first_token": 0.1},
            {"ok": 0, "upstream_unreachable": 0.2, "client_abort": 0, "timeout_first_token": -0.1},
        )
    )
    table = panel(BOARD, "Outcomes compared in range")
    by_series = [{f'{{outcome="{outcome}"}}': count for outcome, count in side.items()} for side in (load, sidecar)]
    assert_results(promtool, table, grown, *by_series)
    results = [[({"outcome": outcome}, count) for outcome, count in side.items()] for side in (load, sidecar)]
    assert {row["outcome"]: value for row, value in calculated_column(table, "Between", results)} == between


def test_without_a_load_test_nothing_is_compared(promtool: Promtool) -> None:
    assert_results(
        promtool, panel(BOARD, "Outcomes compared in range"), at_sidecar(ok=1), {}, {f'{{outcome="{Outcome.OK}"}}': 300}
    )


def test_a_run_that_was_killed_has_ended_too(promtool: Promtool) -> None:
    running, ended, killed = (
        f"{{{RUN.format(hour)}{more}}}" for hour, more in (("12", ',configuration="prefix"'), ("11", ""), ("10", ""))
    )
    series = {
        f"llm_load_run_info{running}": "1x40",
        f"llm_load_run_info{ended}": "1x4 0 stale",
        f"llm_load_run_info{killed}": "1x3 stale",
    }
    (target,) = panel(BOARD, "Load tests in range")["targets"]
    assert_result(promtool, series, target["expr"], {running: 1, ended: 0, killed: 0})


def test_configurations_are_compared_over_the_runs_that_name_them(promtool: Promtool) -> None:
    """Base runs for two minutes, and prefix for two after it; another run names none."""
    base, prefix = (f'experiment="seed-000",configuration="{name}"' for name in ("base", "prefix"))
    series = {
        f'llm_load_scheduled_requests_total{{class="siso",{base}}}': "0 20 40 60 80 stale",
        f'llm_load_ended_requests_total{{class="siso",outcome="ok",{base}}}': "0 10 20 30 40 stale",
        f'llm_load_good_requests_total{{class="siso",{base}}}': "0 5 10 15 20 stale",
        f'llm_load_scheduled_requests_total{{class="siso",{prefix}}}': "_ _ _ _ _ 0 20 40 60 80 stale",
        f'llm_load_ended_requests_total{{class="siso",outcome="ok",{prefix}}}': "_ _ _ _ _ 0 20 40 60 80 stale",
        f'llm_load_good_requests_total{{class="siso",{prefix}}}': "_ _ _ _ _ 0 16 32 48 64 stale",
        'llm_load_scheduled_requests_total{class="siso"}': "0+100x40",
        'llm_load_good_requests_total{class="siso"}': "0+100x40",
    }
    scheduled, ok, good = (each["expr"] for each in panel(BOARD, "Configurations in range")["targets"])
    # the increase is extrapolated by half an interval at the end of a run
    assert_result(promtool, series, scheduled, {f"{{{base}}}": 90, f"{{{prefix}}}": 90})
    assert_result(promtool, series, ok, {f"{{{base}}}": 0.5, f"{{{prefix}}}": 1})
    assert_result(promtool, series, good, {f"{{{base}}}": 0.25, f"{{{prefix}}}": 0.8})


def test_the_ttft_of_the_engine_is_that_of_the_configuration_that_runs(promtool: Promtool) -> None:
    first, second = (f'run="{hour}",configuration="{name}"' for hour, name in (("10", "base"), ("11", "prefix")))
    buckets = {"1.0": 0, "2.0": 10, "+Inf": 10}
    series = {
        f"llm_load_run_info{{{first}}}": "1x10 0x4 stale",
        f"llm_load_run_info{{{second}}}": "_x19 1x20",
        **{
            f'llm_time_to_first_token_seconds_bucket{{model="m",class="siso",le="{bound}"}}': f"0+{n}x40"
            for bound, n in buckets.items()
        },
    }
    (target,) = panel(BOARD, "TTFT p95 by configuration")["targets"]
    assert_result(promtool, series, target["expr"], {'{configuration="prefix"}': 1.95})
    # two runs at once do not make the query fail
    both = series | {f"llm_load_run_info{{{first}}}": "1x40"}
    assert_result(promtool, both, target["expr"], {'{configuration="base"}': 1.95, '{configuration="prefix"}': 1.95})


@pytest.mark.parametrize("late, over", [pytest.param(9, 0, id="9 in 1000"), pytest.param(11, 1, id="11 in 1000")])
def test_the_send_lag_exceeds_its_threshold_when_the_report_warns(promtool: Promtool, late: int, over: int) -> None:
    lag = panel(BOARD, "Send lag 1 min")
    assert limits(lag) == limits(panel(BOARD, "Send lag")) == [SEND_LATE]
    counts = {"0.025": 1000 - late, "0.05": 1000 - late, "0.1": 1000, "+Inf": 1000}
    series = {f'llm_load_send_lag_seconds_bucket{{le="{bound}"}}': f"0+{n}x40" for bound, n in counts.items()}
    assert_result(promtool, series, f"({lag['targets'][0]['expr']}) > bool {SEND_LATE}", {"{}": over})


def test_the_good_share_includes_requests_that_were_not_sent(promtool: Promtool) -> None:
    share = panel(BOARD, "Good of offered in range")
    assert limits(share) == [0.9, 0.95]  # of the SLO file
    assert_results(promtool, share, per_second(scheduled=10, sent=5, ok=4, not_sent=5, good=4), {'{class="siso"}': 0.4})
