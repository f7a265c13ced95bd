"""The first screen: status of each SLO and class, alerts, and offered requests; thresholds of the SLO file."""

from typing import Any

import pytest

from dashboards.boards.board import Board
from dashboards.boards.slo_objective import BOARD as OBJECTIVE
from dashboards.boards.slo_overview import BOARD
from dashboards.live.interpolation import expand
from dashboards.preview.frames.frame import Field, Frame, Kind
from dashboards.preview.frames.transformations import transform
from exporters.vocabulary.slo_file import SHIPPED, SloFile, load, loads
from tests.dashboards.dashboard_files import STRICT_SLOS, expanded_queries, page_of
from tests.dashboards.promql_history import limits, panel
from tests.support.promtool import Case, Pace, Promtool, constant, counter

SPEC = load(SHIPPED)
WATCHDOG = 'ALERTS{alertname="VLLMSLOWatchdog",alertstate="firing",severity="none"}'


def test_thresholds_come_from_the_slo_file() -> None:
    spec = loads(STRICT_SLOS)
    assert limits(panel(BOARD, "Oldest wait now", spec)) == [0.3, 20.0]
    assert limits(panel(BOARD, "Goodput of offered 1 min", spec)) == [0.6, 0.8]
    assert limits(panel(BOARD, "Burn rate", spec)) == [1, 6, 14.4]
    assert ttft_slos(spec) == "fast|slow"


def ttft_slos(spec: SloFile) -> str:
    (variable,) = [each for each in page_of(BOARD, spec)["templating"]["list"] if each["name"] == "ttft_slos"]
    return str(variable["query"])


def test_an_slo_file_without_a_ttft_slo_has_no_ttft_threshold() -> None:
    spec = loads(STRICT_SLOS.replace("signal: ttft_answer", "signal: e2e").replace("signal: ttft", "signal: e2e"))
    assert ttft_slos(spec) == ""
    assert limits(panel(BOARD, "Oldest wait now", spec)) == [20.0]


def test_a_class_without_requests_in_the_range_has_no_totals() -> None:
    totals = panel(BOARD, "Totals in range")
    counts = {
        f"Value #{target['refId']}": target["expr"]
        for target in totals["targets"]
        if target["legendFormat"] in {"Offered", "OK", "Not OK"}
    }
    columns = [Field("class", Kind.STRING, ["siso", "late", "other"])]
    # requests of the class `late` arrived before the range and ended in it
    values: dict[str, list[Any]] = {"Offered": [5.0, 0.0, 0.0], "OK": [4.0, 0.0, None], "Not OK": [1.0, 2.0, 0.0]}
    columns += [Field(name, Kind.NUMBER, each) for name, each in zip(counts, values.values(), strict=True)]
    filters = [each for each in totals["transformations"] if each["id"] == "filterByValue"]
    (frame,) = transform([Frame("A", tuple(columns))], filters)
    assert frame.fields[0].values == ["siso", "late"]


def test_classes_are_sorted_as_in_the_slo_file() -> None:
    (variable,) = [each for each in page_of(BOARD)["templating"]["list"] if each["name"] == "class_order"]
    places = [
        f'label_replace(vector({place}), "class", "{name}", "", "")' for place, name in enumerate(SPEC.class_names)
    ]
    assert variable["query"] == variable["current"]["value"] == " or ".join(places)
    assert (variable["hide"], variable["skipUrlSync"]) == (2, True)


def status_series(pace: Pace, steps: int) -> dict[str, str]:
    """Two sidecars, of which the second one has more bad events."""
    scrapes, of_siso = pace.scrapes(steps), 'class="siso",slo="ttft",tenant="other"'
    return {
        f'llm_slo_{name}_total{{model="m",instance="{instance}",{of_siso}}}': counter((growth, scrapes))
        for instance, name, growth in (
            ("s:1", "events", 100),
            ("s:1", "bad_events", 1),
            ("s:2", "events", 100),
            ("s:2", "bad_events", 3),
        )
    }


def assert_columns(promtool: Promtool, board: Board, title: str, expected: dict[str, dict[str, float]]) -> None:
    """Assert columns of a table, for the two sidecars, after two dozens of steps."""
    pace, steps = Pace(SPEC), 24
    queries, case = expanded_queries(page_of(board), title), Case(SPEC, status_series(pace, steps), pace.step)
    for legend, samples in expected.items():
        scale = 1 if max(samples.values()) > 1e6 else 1e6  # a time in milliseconds has no further digits
        case.expect(pace.seconds(steps), f"round({scale} * (({queries[legend]}) >= 0)) / {scale}", samples)
    promtool.test([case])


