"""Lint rules for every committed dashboard: those of this project, and those of grafana's dashboard-linter that apply.

A test names the linter's rule that it implements; `test_promtool_accepts_every_query` is `target-promql`. Other rules
do not apply: `template-job`, `target-job`, `template-instance`, `target-instance` and `target-required-matchers`
require a scraped target in every query, but an SLO covers a class across all sidecars; `target-logql` and
`target-logql-auto` are for Loki, and no dashboard queries it. The rules in `grafana_rules` are against faults that only
an opened dashboard shows.
"""

import itertools
import json
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from string import ascii_uppercase
from typing import Any

import pytest
from grafana_foundation_sdk.models import units

from alerts.rule_file import rules
from alerts.rules.groups import Recording
from dashboards.boards.board import Board
from dashboards.boards.registry import BOARDS_OF
from dashboards.command import GENERATED
from dashboards.grafana import style
from dashboards.live.reader import MAY_BE_EMPTY, checks_of
from exporters.text.units import parse_duration
from exporters.vocabulary.signals import (
    COST_API_IN,
    COST_API_PER_MILLION,
    COST_GOOD_IN,
    COST_IDLE_IN,
    COST_IN,
    COST_PER_GOOD,
    COST_PER_MILLION,
    COST_TOKENS_IN,
    RECORDED,
    SIGNALS,
    TENANT_BAD_IN,
    TENANT_BURN_RATE,
    TENANT_EVENTS_IN,
    Kind,
    Label,
    LoadOutcome,
    Outcome,
    Phase,
)
from exporters.vocabulary.slo_file import Source
from tests.dashboards.dashboard_files import SHIPPED_SLOS, page_of
from tests.support.dashboard_queries import (
    SERIES,
    call_arguments,
    labels_in,
    labels_made_in,
    matchers_in,
    series_in,
    windows_in,
)

Page = dict[str, Any]
WITHOUT_SIDECAR: list[Page] = [page_of(board) for board in BOARDS_OF[Source.ENGINE]]
PAGES: list[Page] = [
    *(json.loads(path.read_text(encoding="utf-8")) for path in sorted(GENERATED.glob("*.json"))),
    *WITHOUT_SIDECAR,
]
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

UNITS = {value for name, value in vars(units).items() if isinstance(value, str) and not name.startswith("_")} | {
    # the SDK does not list them
    "suffix:x",
    *(style.COUNT, style.PER_SECOND, style.CURRENCY),
    *(style.MILLISECONDS, style.SECONDS, style.MINUTES, style.DAYS),
    # Grafana shows an unknown unit as a suffix
    *(f"{counted}/s" for counted in ("tokens", "errors", "failures", "gaps", "messages", "spans")),
}
PALETTE = {
    *(style.GOOD, style.WARN, style.BAD, style.PLAIN, style.BLUE, style.SKY, style.PINK, style.VIOLET, style.GREY),
    *style.OUTCOME_COLOURS.values(),
    *style.ENGINE_STATE_COLOURS.values(),
    *style.CLASS_COLOURS,
    *style.ANNOTATION_COLOURS.values(),
    *(*style.BLUES, *style.REDS),
    "transparent",
}
LATENCIES = {
    name
    for each in SIGNALS
    if each.kind is Kind.HISTOGRAM and Label.CLASS in each.labels and each.name.endswith("_seconds")
    for name in (each.bucket, each.sum, each.count)
}
"""The times of requests."""

BOUNDED: dict[str, set[str]] = {Label.OUTCOME: {*Outcome, *LoadOutcome}, Label.PHASE: {*Phase}}

WINDOWS = {
    "$__rate_interval",
    "$__range",
    "$__range:$__rate_interval",
    # restarts: a longer step would miss the first one of two
    "$__range:1m",
    # the two windows around a config change
    "${length}s",
    # the time between them
    "${gap}s",
}

