"""The lint rules of this project for every committed dashboard, and those of grafana's dashboard-linter that apply.

Of those, `target-promql` is `test_promtool_accepts_every_query`. Four do not apply: `template-job`, `target-job`,
`template-instance` and `target-instance` require that every query selects the scraped target. Here an SLO covers a
class across all sidecars, and no other job has series of these names; dashboards on the state of sidecars or engines
have `instance`.
"""

import itertools
import json
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from string import ascii_uppercase
from typing import Any

import pytest
from grafana_foundation_sdk.models import units

from alerts.rule_file import rules
from alerts.rule_groups import Recording
from dashboards import style
from dashboards.command import GENERATED
from dashboards.dashboard_reader import checks_of
from exporters.signals import (
    COST_GOOD_IN,
    COST_IDLE_IN,
    COST_IN,
    COST_PER_GOOD,
    COST_PER_MILLION,
    COST_TOKENS_IN,
    RECORDED,
    TENANT_BAD_IN,
    TENANT_BURN_RATE,
    TENANT_EVENTS_IN,
    Label,
    LoadOutcome,
    Outcome,
    Phase,
)
from exporters.slos import SHIPPED, load
from tests.support.dashboard_queries import SERIES, call_arguments, labels_in, matchers_in, series_in, windows_in

Page = dict[str, Any]
PAGES: list[Page] = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(GENERATED.glob("*.json"))]
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

UNITS = {value for name, value in vars(units).items() if isinstance(value, str) and not name.startswith("_")} | {
    "tokens/s"  # Grafana shows an unknown unit as a suffix
}
PALETTE = {
    *(style.GOOD, style.WARN, style.BAD, style.PLAIN, style.BLUE, style.SKY, style.PINK, style.YELLOW, style.GREY),
    *style.OUTCOME_COLOURS.values(),
    *style.CLASS_COLOURS,
    *style.ANNOTATION_COLOURS.values(),
    *(*style.BLUES, *style.REDS),
    "transparent",
}
BOUNDED: dict[str, set[str]] = {Label.OUTCOME: {*Outcome, *LoadOutcome}, Label.PHASE: {*Phase}}

WINDOWS = {
    "$__rate_interval",
    "$__range",
    "$__range:$__rate_interval",
    "${length}s",  # of the two windows around a config change
}

OPTIONAL_SERIES = {
    **dict.fromkeys((TENANT_EVENTS_IN, TENANT_BAD_IN, TENANT_BURN_RATE), "per_tenant"),
    **dict.fromkeys(
        (COST_IN, COST_IDLE_IN, COST_TOKENS_IN, COST_GOOD_IN, COST_PER_MILLION, COST_PER_GOOD), "--gpu-hour-price"
    ),
}
"""Recorded series that need a setting or flag, and which one: a panel that shows one must name it."""

FIRST_SCREEN = (900 - 90 + 8) // (30 + 8)
"""Lines of the grid in a window of 1440 x 900: 30 px and a gap of 8 px each, below about 90 px of Grafana's own."""

every = pytest.mark.parametrize("page", PAGES, ids=lambda page: page["uid"])


def panels_of(page: Page) -> Iterator[dict[str, Any]]:
    """Without rows; a collapsed row keeps its panels inside."""
    for panel in page["panels"]:
        yield from panels_of(panel) if panel["type"] == "row" else (panel,)


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
    """The variables that it names, without Grafana's own."""
    names = re.findall(r"\$\{?([A-Za-z]\w*)", json.dumps(tree))
    return {name for name in names if not name.startswith("__")}


@every
def test_every_query_names_only_series_and_labels_that_are_declared(page: Page) -> None:
    for check in checks_of(page):
        values = re.fullmatch(r"label_values\((.*), (\w+)\)", check.expression)
        expression, labels = (values[1], {values[2]}) if values else (check.expression, labels_in(check.expression))
        names = series_in(expression)
        assert names, check
        assert [name for name in names if name not in SERIES] == [], check
        assert labels <= frozenset().union(*(SERIES[name].labels for name in names)), check
        for name, matched, _ in matchers_in(expression):
            assert matched in SERIES[name].labels, check