SISO = '{slo="ttft",class="siso"}'
LASTS = 45 * 86400
"""Seconds that 60 % of a budget of 30 d last at a burn rate of 0.4."""


def test_the_status_of_an_slo_is_its_attainment_its_budget_and_the_time_at_which_it_is_spent(
    promtool: Promtool,
) -> None:
    others = {
        f'{{class="{name}",instance="All",slo="{slo.name}"}}': 0.0
        for slo in SPEC.slos
        for name in slo.classes
        if (slo.name, name) != ("ttft", "siso")
    }
    expected: dict[str, dict[str, float]] = {
        "Attainment 5m": {SISO: 0.98},
        "Budget left": {SISO: 0.6},
        "Burn 1h": {SISO: 0.4},
        "Gone": {SISO: 1000 * (LASTS + Pace(SPEC).seconds(24))},
        "Worst replica 1 min": {'{class="siso",instance="s:2",slo="ttft"}': 0.03, **others},
    }
    assert_columns(promtool, BOARD, "SLO status", expected)


def test_the_board_of_an_slo_has_the_rest_of_its_state(promtool: Promtool) -> None:
    expected: dict[str, dict[str, float]] = {
        "Attainment 30d": {SISO: 0.98},
        "Budget spent": {SISO: 0.4},
        # two dozens of steps
        "Data 30d": {SISO: round(2 / 720, 6)},
    }
    assert_columns(promtool, OBJECTIVE, "Objective", expected)


def test_the_most_urgent_slo_is_the_first_row_and_one_click_from_its_board_and_its_worst_replica() -> None:
    status = panel(BOARD, "SLO status")
    sorts = [each["options"]["sort"] for each in status["transformations"] if each["id"] == "sortBy"]
    assert sorts[-1] == [{"field": f"Value #{status['targets'][-1]['refId']}"}]
    links = {
        override["matcher"]["options"]: each["value"][0]["url"]
        for override in status["fieldConfig"]["overrides"]
        for each in override["properties"]
        if each["id"] == "links"
    }
    of_class = "&var-class=${__data.fields.class_name}"
    assert links["slo"].startswith(
        f"/d/vllm-slo-objective?${{__url_time_range}}&var-slo=${{__data.fields.slo}}{of_class}&"
    )
    assert links["instance"].startswith(
        f"/d/vllm-slo-fleet?${{__url_time_range}}{of_class}&var-instance=${{__data.fields.instance}}&"
    )


def slo_history(burn_rate: float, budget: float, slo: str, name: str) -> dict[str, str]:
    labels = f'model="m",class="{name}",slo="{slo}"'
    return {
        f'llm_slo:error_budget:burn_rate{{{labels},window="1h"}}': constant(burn_rate, 4),
        f"llm_slo:error_budget:remaining_ratio{{{labels}}}": constant(budget, 4),
    }


def firing(severity: str, slo: str, name: str) -> dict[str, str]:
    labels = f'alertname="LLMErrorBudgetBurn",severity="{severity}",slo="{slo}",class="{name}",model="m"'
    return {
        f'ALERTS{{{labels},alertstate="firing"}}': constant(1, 4),
        f"ALERTS_FOR_STATE{{{labels}}}": constant(30, 4),
    }


@pytest.mark.parametrize(
    "series, sentence, value",
    [
        pytest.param({}, ("0", "", "no page", "no ticket"), 0, id="all is well"),
        pytest.param(
            slo_history(20, 0.5, "ttft", "siso") | slo_history(2, 0.5, "itl", "silo") | firing("page", "ttft", "siso"),
            ("2", "; worst: siso ttft, budget gone in 18 h 00 min", "1 page", "no ticket"),
            1002,
            id="one page, two burn",
        ),
        pytest.param(
            slo_history(100, 0.005, "ttft", "siso"),
            ("1", "; worst: siso ttft, budget gone in 2 min", "no page", "no ticket"),
            1,
            id="minutes",
        ),
        pytest.param(
            slo_history(1.5, 0.9, "ttft", "liso"),
            ("1", "; worst: liso ttft, budget gone in over 4 d", "no page", "no ticket"),
            1,
            id="days",
        ),
        pytest.param(
            slo_history(0, -2, "ttft", "siso") | firing("ticket", "ttft", "siso") | firing("ticket", "ttft", "liso"),
            ("0", "; worst: siso ttft, budget spent", "no page", "2 tickets"),
            2,
            id="overspent, two tickets",
        ),
        pytest.param(
            slo_history(0, -2, "itl", "lilo") | slo_history(20, -1, "ttft", "siso") | firing("page", "ttft", "siso"),
            ("1", "; worst: siso ttft, budget spent", "1 page", "no ticket"),
            1001,
            id="the one that pages is worse than the most overspent",
        ),
    ],
)
def test_the_verdict_counts_what_burns_and_names_the_worst(
    promtool: Promtool, series: dict[str, str], sentence: tuple[str, ...], value: float
) -> None:
    (query,) = expanded_queries(page_of(BOARD), "Verdict").values()
    burning, worst, pages, tickets = sentence
    labels = f'burning="{burning}",pages="{pages}",tickets="{tickets}",total="8"' + (
        f',worst="{worst}"' if worst else ""
    )
    promtool.test([Case(SPEC, {**series, "other": constant(1, 4)}, 15.0).expect(45.0, query, {f"{{{labels}}}": value})])