OPTIONAL_SERIES = {
    **dict.fromkeys((TENANT_EVENTS_IN, TENANT_BAD_IN, TENANT_BURN_RATE), "per_tenant"),
    **dict.fromkeys(
        (COST_IN, COST_IDLE_IN, COST_TOKENS_IN, COST_GOOD_IN, COST_PER_MILLION, COST_PER_GOOD), "--gpu-hour-price"
    ),
    **dict.fromkeys((COST_API_IN, COST_API_PER_MILLION), "--api-price"),
}
"""Recorded series that need a setting or flag; the description of a panel that shows one must name it."""

FIRST_SCREEN = (900 - 90 + 8) // (30 + 8)
"""Lines of the grid in a window of 1440 x 900: each has 30 px and a gap of 8 px, below Grafana's header of 90 px."""

every = pytest.mark.parametrize("page", PAGES, ids=lambda page: page["uid"])


def panels_of(page: Page) -> Iterator[dict[str, Any]]:
    """The panels without rows and texts; a collapsed row contains its panels."""
    for panel in page["panels"]:
        yield from panels_of(panel) if panel["type"] == "row" else (panel,) if panel["type"] != "text" else ()


def targets_of(page: Page) -> Iterator[dict[str, Any]]:
    for panel in panels_of(page):
        yield from panel["targets"]


def variables_of(page: Page) -> list[dict[str, Any]]:
    return list(page["templating"]["list"])


def values_of(tree: Any, key: str) -> Iterator[Any]:
    """Every value of a key at any depth."""
    if isinstance(tree, dict):
        yield from ([tree[key]] if key in tree else [])
        yield from itertools.chain.from_iterable(values_of(value, key) for value in tree.values())
    elif isinstance(tree, list):
        yield from itertools.chain.from_iterable(values_of(value, key) for value in tree)


def used_in(tree: Any) -> set[str]:
    """The names of variables, without Grafana's built-in ones."""
    names = re.findall(r"\$\{?([A-Za-z]\w*)", json.dumps(tree))
    return {name for name in names if not name.startswith("__")}


@every
def test_every_query_uses_only_declared_series_and_labels(page: Page) -> None:
    for check in checks_of(page):
        values = re.fullmatch(r"label_values\((.*), (\w+)\)", check.expression)
        expression, labels = (values[1], {values[2]}) if values else (check.expression, labels_in(check.expression))
        names = series_in(expression)
        assert names, check
        assert [name for name in names if name not in SERIES] == [], check
        declared = frozenset().union(*(SERIES[name].labels for name in names))
        assert labels <= declared | labels_made_in(expression), check
        for name, matched, _ in matchers_in(expression):
            assert matched in SERIES[name].labels, check


@every
def test_every_matched_value_is_possible_for_the_label(page: Page) -> None:
    for check in checks_of(page):
        for _, label, value in matchers_in(check.expression):
            if label in BOUNDED and "$" not in value:
                assert set(value.split("|")) <= BOUNDED[label], check


@every
def test_every_recorded_series_is_recorded_or_the_description_names_its_flag(page: Page) -> None:
    source = Source.ENGINE if page in WITHOUT_SIDECAR else Source.SIDECAR
    rule_list = [rule for group in rules(replace(SHIPPED_SLOS, source=source)) for rule in group.rules]
    always = {rule.series.name for rule in rule_list if isinstance(rule, Recording)}
    sometimes = {series.name for series in RECORDED} - always
    flags = {series.name: flag for series, flag in OPTIONAL_SERIES.items()}
    for panel in panels_of(page):
        reason = panel["description"].partition(MAY_BE_EMPTY)[2]
        for target in panel["targets"]:
            for name in sometimes.intersection(series_in(target["expr"])):
                assert flags.get(name, f"nothing gives {name}") in reason, panel["title"]


@every
def test_a_legend_names_labels_that_the_query_keeps(page: Page) -> None:
    for target in targets_of(page):
        assert target["legendFormat"], target["expr"]
        labels = (
            labels_in(target["expr"]) | labels_made_in(target["expr"]) or SERIES[series_in(target["expr"])[0]].labels
        )
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels, target["expr"]