@every
def test_every_matched_value_is_one_that_the_label_can_have(page: Page) -> None:
    for check in checks_of(page):
        for _, label, value in matchers_in(check.expression):
            if label in BOUNDED and "$" not in value:
                assert set(value.split("|")) <= BOUNDED[label], check


@every
def test_every_recorded_series_is_recorded_or_the_panel_says_when(page: Page) -> None:
    rule_list = [rule for group in rules(load(SHIPPED)) for rule in group.rules]
    always = {rule.series.name for rule in rule_list if isinstance(rule, Recording)}
    sometimes = {series.name for series in RECORDED} - always
    flags = {series.name: flag for series, flag in OPTIONAL_SERIES.items()}
    for panel in panels_of(page):
        reason = panel["description"].partition(style.MAY_BE_EMPTY)[2]
        for target in panel["targets"]:
            for name in sometimes.intersection(series_in(target["expr"])):
                assert flags.get(name, f"nothing gives {name}") in reason, panel["title"]


@every
def test_a_legend_names_labels_that_the_query_keeps(page: Page) -> None:
    for target in targets_of(page):
        assert target["legendFormat"], target["expr"]
        labels = labels_in(target["expr"]) or SERIES[series_in(target["expr"])[0]].labels
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels, target["expr"]


@every
def test_counters_are_rated_before_they_are_summed_and_nothing_else_is(page: Page) -> None:
    """`target-counter-agg`."""
    for target in targets_of(page):
        for name in set(series_in(target["expr"])):
            rated = re.findall(rf"\b(?:rate|irate|increase)\({name}[{{\[]", target["expr"])
            assert len(rated) == (series_in(target["expr"]).count(name) if SERIES[name].is_counter else 0), target[
                "expr"
            ]


@every
def test_a_quantile_is_of_buckets_and_never_itself_added_up_or_averaged(page: Page) -> None:
    for target in targets_of(page):
        for combined in call_arguments(
            target["expr"], r"(?:sum|avg|stddev|quantile|histogram_quantile)(?:_over_time)?"
        ):
            assert "quantile" not in combined, target["expr"]
        for buckets in call_arguments(target["expr"], "histogram_quantile"):
            assert [name for name in series_in(buckets) if not name.endswith("_bucket")] == [], target["expr"]
            assert "le" in labels_in(buckets), target["expr"]


@every
def test_a_window_is_the_one_that_grafana_fits_to_the_screen(page: Page) -> None:
    """`target-rate-interval`; a total over the time range uses `$__range`."""
    for target in targets_of(page):
        assert set(windows_in(target["expr"])) <= WINDOWS, target["expr"]
        assert target["instant"] or "$__range" not in target["expr"], target["expr"]


@every
def test_a_panel_says_what_it_asks_in_which_unit_and_of_which_datasource(page: Page) -> None:
    """`panel-title-description`, `panel-units`, `panel-datasource`, `panel-no-targets`."""
    for panel in panels_of(page):
        question, _, reading = panel["description"].partition("? ")
        assert panel["title"]
        assert question, panel["title"]
        assert reading.endswith("."), panel["title"]
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
def test_the_first_question_is_answered_without_scrolling(page: Page) -> None:
    rows = [panel["gridPos"]["y"] for panel in page["panels"] if panel["type"] == "row"]
    assert rows[0] == 0
    assert rows[1] <= FIRST_SCREEN


@every
def test_nobody_can_edit_what_the_next_start_would_overwrite(page: Page) -> None:
    """`uneditable`."""
    assert page["editable"] is False


@every
def test_the_first_variable_chooses_the_datasource(page: Page) -> None:
    """`template-datasource`."""
    first, *others = variables_of(page)
    assert [first[key] for key in ("name", "label", "type", "query")] == [
        "datasource",
        "Data source",
        "datasource",
        "prometheus",
    ]
    assert "datasource" not in [variable["type"] for variable in others]
    assert [each for each in values_of(page, "datasource") if each != DATASOURCE] == []


