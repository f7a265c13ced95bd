"""The questions of an on-call engineer: each panel is as many clicks from the page as the table says, or none."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from alerts.links import Links
from alerts.rule_file import rules
from alerts.rules.groups import Alert
from compose.cli import main
from dashboards.boards.board import TAG
from dashboards.boards.registry import BOARDS
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.slo_file import SHIPPED, load
from tests.dashboards.dashboard_files import Page, page_of, panel

ROOT = Path(__file__).parents[2]
SPEC = load(SHIPPED)
PAGES: dict[str, Page] = {board.uid: page_of(board) for board in BOARDS}
OVERVIEW = PAGES["vllm-slo-overview"]
QUESTION = re.compile(
    r"^\| (?P<question>[^|]+\?) \| (?P<panel>[^|]+) \| (?P<clicks>\d+) \| (?P<way>[^|]+) \|$", re.MULTILINE
)
ONCALL, DASHBOARDS = ((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("oncall.md", "dashboards.md"))
ROWS = [match.groupdict() for match in QUESTION.finditer(ONCALL)]
FIRST_SCREEN = re.findall(r"^\| ([^|]+\?) \| ([^|]+) \|$", DASHBOARDS, re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Place:
    """A dashboard, of which Grafana may show a single panel."""

    uid: str
    only: str = ""

    @property
    def page(self) -> Page:
        return PAGES[self.uid]


def page_annotations() -> dict[str, str]:
    links = Links(grafana="https://grafana.example.org")
    found = (rule for group in rules(SPEC, links) for rule in group.rules if isinstance(rule, Alert))
    return dict(next(alert.annotations for alert in found if alert.name == AlertName.BURN))


def from_page() -> Place:
    """The link of the page, whose variables are filled by Alertmanager."""
    url = urlsplit(re.sub(r"\{\{.*?\}\}", "", page_annotations()["dashboard_url"]))
    uid, (number,) = url.path.removeprefix("/d/"), parse_qs(url.query)["viewPanel"]
    return Place(uid, next(each["title"] for each in PAGES[uid]["panels"] if str(each["id"]) == number))


def links_in(place: Place, title: str, column: str) -> Iterator[str]:
    """The links of a column of a table."""
    assert not place.only, f"only {place.only} is shown"
    overrides: list[dict[str, Any]] = panel(place.page, title)["fieldConfig"]["overrides"]
    properties = [(each["matcher"]["options"], one) for each in overrides for one in each["properties"]]
    fields = [field for field, one in properties if (one["id"], one["value"]) == ("displayName", column)]
    for field, one in properties:
        if field in fields and one["id"] == "links":
            yield from (link["url"] for link in one["value"])


def click(place: Place, step: str) -> Place:
    """Follow one link; the last part of a way."""
    if step == "back":
        assert place.only
        return Place(place.uid)
    name = step.strip("*")
    if ": " in name:
        (url,) = links_in(place, *name.split(": "))
        return Place(urlsplit(url).path.removeprefix("/d/"))
    (target,) = [page for page in PAGES.values() if page["title"] == name]
    (between_boards,) = place.page["links"]
    assert (between_boards["type"], between_boards["tags"]) == ("dashboards", [TAG])
    # one click, as they are beside each other
    assert between_boards["asDropdown"] is False
    assert TAG in target["tags"]
    return Place(target["uid"])


def test_the_table_has_ten_questions() -> None:
    assert len(ROWS) == 10


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["question"])
def test_the_panel_of_a_question_is_as_many_clicks_from_the_page_as_the_table_says(row: dict[str, str]) -> None:
    first, *steps = row["way"].split(" → ")
    assert int(row["clicks"]) == 1 + len(steps)
    if first == "runbook":
        command = page_annotations()["runbook"].split()
        assert (row["panel"], steps) == ("the runbook", [])
        assert (command[0], main(command[1:])) == ("vllm-slo", 0)
        return
    assert first == "page"
    place = from_page()
    for step in steps:
        place = click(place, step)
    title, board = re.findall(r"\*([^*]+)\*", row["panel"])
    assert place.page["title"] == board
    assert panel(place.page, title)
    assert place.only in {"", title}


@pytest.mark.parametrize("answer", [pytest.param(answer, id=question) for question, answer in FIRST_SCREEN])
def test_the_first_screen_of_the_overview_answers_a_question_of_the_first_five_minutes(answer: str) -> None:
    # the rules of all dashboards check that the first row fits the screen
    first, second, *_ = (place for place, each in enumerate(OVERVIEW["panels"]) if each["type"] == "row")
    shown = {each["title"]: each for each in OVERVIEW["panels"][first + 1 : second]}
    for title, column in re.findall(r"\*([^*]+)\*(?: \((\w+)\))?", answer):
        headings = [name.split(" ")[0] for name in _headings(shown[title])]
        assert not column or column in headings or shown[title]["type"] == "stat", title


def _headings(panel: dict[str, Any]) -> Iterator[str]:
    for override in panel["fieldConfig"]["overrides"]:
        yield from (str(each["value"]) for each in override["properties"] if each["id"] == "displayName")


def test_every_panel_of_the_first_screen_answers_a_question() -> None:
    first, second, *_ = (place for place, each in enumerate(OVERVIEW["panels"]) if each["type"] == "row")
    answers = " ".join(answer for _, answer in FIRST_SCREEN)
    assert [each["title"] for each in OVERVIEW["panels"][first + 1 : second] if each["title"] not in answers] == []
