"""A missing value never has the colour of a verdict."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dashboards.command import GENERATED
from dashboards.live.reader import panels_of

PAGES = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(GENERATED.glob("*.json"))}


def panels(*types: str) -> Iterator[Any]:
    """The panels of these types whose missing values have a text."""
    for name, page in PAGES.items():
        for panel in panels_of(page["panels"]):
            if panel["type"] in types and "noValue" in panel["fieldConfig"]["defaults"]:
                yield pytest.param(panel, id=f"{name}: {panel['title']}")


@pytest.mark.parametrize("panel", list(panels("stat", "bargauge", "table")))
def test_the_text_of_a_missing_value_is_neutral(panel: dict[str, Any]) -> None:
    mappings = panel["fieldConfig"]["defaults"]["mappings"]
    matches = {each["options"]["match"]: each["options"]["result"] for each in mappings if each["type"] == "special"}
    cells = (panel["fieldConfig"]["defaults"].get("custom") or {}).get("cellOptions") or {}
    # in a cell with a coloured background the colour is that of the background
    neutral = "transparent" if cells.get("type") == "color-background" else "text"
    assert matches["null+nan"]["color"] == neutral


def test_a_missing_cell_of_a_matrix_is_null() -> None:
    """By default it is an empty text, which has the text of a panel without rows."""
    empty = [
        step["options"].get("emptyValue")
        for page in PAGES.values()
        for panel in panels_of(page["panels"])
        for step in panel.get("transformations", ())
        if step["id"] == "groupingToMatrix"
    ]
    assert empty == ["null"] * 7


def test_bars_start_at_zero_and_stat_panels_have_one_text_size() -> None:
    of_type: dict[str, list[Any]] = {}
    for page in PAGES.values():
        for panel in panels_of(page["panels"]):
            of_type.setdefault(panel["type"], []).append(panel)
    assert {panel["fieldConfig"]["defaults"].get("min") for panel in of_type["bargauge"]} == {0}
    assert all({"titleSize", "valueSize"} <= panel["options"]["text"].keys() for panel in of_type["stat"])


def test_no_number_of_a_table_is_filterable() -> None:
    assert not [
        panel["title"]
        for page in PAGES.values()
        for panel in panels_of(page["panels"])
        if panel["type"] == "table" and panel["fieldConfig"]["defaults"].get("custom", {}).get("filterable")
    ]
