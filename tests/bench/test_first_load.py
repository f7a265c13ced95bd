"""The queries that the bench of the dashboards sends are those of Grafana's first load."""

import pytest

from tests.bench.first_load import FirstLoad, Revision, first_load, read_revision
from tests.support.dashboard_queries import Series
from tests.support.promtool import ROOT

CLASSES = ("chat", "batch")
PANELS = [
    {"type": "row", "title": "open", "panels": []},
    {"title": "Shown", "targets": [{"refId": "A", "expr": "up"}]},
    {"title": "Of $class", "repeat": "class", "targets": [{"refId": "A", "expr": 'x{c=~"$class"} * $class_order'}]},
    {"type": "row", "title": "closed", "panels": [{"title": "Hidden", "targets": [{"refId": "A", "expr": "hidden"}]}]},
]
PAGE = {
    "title": "T",
    "templating": {"list": [{"type": "query", "name": "class", "query": "label_values(up, class)"}]},
    "annotations": {"list": [{"name": "on", "expr": "marks"}, {"name": "off", "expr": "others", "enable": False}]},
    "panels": PANELS,
}


def test_the_first_load_has_each_repetition_and_neither_closed_rows_nor_disabled_annotations() -> None:
    assert [check.expression for check in first_load(PAGE, {"class": CLASSES})] == [
        "label_values(up, class)",
        "marks",
        "up",
        'x{c=~"chat"} * $class_order',
        'x{c=~"batch"} * $class_order',
    ]


def test_all_rows_are_those_of_the_first_load_and_the_closed_ones() -> None:
    first, opened = (
        [check.panel for check in first_load(PAGE, {"class": CLASSES}, all_rows=each)] for each in (False, True)
    )
    assert opened == [*first, "Hidden"]


@pytest.mark.parametrize(
    "target, age",
    [
        pytest.param({"expr": "up"}, 7200, id="a range query reads the time range"),
        pytest.param({"expr": "up", "instant": True}, 600, id="an instant query"),
        pytest.param({"expr": "increase(up[$__range])", "instant": True}, 7200, id="a total over the time range"),
    ],
)
def test_the_samples_go_back_as_far_as_the_queries_read(target: dict[str, object], age: int) -> None:
    page = {"title": "T", "panels": [{"title": "P", "targets": [{"refId": "A", **target}]}]}
    loads = {"T": FirstLoad(tuple(first_load(page, {})), 7200)}
    assert Revision(loads, {"up": Series(frozenset(), is_counter=False)}, frozenset(), {}).ages(600) == {"up": age}


def test_a_revision_has_its_dashboards_and_the_bounds_of_its_histograms() -> None:
    revision = read_revision(ROOT, {"class": CLASSES, "active_class": CLASSES})
    assert revision.loads["SLO overview"].seconds == 3600
    assert revision.bounds["llm_time_to_first_token_seconds_bucket"][-1] == "+Inf"
    assert "llm_slo:bad_events:ratio" in revision.recorded
