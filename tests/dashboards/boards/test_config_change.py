"""The dashboard "Config change" over a real Prometheus with given samples."""

import json
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest

from compose.programs.tools import Tools
from dashboards.boards.config_change import BOARD
from dashboards.command import GENERATED
from dashboards.live.audit import query_result_values
from dashboards.live.interpolation import expand, intervals
from dashboards.live.reader import Check, TimeRange, checks_of
from dashboards.preview.frames.frame import Field, Frame, Kind
from dashboards.preview.frames.transformations import transform
from dashboards.queries.variables import VARIABLES
from exporters.analysis.prometheus_api import Prometheus
from exporters.vocabulary import signals
from exporters.vocabulary.slo_file import SHIPPED, load
from tests.dashboards.calculated_columns import calculated_column
from tests.dashboards.dashboard_files import page_of, panel
from tests.support.ports import free_port
from tests.support.prometheus_blocks import prometheus_over
from tests.support.promtool import Case, Promtool

EVERY = 5
CHANGE = 1_700_000_000.0
DOWN, UP = CHANGE - 9, CHANGE + 26
"""The first scrape with the engine down, and the first scrape with it up again."""

EARLIER, LATER = CHANGE - 1000, CHANGE + 900
"""Two other config changes."""

OF = 'instance="s:1",model="m",class="siso"'

# Growth per second before, during and after the restart; counters do not grow in the first 20 s after it.
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
    f'{signals.ENGINE_PREEMPTIONS.name}{{instance="s:1",engine="e",rank="0",model="m"}}': (0.05, 0, 0.02),
    **{
        f'{histogram.bucket}{{{OF},le="{le}"}}': growth
        for histogram in (signals.TTFT, signals.QUEUE, signals.TPOT, signals.INTER_CHUNK, signals.DURATION)
        for le, growth in {"1.0": (0.0, 0.0, 2.0), "2.0": (2.0, 0.0, 2.0), "+Inf": (2.0, 50.0, 2.0)}.items()
    },
}
# the change of a share is in percentage points, that of other values is relative to the value before
BEFORE_AND_AFTER: dict[str, tuple[float, float, float]] = {
    "Goodput": (0.25, 0.9, 65),
    "SLO attainment": (0.5, 0.95, 45),
    "Requests offered": (4, 4, 0),
    "TTFT p50": (1.5, 0.5, 0.5 / 1.5 - 1),
    "TTFT p95": (1.95, 0.95, 0.95 / 1.95 - 1),
    "Queue time p95": (1.95, 0.95, 0.95 / 1.95 - 1),
    "TPOT p95": (1.95, 0.95, 0.95 / 1.95 - 1),
    "ITL p95": (1.95, 0.95, 0.95 / 1.95 - 1),
    "E2E p95": (1.95, 0.95, 0.95 / 1.95 - 1),
    "Client errors": (0.25, 0, -25),
    "Output tokens per second": (60, 90, 0.5),
    "Prefix cache hits": (0, 0.5, 50),
    "Preemptions": (0.05 * 600, 0.02 * 600, -0.6),
}

SIGNIFICANT = {"Goodput", "SLO attainment"} | {each for each in BEFORE_AND_AFTER if each.endswith(("p50", "p95"))}
"""The figures whose change has a query, because it is shown only if it is significant; Grafana computes the others."""


