"""The house's own lint over every committed dashboard."""

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from dashboards.audit import checks_of
from dashboards.command import GENERATED
from exporters.signals import FIRING, RECORDED, SIGNALS, Kind, Label

PAGES = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(GENERATED.glob("*.json"))]
WORDS = {"sum", "min", "max", "count", "by", "or", "offset", "rate", "increase", "deriv", "clamp_min"} | {
    "histogram_quantile"
}
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True)
class Series:
    labels: frozenset[str]
    counts: bool  # only ever grows


def known_series() -> Iterator[tuple[str, Series]]:
    for signal in SIGNALS:
        labels = frozenset(map(str, signal.labels))
        if signal.kind is Kind.HISTOGRAM:
            yield signal.bucket, Series(labels | {"le"}, counts=True)
            yield signal.sum, Series(labels, counts=True)
            yield signal.count, Series(labels, counts=True)
        else:
            yield signal.name, Series(labels, counts=signal.kind is Kind.COUNTER)
    for recorded in RECORDED:
        yield recorded.name, Series(frozenset(map(str, recorded.labels)), counts=False)
    of_alerts = {"alertname", "alertstate", Label.SEVERITY, Label.MODEL, Label.CLASS, Label.SLO}
    yield FIRING, Series(frozenset(map(str, of_alerts)), counts=False)


KNOWN = dict(known_series())


def series_of(expression: str) -> list[str]:
    bare = re.sub(r'"[^"]*"', "", expression)
    bare = re.sub(r"\bby \([^)]*\)|\{[^}]*\}|\[[^\]]*\]|\$\w+", "", bare)
    return [word for word in re.findall(r"[A-Za-z_:][\w:]*", bare) if word not in WORDS]


def targets() -> Iterator[Any]:
    for page in PAGES:
        for panel in page["panels"]:
            for target in panel.get("targets", []):
                yield pytest.param(panel, target, id=f"{page['uid']}: {panel['title']} {target['refId']}")


def panels() -> Iterator[Any]:
    for page in PAGES:
        for panel in page["panels"]:
            if panel["type"] != "row":
                yield pytest.param(panel, id=f"{page['uid']}: {panel['title']}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page["uid"])
def test_every_query_names_only_series_and_labels_that_are_declared(page: dict[str, Any]) -> None:
    for check in checks_of(page):
        names = (
            re.findall(r"label_values\(([\w:]+)(?:\{[^}]*\})?, ", check.expression)
            if check.expression.startswith("label_values")
            else series_of(check.expression)
        )
        assert names
        assert [name for name in names if name not in KNOWN] == []
        for name, matchers in re.findall(r"([A-Za-z_:][\w:]*)\{([^}]*)\}", check.expression):
            matched = set(re.findall(r'(\w+)(?:=~|=)"', matchers))
            assert matched <= KNOWN[name].labels, name
        for group in re.findall(r"by \(([^)]*)\)", check.expression):
            assert set(group.split(", ")) <= frozenset().union(*(KNOWN[name].labels for name in names))


@pytest.mark.parametrize("panel, target", list(targets()))
def test_a_legend_names_labels_that_the_query_keeps(panel: dict[str, Any], target: dict[str, Any]) -> None:
    kept = set(", ".join(re.findall(r"by \(([^)]*)\)", target["expr"])).split(", "))
    assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= kept
    assert target["legendFormat"]


@pytest.mark.parametrize("panel, target", list(targets()))
def test_counters_are_rated_before_they_are_summed_and_nothing_else_is(
    panel: dict[str, Any], target: dict[str, Any]
) -> None:
    for name in series_of(target["expr"]):
        rated = re.findall(rf"\b(?:rate|increase)\({name}\{{", target["expr"])
        used = re.findall(rf"\b{name}\{{", target["expr"])
        assert len(rated) == (len(used) if KNOWN[name].counts else 0), name


@pytest.mark.parametrize("panel, target", list(targets()))
def test_a_window_is_the_one_that_grafana_fits_to_the_screen(panel: dict[str, Any], target: dict[str, Any]) -> None:
    assert set(re.findall(r"\[([^\]]*)\]", target["expr"])) <= {"$__rate_interval", "$__range"}
    assert target["instant"] or "$__range" not in target["expr"]


@pytest.mark.parametrize("panel", list(panels()))
def test_a_panel_says_what_it_asks_in_which_unit_and_of_which_datasource(panel: dict[str, Any]) -> None:
    question, _, reading = panel["description"].partition("? ")
    assert question
    assert reading.endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"] == DATASOURCE
    assert [target["datasource"] for target in panel["targets"]] == [DATASOURCE] * len(panel["targets"])
    assert panel["targets"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page["uid"])
def test_ids_titles_and_ref_ids_are_unique(page: dict[str, Any]) -> None:
    for key in ("id", "title"):
        values = [panel[key] for panel in page["panels"]]
        assert len(set(values)) == len(values)
    assert 0 not in [panel["id"] for panel in page["panels"]]
    for panel in page["panels"]:
        refs = [target["refId"] for target in panel.get("targets", [])]
        assert refs == list("ABCDEFGH"[: len(refs)])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page["uid"])
def test_panels_stay_on_the_grid_and_never_overlap(page: dict[str, Any]) -> None:
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page["uid"])
def test_a_line_of_panels_fills_the_width(page: dict[str, Any]) -> None:
    lines: dict[int, int] = {}
    for panel in page["panels"]:
        lines[panel["gridPos"]["y"]] = lines.get(panel["gridPos"]["y"], 0) + panel["gridPos"]["w"]
    assert set(lines.values()) == {24}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page["uid"])
def test_variables_over_labels_start_with_everything_selected(page: dict[str, Any]) -> None:
    datasource, *others = page["templating"]["list"]
    assert (datasource["name"], datasource["type"]) == ("datasource", "datasource")
    for variable in others:
        if variable["name"] in set(Label):
            assert variable["multi"]
            assert variable["includeAll"]
            assert variable["allValue"] == ".*"
            assert variable["datasource"] == DATASOURCE