@every
def test_only_counters_are_rated_and_before_any_aggregation(page: Page) -> None:
    """`target-counter-agg`."""
    for target in targets_of(page):
        for name in set(series_in(target["expr"])):
            by_pattern = re.escape(f'{{__name__=~"{name.replace(":", "[:_]")}"')
            rated = re.findall(rf"\b(?:rate|irate|increase)\((?:{name}[{{\[]|{by_pattern})", target["expr"])
            expected = series_in(target["expr"]).count(name) if SERIES[name].is_counter else 0
            assert len(rated) == expected, target["expr"]


EVENTS_WITHOUT_A_VALUE = re.compile(
    r'label_replace\(sum by \([^()]*\) \((?:rate|increase)\(\w+\{[^{}]*\}\[[^][]*\]\)\), "le", "\+Inf", "", ""\)'
)
"""A count in the last bucket, as a request without a first token; no other bucket can have it."""


@every
def test_quantiles_are_computed_from_buckets_and_never_aggregated(page: Page) -> None:
    for target in targets_of(page):
        aggregations = r"(?:sum|avg|stddev|quantile|histogram_quantile)(?:_over_time)?"
        for argument in call_arguments(target["expr"], aggregations):
            assert "quantile" not in argument.replace("$quantile", ""), target["expr"]
        with_a_value = EVENTS_WITHOUT_A_VALUE.sub("x_bucket", target["expr"])
        for buckets in call_arguments(with_a_value, "histogram_quantile"):
            assert [name for name in series_in(buckets) if not name.endswith("_bucket")] == [], target["expr"]
            assert "le" in labels_in(buckets), target["expr"]


@every
def test_windows_are_variables(page: Page) -> None:
    """`target-rate-interval`; a total over the time range uses `$__range`."""
    for target in targets_of(page):
        assert set(windows_in(target["expr"])) <= WINDOWS, target["expr"]
        # at the end of the range, it is computed once
        expression = target["expr"].replace("[$__range] @ end()", "")
        assert target["instant"] or "$__range" not in expression, target["expr"]


@every
def test_a_panel_over_latencies_names_the_requests_that_it_has_not(page: Page) -> None:
    for panel in panels_of(page):
        if LATENCIES.intersection(name for target in panel["targets"] for name in series_in(target["expr"])):
            assert re.search(r"Not in |\bexclude[sd]?\b", panel["description"]), panel["title"]


@every
def test_no_step_is_shorter_than_a_scrape(page: Page) -> None:
    """`$__rate_interval` is at least four of the intervals of the panel."""
    for panel in panels_of(page):
        assert parse_duration(panel["interval"], "15s") >= SHIPPED_SLOS.scrape_interval, panel["title"]


@pytest.mark.parametrize("board", BOARDS_OF[Source.SIDECAR], ids=lambda board: board.uid)
def test_steps_follow_the_scrape_interval_of_the_slo_file(board: Board) -> None:
    """Steps of 15 s would draw an incident of half a minute as two points."""
    page = page_of(board, replace(SHIPPED_SLOS, scrape_interval=1.0))
    assert {panel["interval"] for panel in panels_of(page)} <= {"1s", "1m"}


@every
def test_panels_have_title_description_unit_datasource_and_queries(page: Page) -> None:
    """`panel-title-description`, `panel-units`, `panel-datasource`, `panel-no-targets`."""
    for panel in panels_of(page):
        statement, _, reason = panel["description"].partition(MAY_BE_EMPTY)
        assert panel["title"]
        assert "?" not in statement, panel["title"]
        # what is good, and the source
        assert re.search(r" Good: .+ From (?:the|Prometheus)\b", statement), panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        # the reason is the last sentence
        assert ". " not in reason, panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]
        assert panel["targets"], panel["title"]
        for element in (panel, *panel["targets"]):
            assert element["datasource"] == DATASOURCE, panel["title"]


