"""A class and an outcome have the same colour on every panel; colours are readable in both themes."""

import colorsys
import re
from itertools import combinations, pairwise
from pathlib import Path

import pytest

from dashboards.boards.slo_overview import BOARD
from dashboards.grafana import style
from dashboards.grafana.style import ANNOTATION_COLOURS, BAD, BLUE, CLASS_COLOURS, GOOD, GREY, OUTCOME_COLOURS, WARN
from dashboards.preview.frames.colours import between, text_colour
from exporters.vocabulary.signals import OTHER
from exporters.vocabulary.slo_file import loads
from tests.dashboards.grafana.colour_vision import contrast, least_distance
from tests.dashboards.promql_history import panel

SPEC = loads(
    """
version: 1
period: 30d
classes: [{name: chat}, {name: chat-long}]
slos: [{name: ttft, classes: [chat], signal: ttft, threshold: 1s, objective: 95%}]
"""
)


SEVEN = """
version: 1
period: 30d
classes: [{classes}]
slos: [{{name: ttft, classes: [class-0], signal: ttft, threshold: 1s, objective: 95%}}]
"""


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
        ("TTFT p95", "chat"),
        ("Requests in flight over time", "chat waiting"),
    ]
    assert len({colour(*each) for each in series}) == 1


def test_a_class_whose_name_is_a_prefix_of_another_has_its_own_colour() -> None:
    names = ["chat", "chat-long", "other"]
    assert len({colour("Throughput: requests offered", name) for name in names}) == len(names)
    assert len({colour("TTFT p95", name) for name in names}) == len(names)


def test_classes_have_other_colours_than_verdicts_outcomes_and_events() -> None:
    others = {GOOD, WARN, BAD, *ANNOTATION_COLOURS.values(), *OUTCOME_COLOURS.values()}
    assert not set(CLASS_COLOURS) & others
    assert len(set(CLASS_COLOURS)) == len(CLASS_COLOURS)


def test_no_class_looks_like_a_verdict_with_colour_blindness() -> None:
    close = {(each, sign) for each in CLASS_COLOURS for sign in (GOOD, WARN, BAD) if least_distance(each, sign) < 0.039}
    assert close == set()


def hue(colour: str) -> float:
    """Degrees: red is 0, green 120."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return 360 * colorsys.rgb_to_hsv(red, green, blue)[0]


def test_a_class_is_neither_red_nor_green() -> None:
    assert [each for each in CLASS_COLOURS if not (30 < hue(each) < 80 or 180 < hue(each) < 330)] == []


PAGE = Path(style.__file__).parents[1] / "preview" / "preview.css"
THEMES = re.findall(r"--panel: (#\w+);.*? --text: (#\w+); --faint: (#\w+);", PAGE.read_text(), re.DOTALL)
"""The background of a panel and the colours of its texts, dark and light, as in Grafana."""


def full(code: str) -> str:
    return code if len(code) == 7 else "#" + "".join(2 * digit for digit in code[1:])


@pytest.mark.parametrize("background, text, faint", THEMES, ids=["dark", "light"])
def test_lines_and_texts_have_a_contrast_of_3_to_the_panel(background: str, text: str, faint: str) -> None:
    used = {value for value in vars(style).values() if isinstance(value, str) and re.fullmatch("#[0-9A-F]{6}", value)}
    used |= {
        *OUTCOME_COLOURS.values(),
        *ANNOTATION_COLOURS.values(),
        *CLASS_COLOURS,
        *style.ENGINE_STATE_COLOURS.values(),
        full(text),
        full(faint),
    }
    assert {GOOD, WARN, BAD, BLUE, GREY} < used
    assert {colour: ratio for colour in used if (ratio := contrast(colour, full(background))) < 3} == {}


@pytest.mark.parametrize("theme, background", [*enumerate(full(background) for background, *_ in THEMES)])
def test_lines_without_a_fixed_colour_are_readable_and_neither_red_nor_green(theme: int, background: str) -> None:
    """Whatever their number and names: Grafana mixes the colour of each from blue and purple."""
    mixed = [between("blue", "purple", share / 20).split()[theme] for share in range(21)]
    assert [each for each in mixed if contrast(each, background) < 3 or not 180 < hue(each) < 330] == []
    # two lines of one colour have similar values, and the tooltip names them
    assert least_distance(mixed[0], mixed[-1]) >= 0.04
    # limits, verdicts and alerts are drawn over them
    assert {each: sign for each in mixed for sign in (GOOD, WARN, BAD) if least_distance(each, sign) < 0.06} == {}


def on(background: str, cell: str) -> str:
    """The colour of a cell whose last two digits are its opacity."""
    opacity = int(cell[7:], 16) / 255
    parts = ((int(cell[at : at + 2], 16), int(full(background)[at : at + 2], 16)) for at in (1, 3, 5))
    return "#" + "".join(f"{round(opacity * over + (1 - opacity) * under):02X}" for over, under in parts)


@pytest.mark.parametrize("ramp", [style.BLUES, style.REDS], ids=["blues", "reds"])
@pytest.mark.parametrize("background, text, faint", THEMES, ids=["dark", "light"])
def test_cells_of_a_sequence_differ_and_their_text_is_readable(
    background: str, text: str, faint: str, ramp: tuple[str, ...]
) -> None:
    cells = [on(background, each) for each in ramp]
    written = [text_colour(each) or full(text) for each in ramp]
    assert [pair for pair in zip(cells, written, strict=True) if contrast(*pair) < 4.5] == []
    steps = [full(background), *cells]
    assert [pair for pair in pairwise(steps) if contrast(*pair) < 1.08] == []
    # from the background to the full colour
    differences = [contrast(full(background), each) for each in cells]
    assert differences == sorted(differences)


@pytest.mark.parametrize(
    "colours, distance",
    [
        pytest.param((GOOD, WARN, BAD), 0.085, id="verdicts"),
        pytest.param(OUTCOME_COLOURS.values(), 0.045, id="outcomes"),
        pytest.param((style.PINK, style.VIOLET, style.SKY, style.BLUE), 0.06, id="stages of a request"),
        # the shipped SLO file has four classes
        pytest.param((*CLASS_COLOURS[:4], GREY), 0.11, id="four classes"),
        pytest.param((*CLASS_COLOURS, GREY), 0.09, id="six classes"),
        pytest.param(style.ENGINE_STATE_COLOURS.values(), 0.08, id="states of engines"),
    ],
)
def test_colours_of_one_panel_are_distinguishable_with_colour_blindness(
    colours: tuple[str, ...], distance: float
) -> None:
    assert least_distance(*colours) >= distance


def test_the_lines_of_twelve_classes_are_distinguishable_with_colour_blindness() -> None:
    """By their colours, or by a difference of two pixels in width."""
    lines = style.class_lines([*(f"class-{number}" for number in range(12)), OTHER])
    similar = [
        names
        for names in combinations(lines, 2)
        if least_distance(*(lines[name][0] for name in names)) < 0.09
        and abs(lines[names[0]][1] - lines[names[1]][1]) < 2
    ]
    assert similar == []


def test_a_class_whose_colour_is_repeated_has_a_thicker_line_on_its_panels() -> None:
    classes = ", ".join(f"{{name: class-{number}}}" for number in range(7))
    spec = loads(SEVEN.format(classes=classes))
    overrides = panel(BOARD, "TTFT p95", spec)["fieldConfig"]["overrides"]
    widths = [
        each["value"]
        for override in overrides
        if matches(override["matcher"], "class-6")
        for each in override["properties"]
        if each["id"] == "custom.lineWidth"
    ]
    assert widths == [3]