@every
def test_a_variable_offers_what_is_there_in_the_time_shown(page: Page) -> None:
    """`template-label-promql`, `template-on-time-change-reload`."""
    for variable in variables_of(page):
        if variable["type"] == "query":
            assert variable["refresh"] == 2, variable["name"]  # on time range change
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
def test_every_variable_is_used_by_a_query_and_every_one_used_is_declared(page: Page) -> None:
    declared = {variable["name"] for variable in variables_of(page)}
    expressions = [target["expr"] for target in targets_of(page)]
    result_variables = [
        each for each in variables_of(page) if "query_result(" in str(each.get("query"))
    ]  # queries as well
    assert used_in([*expressions, *result_variables]) | {"datasource"} == declared
    assert used_in(page) <= declared


@every
def test_a_variable_is_narrowed_only_by_those_before_it(page: Page) -> None:
    before = {"datasource"}
    for variable in variables_of(page):
        assert used_in(variable) <= before, variable["name"]
        before.add(variable["name"])


@every
def test_colours_are_those_of_the_palette_where_each_means_one_thing(page: Page) -> None:
    for colour in (each for key in ("color", "fixedColor", "iconColor") for each in values_of(page, key)):
        if isinstance(colour, str):
            assert colour in PALETTE
        else:
            assert (
                colour["mode"] in {"fixed", "thresholds", "palette-classic-by-name"}
                or colour.get("scheme") == "Cividis"
            )


@every
def test_a_link_to_a_dashboard_finds_one_and_keeps_time_and_choices(page: Page) -> None:
    for link in page["links"]:
        assert link["keepTime"], link
        assert link["includeVars"], link
    for url in values_of(page["panels"], "url"):
        if url.startswith("/d/"):
            assert re.split("[/?]", url)[2] in {each["uid"] for each in PAGES}, url
            assert "${__url_time_range}" in url, url
            assert "var-" in url or "${__all_variables}" in url, url


def expression(text: str, legend: str = "x") -> Callable[[Page], None]:
    """Replace the first query."""

    def corrupt(page: Page) -> None:
        next(targets_of(page)).update(expr=text, legendFormat=legend, instant=False)

    return corrupt


def panel(**keys: Any) -> Callable[[Page], None]:
    return lambda page: next(panels_of(page)).update(keys)


def variable(which: str, **keys: Any) -> Callable[[Page], None]:
    return lambda page: next(each for each in variables_of(page) if each["name"] == which).update(keys)


declared = test_every_query_names_only_series_and_labels_that_are_declared
described = test_a_panel_says_what_it_asks_in_which_unit_and_of_which_datasource
offered = test_a_variable_offers_what_is_there_in_the_time_shown
coloured = test_colours_are_those_of_the_palette_where_each_means_one_thing
linked = test_a_link_to_a_dashboard_finds_one_and_keeps_time_and_choices


