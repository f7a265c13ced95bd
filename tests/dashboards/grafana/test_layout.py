"""Rows and panels are placed from top to bottom, and a collapsed row contains its panels."""

import json

from grafana_foundation_sdk.builders import dashboard, table, text

from dashboards.grafana.layout import Panel, Row, arrange, to_json

Places = list[tuple[str, int, int]]


def panel(title: str, height: int) -> Panel:
    return text.Panel().title(title).span(12).height(height)


ROWS = (
    Row("A", (panel("a1", 5), panel("a2", 5), panel("a3", 4), panel("a4", 4)), is_collapsed=True),
    Row("B", (panel("b1", 6), panel("b2", 6))),
    Row("C", (panel("c1", 3), panel("c2", 3)), is_collapsed=True),
    Row("D", (panel("d1", 2), panel("d2", 2))),
)


def tree(*rows: Row) -> str:
    frame = dashboard.Dashboard("T").with_variable(dashboard.DatasourceVariable("datasource"))
    return to_json(arrange(frame, rows, "15s", {}))


def places(*rows: Row) -> tuple[Places, dict[str, Places]]:
    """Title, top and left of each element on the dashboard, and of each panel in a collapsed row."""
    page = json.loads(tree(*rows))

    def of(elements: list[dict[str, object]]) -> Places:
        return [(each["title"], each["gridPos"].get("y", 0), each["gridPos"].get("x", 0)) for each in elements]  # type: ignore[attr-defined, misc]

    return of(page["panels"]), {each["title"]: of(each["panels"]) for each in page["panels"] if each.get("collapsed")}


def test_a_collapsed_row_contains_its_panels_and_the_rows_below_move_up() -> None:
    shown, within = places(*ROWS)
    assert shown == [
        ("A", 0, 0),
        ("B", 1, 0),
        ("b1", 2, 0),
        ("b2", 2, 12),
        ("C", 8, 0),
        ("D", 9, 0),
        ("d1", 10, 0),
        ("d2", 10, 12),
    ]
    assert within == {
        "A": [("a1", 1, 0), ("a2", 1, 12), ("a3", 6, 0), ("a4", 6, 12)],
        "C": [("c1", 9, 0), ("c2", 9, 12)],
    }


def test_a_table_in_a_collapsed_row_has_no_footer() -> None:
    assert '"footer"' not in tree(Row("A", (table.Panel().title("t"),), is_collapsed=True))