@every
def test_ids_titles_and_ref_ids_are_unique(page: Page) -> None:
    rows = [panel for panel in page["panels"] if panel["type"] == "row"]
    ids = [panel["id"] for panel in (*rows, *panels_of(page))]
    assert len(set(ids)) == len(ids)
    assert 0 not in ids
    titles = [panel["title"] for panel in panels_of(page)]
    assert len(set(titles)) == len(titles)
    for panel in panels_of(page):
        refs = "".join(target["refId"] for target in panel["targets"])
        assert ascii_uppercase.startswith(refs), panel["title"]


@every
def test_panels_stay_on_the_grid_and_never_overlap(page: Page) -> None:
    boxes = [panel["gridPos"] for panel in page["panels"]]
    assert all(box["x"] >= 0 and box["x"] + box["w"] <= 24 for box in boxes)
    for one, other in itertools.combinations(boxes, 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)


@every
def test_a_line_of_panels_fills_the_width(page: Page) -> None:
    lines: dict[int, int] = {}
    for panel in page["panels"]:
        lines[panel["gridPos"]["y"]] = lines.get(panel["gridPos"]["y"], 0) + panel["gridPos"]["w"]
    assert set(lines.values()) == {24}


@every
def test_the_first_row_fits_the_screen(page: Page) -> None:
    rows = [panel["gridPos"]["y"] for panel in page["panels"] if panel["type"] == "row"]
    assert rows[0] == 0
    assert rows[1] <= FIRST_SCREEN


@every
def test_dashboards_are_read_only(page: Page) -> None:
    """`uneditable`."""
    assert page["editable"] is False


@every
def test_the_first_variable_selects_the_datasource(page: Page) -> None:
    """`template-datasource`."""
    first, *others = variables_of(page)
    expected = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    assert expected.items() <= first.items()
    assert "datasource" not in [variable["type"] for variable in others]
    assert [each for each in values_of(page, "datasource") if each != DATASOURCE] == []


@every
def test_variables_are_updated_with_the_time_range(page: Page) -> None:
    """`template-label-promql`, `template-on-time-change-reload`."""
    for variable in variables_of(page):
        if variable["type"] == "query":
            # 2: on time range change
            assert variable["refresh"] == 2, variable["name"]
            assert variable["query"]["query"].startswith(("label_values(", "query_result(")), variable["name"]
            assert variable["definition"] == variable["query"]["query"]


@every
def test_variables_over_labels_start_with_everything_selected(page: Page) -> None:
    for variable in variables_of(page):
        if variable["name"] in set(Label):
            assert variable["multi"], variable["name"]
            assert variable["includeAll"], variable["name"]
            assert variable["allValue"] == ".*", variable["name"]
            assert variable["current"]["value"] == ["$__all"], variable["name"]


@every
def test_declared_variables_are_those_that_queries_use(page: Page) -> None:
    declared = {variable["name"] for variable in variables_of(page)}
    expressions = [target["expr"] for target in targets_of(page)]
    result_variables = [each for each in variables_of(page) if "query_result(" in str(each.get("query"))]
    # every dashboard has the same variables over labels: those of its annotations and queries
    annotations = [each["expr"] for each in page["annotations"]["list"]]
    assert used_in([*expressions, *annotations, *result_variables]) | {"datasource"} == declared
    assert used_in(page) <= declared


@every
def test_a_variable_refers_only_to_earlier_variables(page: Page) -> None:
    before = {"datasource"}
    for variable in variables_of(page):
        assert used_in(variable) <= before, variable["name"]
        before.add(variable["name"])


@every
def test_colours_are_in_the_palette(page: Page) -> None:
    for colour in (each for key in ("color", "fixedColor", "iconColor") for each in values_of(page, key)):
        if isinstance(colour, str):
            assert colour in PALETTE
        else:
            modes = {"fixed", "thresholds", "continuous-BlPu"}
            assert colour.get("mode") in modes or colour.get("scheme") == "Cividis"


def expression(text: str, legend: str = "x") -> Callable[[Page], None]:
    """Replace the first query."""

    def corrupt(page: Page) -> None:
        next(targets_of(page)).update(expr=text, legendFormat=legend, instant=False)

    return corrupt


def panel(**keys: Any) -> Callable[[Page], None]:
    return lambda page: next(panels_of(page)).update(keys)


