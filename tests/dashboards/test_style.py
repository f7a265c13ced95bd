"""A class and an outcome have the same colour on every panel."""

import re

from dashboards.boards.slo_overview import BOARD
from dashboards.style import ANNOTATION_COLOURS, BAD, CLASS_COLOURS, GOOD, OUTCOME_COLOURS, WARN
from exporters.signals import Outcome
from exporters.slos import loads
from tests.dashboards.promql_history import panel

SPEC = loads(
    """
version: 1
period: 30d
classes: [{name: chat}, {name: chat-long}]
slos: [{name: ttft, classes: [chat], signal: ttft, threshold: 1s, objective: 95%}]
"""
)


def colour(title: str, legend: str) -> str:
    """The colour of a series by the last override that matches its legend."""
    matching = [
        value["value"]["fixedColor"]
        for override in panel(BOARD, title, SPEC)["fieldConfig"]["overrides"]
        for value in override["properties"]
        if value["id"] == "color" and matches(override["matcher"], legend)
    ]
    return str(matching[-1])


def matches(matcher: dict[str, str], legend: str) -> bool:
    option = matcher["options"]
    return option == legend if matcher["id"] == "byName" else bool(re.search(option.strip("/"), legend))


def test_a_class_has_one_colour_on_all_panels() -> None:
    series = [
        ("Throughput: requests offered", "chat"),
        ("Goodput over time", "chat"),
        ("Time to first token", "chat"),
        ("Requests in flight over time", "chat waiting"),
    ]
    assert len({colour(*each) for each in series}) == 1


def test_a_class_whose_name_is_a_prefix_of_another_has_its_own_colour() -> None:
    names = ["chat", "chat-long", "other"]
    assert len({colour("Throughput: requests offered", name) for name in names}) == len(names)
    assert len({colour("Time to first token", name) for name in names}) == len(names)


def test_outcomes_have_different_colours() -> None:
    assert len({colour("Outcomes", outcome) for outcome in Outcome}) == len(Outcome)


def test_classes_have_other_colours_than_verdicts_outcomes_and_events() -> None:
    others = {GOOD, WARN, BAD, *ANNOTATION_COLOURS.values(), *OUTCOME_COLOURS.values()}
    assert not set(CLASS_COLOURS) & others
    assert len(set(CLASS_COLOURS)) == len(CLASS_COLOURS)