def lines() -> Iterator[str]:
    """The samples as OpenMetrics, from 20 minutes before to 20 minutes after the config change."""
    families: dict[str, list[str]] = {}
    totals = dict.fromkeys(COUNTERS, 1000.0)
    for step in range(-240, 240):
        at = CHANGE + 1 + step * EVERY
        samples = dict(totals)
        down = DOWN <= at < UP
        samples[f'{signals.ENGINE_UP.name}{{instance="s:1",engine="e"}}'] = float(not down)
        samples[f'{signals.IN_FLIGHT.name}{{{OF},phase="waiting"}}'] = 5.0 if at < CHANGE else 2.0
        if not down:
            revision = ("a" if at < CHANGE else "b") * 12
            samples[f'{signals.ENGINE_CONFIG_INFO.name}{{instance="s:1",engine="e",revision="{revision}"}}'] = 1
        for when, setting in (
            (EARLIER, 'setting="x",old="1",new="2"'),
            (CHANGE, 'setting="enable_prefix_caching",old="False",new="True"'),
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


class EvaluatedBoard:
    """The dashboard evaluated over a time range; `selection` has values of variables."""

    def __init__(self, prometheus: Prometheus, start: float, end: float, **selection: str) -> None:
        page = json.loads((GENERATED / BOARD.file_name).read_text(encoding="utf-8"))
        for variable in page["templating"]["list"]:
            if variable["name"] in selection:
                variable.update(type="custom", current={"value": selection[variable["name"]]})
        self._prometheus = prometheus
        self._span = TimeRange(start, end, EVERY)
        self._checks = list(checks_of(page))
        self.variables = {**self._checks[0].values, **query_result_values(self._checks, prometheus, self._span)}

    def results(self, panel: str) -> list[list[tuple[dict[str, str], float]]]:
        """The results of the panel's queries, except for the one that only sorts the rows."""
        return [
            self._result(check)
            for check in self._checks
            if check.panel == panel and "$class_order" not in check.expression
        ]

    def _result(self, check: Check) -> list[tuple[dict[str, str], float]]:
        values = {**self.variables, **intervals(self._span.seconds, EVERY)}
        parameters = {"query": expand(check.expression, values), "time": f"{self._span.end:.3f}"}
        rows: list[dict[str, Any]] = self._prometheus.get("/api/v1/query", parameters)["result"]
        return [(one["metric"], float(one["value"][1])) for one in rows]


@pytest.mark.parametrize(
    "end, selection, length",
    [
        pytest.param(CHANGE + 800, {}, 600, id="as selected"),
        pytest.param(CHANGE + 455, {}, 400, id="cut by the time range"),
        pytest.param(CHANGE + 1100, {"change": f"{CHANGE:.0f}", "span": "3600"}, 845, id="cut by the next one"),
        pytest.param(CHANGE + 1100, {"change": f"{EARLIER:.0f}", "span": "3600"}, 195, id="cut by the first sample"),
    ],
)
def test_windows_are_equal_and_leave_out_the_restart_and_other_config_changes(
    prometheus: Prometheus, end: float, selection: dict[str, str], length: int
) -> None:
    board = EvaluatedBoard(prometheus, CHANGE - 1200, end, **selection).variables
    assert board["length"] == str(length)


def test_the_newest_config_change_is_selected_and_the_windows_leave_out_the_restart(prometheus: Prometheus) -> None:
    board = EvaluatedBoard(prometheus, CHANGE - 1100, CHANGE + 800).variables
    assert [board[name] for name in ("change", "before", "after")] == [
        f"{at:.0f}" for at in (CHANGE, CHANGE - 10, CHANGE + 55)
    ]


@pytest.mark.parametrize(
    "outage, before",
    [
        # the first failed scrape is at 9000 s
        pytest.param(600, 8995, id="to 5 s"),
        pytest.param(5400, 8940, id="to a minute, if it is longer than an hour"),
    ],
)
def test_the_window_before_ends_before_an_outage_of_hours(promtool: Promtool, outage: int, before: int) -> None:
    (query,) = [each["query"] for each in page_of(BOARD)["templating"]["list"] if each["name"] == "before"]
    change, labels = 9000 + outage, 'instance="s:1",engine="e"'
    setting = f'{signals.ENGINE_CONFIG_CHANGE.name}{{{labels},setting="x",old="1",new="2"}}'
    series = {
        f"{signals.ENGINE_UP.name}{{{labels}}}": f"1x{9000 // 15 - 1} 0+0x{outage // 15 + 5} 1x100",
        setting: f"_x{change // 15} {change}x100",
    }
    everything: dict[str, str] = dict.fromkeys(map(str, VARIABLES), ".*")
    values = {"change": f"{change}", "first": f"{change}", "changed": "s:1", "__range": "6h"}
    text = expand(query["query"].removeprefix("query_result(").removesuffix(")"), everything | values)
    promtool.test([Case(load(SHIPPED), series, 15).expect(change + 300, f"vector({text})", {"{}": before})])


def test_without_a_config_change_every_query_is_valid_and_empty(prometheus: Prometheus) -> None:
    board = EvaluatedBoard(prometheus, CHANGE + 200, CHANGE + 800)
    assert board.variables["change"] == f"{CHANGE + 800:.0f}"
    results = [result for figure in BEFORE_AND_AFTER for result in board.results(figure)]
    assert results == [[]] * len(results)


@pytest.mark.parametrize("figure", BEFORE_AND_AFTER)
def test_before_and_after_do_not_depend_on_the_time_between(prometheus: Prometheus, figure: str) -> None:
    results = EvaluatedBoard(prometheus, CHANGE - 1100, CHANGE + 800).results(figure)
    table = panel(page_of(BOARD), figure)
    table["targets"] = [each for each in table["targets"] if "$class_order" not in each["expr"]]
    if figure not in SIGNIFICANT:
        results.append(calculated_column(table, "Change", results))
    label, row = ("engine", "e") if figure == "Preemptions" else ("class", "siso")
    assert [{labels[label] for labels, _ in result} for result in results[:3]] == [{row}] * 3
    assert [value for result in results[:3] for _, value in result] == pytest.approx(BEFORE_AND_AFTER[figure], abs=1e-6)


def test_the_panel_shows_changed_settings_and_compared_revisions(prometheus: Prometheus) -> None:
    (events,) = EvaluatedBoard(prometheus, CHANGE - 1100, CHANGE + 800).results("Config change")
    assert {labels["setting"]: at / 1000 - CHANGE for labels, at in events} == {
        f"revision {'a' * 12} until": -10,
        "enable_prefix_caching: False → True": 0,
        f"revision {'b' * 12} from": 55,
    }


def test_the_lower_number_of_judged_requests_is_shown(prometheus: Prometheus) -> None:
    ((_, judged),) = EvaluatedBoard(prometheus, CHANGE - 1100, CHANGE + 800).results("Goodput")[3]
    assert judged == pytest.approx(2 * 600)


def test_each_revision_has_its_start(prometheus: Prometheus) -> None:
    board = EvaluatedBoard(prometheus, CHANGE - 1100, CHANGE + 1100)
    for title in ("Attainment by revision", "Events by revision"):
        (result,) = board.results(title)
        starts = {labels["revision"]: float(labels["value"]) for labels, _ in result}
        assert starts["a" * 12] < CHANGE < starts["b" * 12]


def test_each_revision_has_the_events_of_its_time(prometheus: Prometheus) -> None:
    board = EvaluatedBoard(prometheus, CHANGE - 1100, CHANGE + 1100)
    (attainment,) = board.results("Attainment by revision")
    attainment_by_revision = {(labels["class"], labels["revision"]): value for labels, value in attainment}
    expected = {("ttft siso", "a" * 12): 0.5, ("ttft siso", "b" * 12): 0.95}
    assert attainment_by_revision == pytest.approx(expected)
    (events,) = board.results("Events by revision")
    counts = {labels["revision"]: value for labels, value in events}
    assert counts == pytest.approx({"a" * 12: 2 * 1100, "b" * 12: 4 * 1050}, rel=0.05)


@pytest.mark.parametrize("title", ["Goodput", "SLO attainment"])
def test_classes_have_the_order_of_the_slo_file_and_one_without_requests_has_no_row(title: str) -> None:
    """`class_order` has every class; rows of one class are sorted by the other label."""
    table = panel(page_of(BOARD), title)
    order = f"Value #{table['targets'][-1]['refId']}"
    assert "$class_order" in table["targets"][-1]["expr"]
    columns = [
        Field("class", Kind.STRING, ["liso", "siso", "idle", "liso"]),
        *(Field(name, Kind.STRING, ["b", "b", "", "a"]) for name in ("slo", "figure", "engines")),
        Field("Value #A", Kind.NUMBER, [0.0, None, None, 1.0]),
        Field("Value #B", Kind.NUMBER, [None, 0.5, None, 1.0]),
        Field(order, Kind.NUMBER, [2.0, 0.0, 1.0, 2.0]),
    ]
    steps = [each for each in table["transformations"] if each["id"] in {"sortBy", "filterByValue"}]
    (frame,) = transform([Frame("A", tuple(columns))], steps)
    assert [frame.fields[0].values, frame.fields[1].values] == [["siso", "liso", "liso"], ["b", "a", "b"]]