def test_the_first_screen_has_a_threshold_for_each_class_with_a_ttft_slo(promtool: Promtool) -> None:
    queries = expanded_queries(page_of(BOARD), "TTFT p95")
    case = Case(SPEC, {"other": constant(1, 40)}, 15.0)
    rows = {f'{{class="{name}",slo="ttft"}}': 5.0 for name in ("siso", "liso")}
    promtool.test([case.expect(600.0, queries["{{class}} {{slo}}"], rows)])


def firing_alerts(promtool: Promtool, series: dict[str, str], expected: dict[str, float], watchdog: str = "") -> None:
    (query,) = expanded_queries(page_of(BOARD), "Firing alerts").values()
    query = query.replace('alertname="VLLMSLOWatchdog"', f'alertname="VLLMSLOWatchdog"{watchdog}')
    case = Case(SPEC, {**series, "other": constant(1, 4)}, 15.0)
    promtool.test([case.expect(60.0, query, expected)])


def test_firing_alerts_are_listed_with_the_time_since_when_they_are_active(promtool: Promtool) -> None:
    labels = 'alertname="LLMErrorBudgetBurn",severity="page",slo="ttft",class="siso",model="m"'
    pending = 'alertname="LLMEngineDown",severity="page",instance="s:1"'
    series = {
        WATCHDOG: constant(1, 4),
        f'ALERTS{{{labels},alertstate="firing"}}': constant(1, 4),
        f"ALERTS_FOR_STATE{{{labels}}}": constant(30, 4),
        f'ALERTS{{{pending},alertstate="pending"}}': constant(1, 4),
        f"ALERTS_FOR_STATE{{{pending}}}": constant(45, 4),
    }
    row = '{alertname="LLMErrorBudgetBurn",class="siso",severity="page",slo="ttft"}'
    firing_alerts(promtool, series, {row: 30000})


def test_a_row_states_that_no_alert_fires(promtool: Promtool) -> None:
    firing_alerts(promtool, {WATCHDOG: constant(1, 4)}, {'{severity="none"}': 0})


def test_rules_that_are_not_evaluated_do_not_look_healthy(promtool: Promtool) -> None:
    row = '{alertname="VLLMSLOWatchdog",severity="no data"}'
    # promtool evaluates the rules, but none with this label
    firing_alerts(promtool, {}, {row: 0}, watchdog=',cluster="gone"')


def test_requests_that_fail_together_do_not_count_as_offered(promtool: Promtool) -> None:
    """One request arrives per second; 150 of them wait and then fail at a restart."""
    (query,) = expanded_queries(page_of(BOARD), "Throughput: requests offered").values()
    series = {
        'llm_requests_total{class="siso",model="m",outcome="upstream_error"}': "1000x11 1165x9",
        'llm_requests_in_flight{class="siso",model="m",phase="waiting"}': "0+15x11 15+15x9",
    }
    case = Case(SPEC, series, 15.0)
    for at in (180.0, 195.0, 210.0):
        case.expect(at, f"round({query})", {'{class="siso"}': 1})
    promtool.test([case])


def test_the_first_window_of_the_burn_rate_is_the_long_window_of_the_fast_page(promtool: Promtool) -> None:
    (variable,) = [each for each in page_of(BOARD)["templating"]["list"] if each["name"] == "burn_window"]
    expression = variable["definition"].removeprefix("query_result(").removesuffix(")")
    first = expand(f"bottomk(1, {expression.removeprefix('sort')})", {})
    case = Case(SPEC, {"other": constant(1, 40)}, 15.0)
    promtool.test([case.expect(600.0, first, {'{window="1h"}': 0})])