def variable(which: str, **keys: Any) -> Callable[[Page], None]:
    return lambda page: next(each for each in variables_of(page) if each["name"] == which).update(keys)


BROKEN: list[tuple[Callable[[Page], None], Callable[[Page], Any]]] = [
    (test_every_query_uses_only_declared_series_and_labels, expression("sum (llm_request_total)")),
    (test_every_query_uses_only_declared_series_and_labels, expression('llm_engine_up{tier="x"}')),
    (
        test_every_query_uses_only_declared_series_and_labels,
        variable("model", query={"query": "label_values(llm_engine_up, model)"}),
    ),
    (test_every_matched_value_is_possible_for_the_label, expression('llm_requests_in_flight{phase="wait"}')),
    (
        test_every_recorded_series_is_recorded_or_the_description_names_its_flag,
        expression("llm_cost:money:per_good_request"),
    ),
    (
        test_a_legend_names_labels_that_the_query_keeps,
        expression("sum by (class) (llm_requests_in_flight)", "{{model}}"),
    ),
    (test_only_counters_are_rated_and_before_any_aggregation, expression("rate(sum(llm_requests_total)[5m:1m])")),
    (
        test_only_counters_are_rated_and_before_any_aggregation,
        expression("rate(llm_requests_in_flight[$__rate_interval])"),
    ),
    (
        test_quantiles_are_computed_from_buckets_and_never_aggregated,
        expression(
            "histogram_quantile(0.5, sum by (class, le) (rate(x_bucket[5m]) or "
            'label_replace(rate(llm_requests_total{outcome="ok"}[5m]), "le", "1.0", "", "")))'
        ),
    ),
    (test_windows_are_variables, expression("increase(x[$__range])")),
    (
        test_a_panel_over_latencies_names_the_requests_that_it_has_not,
        expression("rate(llm_time_to_first_token_seconds_bucket[5m])"),
    ),
    (test_no_step_is_shorter_than_a_scrape, panel(interval="1s")),
    (test_panels_have_title_description_unit_datasource_and_queries, panel(description="Requests. Good: few.")),
    (
        test_panels_have_title_description_unit_datasource_and_queries,
        panel(description="Requests. Good: few. From the sidecars. May be empty: no traffic. Few."),
    ),
    (
        test_panels_have_title_description_unit_datasource_and_queries,
        panel(datasource={"type": "prometheus", "uid": "abc"}),
    ),
    (test_ids_titles_and_ref_ids_are_unique, lambda page: page["panels"].append(page["panels"][0])),
    (test_panels_stay_on_the_grid_and_never_overlap, panel(gridPos=dict.fromkeys("xywh", 10))),
    (test_a_line_of_panels_fills_the_width, panel(gridPos=dict.fromkeys("xywh", 1))),
    (
        test_the_first_row_fits_the_screen,
        lambda page: [box.update(y=2 * box["y"] + box["h"]) for box in values_of(page["panels"], "gridPos")],
    ),
    (test_dashboards_are_read_only, lambda page: page.update(editable=True)),
    (test_the_first_variable_selects_the_datasource, variable("datasource", label="Source")),
    (test_variables_are_updated_with_the_time_range, variable("model", refresh=1)),
    (test_variables_over_labels_start_with_everything_selected, variable("model", current={"value": ["org/m"]})),
    (test_declared_variables_are_those_that_queries_use, variable("model", name="tenant")),
    (test_a_variable_refers_only_to_earlier_variables, lambda page: page["templating"]["list"].reverse()),
    (test_colours_are_in_the_palette, variable("model", color="red")),
]
"""A change to a dashboard that the rule must reject."""


@pytest.mark.parametrize("rule, corrupt", BROKEN)
def test_every_rule_rejects_a_broken_dashboard(rule: Callable[[Page], None], corrupt: Callable[[Page], Any]) -> None:
    page = deepcopy(next(page for page in PAGES if page["uid"] == "vllm-slo-overview"))
    rule(page)
    corrupt(page)
    with pytest.raises(AssertionError):
        rule(page)
