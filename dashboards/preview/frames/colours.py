"""Grafana's named colours, and the colour of a value by thresholds or between two others."""

import math
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

TEXT, TRANSPARENT = "text", "transparent"
"""Names that the page resolves to a colour."""


def colour(name: str) -> str:
    """The CSS colour for a name or code; "#dark #light" where the themes differ."""
    return _GRAFANA_COLOURS.get(name, name)


def between(low: str, high: str, share: float) -> str:
    """The colour at a share from `low` to `high`, in each theme."""
    themes = zip(colour(low).split(), colour(high).split(), strict=True)
    return " ".join(_mixed(*ends, min(1.0, max(0.0, share))) for ends in themes)


def _mixed(low: str, high: str, share: float) -> str:
    parts = ([int(code[at : at + 2], 16) for code in (low, high)] for at in (1, 3, 5))
    return "#" + "".join(f"{math.floor(one + (other - one) * share + 0.5):02X}" for one, other in parts)


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