@pytest.mark.parametrize(
    "rule, corrupt",
    [
        pytest.param(declared, expression("sum (llm_request_total)"), id="no such series"),
        pytest.param(declared, expression('llm_engine_up{tier="x"}'), id="no such label"),
        pytest.param(declared, expression("sum by (tier) (llm_engine_up)"), id="grouped by no label of it"),
        pytest.param(
            declared, variable("model", query={"query": "label_values(llm_engine_up, model)"}), id="no values"
        ),
        pytest.param(
            test_every_matched_value_is_one_that_the_label_can_have,
            expression('llm_requests_in_flight{phase="wait"}'),
            id="no such value",
        ),
        pytest.param(
            test_every_recorded_series_is_recorded_or_the_panel_says_when,
            expression("llm_cost:per_good_request"),
            id="recorded only with a flag",
        ),
        pytest.param(
            test_a_legend_names_labels_that_the_query_keeps,
            expression("sum by (class) (llm_requests_in_flight)", "{{model}}"),
            id="a label that is gone",
        ),
        pytest.param(
            test_counters_are_rated_before_they_are_summed_and_nothing_else_is,
            expression("rate(sum(llm_requests_total)[5m:1m])"),
            id="a sum rated",
        ),
        pytest.param(
            test_counters_are_rated_before_they_are_summed_and_nothing_else_is,
            expression("rate(llm_requests_in_flight[$__rate_interval])"),
            id="a gauge rated",
        ),
        pytest.param(
            test_a_quantile_is_of_buckets_and_never_itself_added_up_or_averaged,
            expression("avg by (class) (histogram_quantile(0.5, sum by (class, le) (rate(x_bucket[5m]))))"),
            id="a mean of quantiles",
        ),
        pytest.param(
            test_a_quantile_is_of_buckets_and_never_itself_added_up_or_averaged,
            expression("histogram_quantile(0.5, sum by (class) (rate(x_bucket[5m])))"),
            id="a quantile without buckets",
        ),
        pytest.param(
            test_a_window_is_the_one_that_grafana_fits_to_the_screen,
            expression("rate(x[5m])"),
            id="a window of its own",
        ),
        pytest.param(
            test_a_window_is_the_one_that_grafana_fits_to_the_screen,
            expression("increase(x[$__range])"),
            id="the whole range at every point",
        ),
        pytest.param(described, panel(title=""), id="no title"),
        pytest.param(described, panel(description="Requests."), id="no question"),
        pytest.param(described, panel(fieldConfig={"defaults": {"unit": "apples"}}), id="no such unit"),
        pytest.param(described, panel(datasource={"type": "prometheus", "uid": "abc"}), id="one machine's datasource"),
        pytest.param(described, panel(targets=[]), id="no query"),
        pytest.param(
            test_ids_titles_and_ref_ids_are_unique,
            lambda page: page["panels"].append(page["panels"][0]),
            id="one twice",
        ),
        pytest.param(
            test_panels_stay_on_the_grid_and_never_overlap, panel(gridPos=dict.fromkeys("xywh", 5)), id="overlap"
        ),
        pytest.param(test_a_line_of_panels_fills_the_width, panel(gridPos=dict.fromkeys("xywh", 1)), id="a hole"),
        pytest.param(
            test_the_first_question_is_answered_without_scrolling,
            lambda page: [box.update(y=2 * box["y"] + box["h"]) for box in values_of(page["panels"], "gridPos")],
            id="an answer below the screen",
        ),
        pytest.param(
            test_nobody_can_edit_what_the_next_start_would_overwrite,
            lambda page: page.update(editable=True),
            id="editable",
        ),
        pytest.param(
            test_the_first_variable_chooses_the_datasource, variable("datasource", label="Source"), id="another label"
        ),
        pytest.param(offered, variable("model", refresh=1), id="read once"),
        pytest.param(offered, variable("model", query={"query": "llm_engine_up"}), id="all of a series"),
        pytest.param(
            test_variables_over_labels_start_with_everything_selected,
            variable("model", current={"value": ["org/m"]}),
            id="one model at first",
        ),
        pytest.param(
            test_every_variable_is_used_by_a_query_and_every_one_used_is_declared,
            variable("model", name="tenant"),
            id="used but not declared",
        ),
        pytest.param(
            test_every_variable_is_used_by_a_query_and_every_one_used_is_declared,
            lambda page: page["templating"]["list"].append({"name": "tenant"}),
            id="declared but not used",
        ),
        pytest.param(
            test_a_variable_is_narrowed_only_by_those_before_it,
            lambda page: page["templating"]["list"].reverse(),
            id="narrowed by a later one",
        ),
        pytest.param(coloured, variable("model", color="red"), id="a colour of its own"),
        pytest.param(coloured, variable("model", color={"mode": "continuous-GrYlRd"}), id="red to green"),
        pytest.param(linked, lambda page: page["links"][0].update(keepTime=False), id="forgets the time"),
        pytest.param(linked, panel(links=[{"url": "/d/x?${__url_time_range}&${__all_variables}"}]), id="no such board"),
        pytest.param(linked, panel(links=[{"url": "/d/vllm-slo-overview"}]), id="forgets all"),
    ],
)
def test_every_rule_rejects_a_broken_dashboard(rule: Callable[[Page], None], corrupt: Callable[[Page], Any]) -> None:
    page = deepcopy(next(page for page in PAGES if page["uid"] == "vllm-slo-overview"))
    rule(page)
    corrupt(page)
    with pytest.raises(AssertionError):
        rule(page)
