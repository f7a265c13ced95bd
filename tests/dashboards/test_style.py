"""A colour has one meaning: a class and an outcome have the same colour in every panel."""

import json
import re

from dashboards.boards.slo_overview import BOARD
from dashboards.style import ANNOTATION_COLOURS, BAD, CLASS_COLOURS, GOOD, OUTCOME_COLOURS, WARN
from exporters.signals import Outcome
from exporters.slos import loads

SPEC = loads(
    """
version: 1
period: 30d
classes: [{name: chat}, {name: chat-long}]
slos: [{name: ttft, classes: [chat], signal: ttft, threshold: 1s, objective: 95%}]
"""
)


def colour(title: str, legend: str) -> str:
    """That of a series, as the last override that fits its legend has it."""
    (panel,) = [each for each in json.loads(BOARD.render(SPEC))["panels"] if each["title"] == title]
    fitting = [
        value["value"]["fixedColor"]
        for override in panel["fieldConfig"]["overrides"]
        for value in override["properties"]
        if value["id"] == "color" and fits(override["matcher"], legend)
    ]
    return str(fitting[-1])


def fits(matcher: dict[str, str], legend: str) -> bool:
    option = matcher["options"]
    return option == legend if matcher["id"] == "byName" else bool(re.search(option.strip("/"), legend))


def test_a_class_keeps_its_colour_from_panel_to_panel_whatever_else_the_legend_says() -> None:
    series = [
        ("Throughput: requests offered", "chat"),
        ("Goodput over time", "chat"),
        ("Time to first token", "chat p95"),
        ("Requests in flight over time", "chat waiting"),
    ]
    assert len({colour(*each) for each in series}) == 1


def test_a_class_whose_name_begins_with_that_of_another_has_its_own_colour() -> None:
    names = ["chat", "chat-long", "other"]
    assert len({colour("Throughput: requests offered", name) for name in names}) == len(names)
    assert len({colour("Time to first token", f"{name} p50") for name in names}) == len(names)


def test_no_two_outcomes_look_alike() -> None:
    assert len({colour("Outcomes", outcome) for outcome in Outcome}) == len(Outcome)


def test_no_class_has_the_colour_of_a_verdict_or_of_an_event() -> None:
    meant = {GOOD, WARN, BAD, *ANNOTATION_COLOURS.values(), *OUTCOME_COLOURS.values()}
    assert not set(CLASS_COLOURS) & meant
    assert len(set(CLASS_COLOURS)) == len(CLASS_COLOURS)
