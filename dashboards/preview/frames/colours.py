"""Grafana's named colours and palette, and the colour of a value by thresholds."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

# from pale to dark; the light theme has the darker five of each hue
_HUES = {
    "red": "#FFA6B0 #FF7383 #F2495C #E02F44 #C4162A #AD0317",
    "orange": "#FFCB7D #FFB357 #FF9830 #FF780A #FA6400 #E55400",
    "yellow": "#FFF899 #FFEE52 #FADE2A #F2CC0C #E0B400 #CC9D00",
    "green": "#C8F2C2 #96D98D #73BF69 #56A64B #37872D #19730E",
    "blue": "#C0D8FF #8AB8FF #5794F2 #3274D9 #1F60C4 #1250B0",
    "purple": "#DEB6F2 #CA95E5 #B877D9 #A352CC #8F3BB8 #7C2EA3",
}
_GRAFANA_COLOURS = {
    shade + hue: " ".join(pair)
    for hue, codes in _HUES.items()
    for shade, *pair in zip(
        ("super-light-", "light-", "", "semi-dark-", "dark-"), codes.split(), codes.split()[1:], strict=False
    )
}

# Grafana 12 and 13; the first 18 differ in 10 and 11
_PALETTE = (
    "green", "semi-dark-yellow", "blue", "orange", "red", "purple", "dark-green", "dark-yellow", "dark-blue",
    "dark-orange", "dark-red", "dark-purple", "super-light-green", "super-light-yellow", "super-light-blue",
    "super-light-orange", "super-light-red", "super-light-purple", "#447EBC", "#C15C17", "#890F02", "#0A437C",
    "#6D1F62",
    "#584477", "#B7DBAB", "#F4D598", "#70DBED", "#F9BA8F", "#F29191", "#82B5D8", "#E5A8E2", "#AEA2E0", "#629E51",
    "#E5AC0E", "#64B0C8", "#E0752D", "#BF1B00", "#0A50A1", "#962D82", "#614D93", "#9AC48A", "#F2C96D", "#65C5DB",
    "#F9934E", "#EA6460", "#5195CE", "#D683CE", "#806EB7", "#3F6833", "#967302", "#2F575E", "#99440A", "#58140C",
    "#052B51", "#511749", "#3F2B5B", "#E0F9D7", "#FCEACA", "#CFFAFF", "#F9E2D2", "#FCE2DE", "#BADFF4", "#F9D9F9",
    "#DEDAF7",
)  # fmt: skip

TEXT, TRANSPARENT = "text", "transparent"
"""Names that the page resolves to a colour."""


def colour(name: str) -> str:
    """The CSS colour for a name or code; "#dark #light" where the themes differ."""
    return _GRAFANA_COLOURS.get(name, name)


def colour_by_index(index: int) -> str:
    return colour(_PALETTE[index % len(_PALETTE)])


def colour_by_name(name: str) -> str:
    """A colour that depends on the name only, so that a series has one colour in all panels."""
    digest = 5381
    for character in reversed(name):
        digest = (digest * 33 ^ ord(character)) & 0xFFFFFFFF
    # the page takes the one of its theme
    return " ".join(readable[digest % len(readable)] for readable in _READABLE)


def _luminance(code: str) -> float:
    shares = (int(code[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    low, high = sorted(map(_luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


# The colours with a contrast ratio of 3 or more to the background of Grafana's dark and light theme.
_READABLE = [
    [
        code
        for code in (colour(each).split()[theme] if each in _GRAFANA_COLOURS else each for each in _PALETTE)
        if _contrast(code, background) >= 3
    ]
    for theme, background in enumerate(("#181B1F", "#FFFFFF"))
]


def threshold_colour(value: float | None, thresholds: Mapping[str, Any], low: float, high: float) -> str:
    """The colour of the last step at or below the value; `low` and `high` are 0 % and 100 % of a percentage step."""
    steps: Sequence[Mapping[str, Any]] = thresholds.get("steps") or [{"color": "green", "value": None}]
    if value is not None and thresholds.get("mode") == "percentage":
        value = 100 * (value - low) / (high - low) if high > low else 0.0
    step = steps[0]
    for each in steps[1:]:
        if value is not None and value >= (each.get("value") or 0):
            step = each
    return colour(str(step.get("color", "green")))


def text_colour(background: str) -> str:
    """Grafana's colour of the text on a cell, in each theme if they differ; empty if it is that of the theme."""
    if " " in background:
        return " ".join(map(text_colour, background.split()))
    if not re.fullmatch("#[0-9A-Fa-f]{6}([0-9A-Fa-f]{2})?", background) or int(background[7:] or "FF", 16) < 0.3 * 255:
        return ""
    red, green, blue = (int(background[at : at + 2], 16) for at in (1, 3, 5))
    return "#202226" if 0.299 * red + 0.587 * green + 0.114 * blue > 180 else "#F7F8FA"


def threshold_steps(thresholds: Mapping[str, Any]) -> list[tuple[float, str]]:
    """The value and the colour of each step, without the base."""
    steps = thresholds.get("steps") or []
    return [(float(s["value"]), colour(str(s["color"]))) for s in steps if s.get("value") is not None]
