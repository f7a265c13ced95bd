"""Contrast of colours (WCAG 2), and their distance as seen with normal vision and with red-green colour blindness."""

from itertools import combinations
from math import cbrt, dist

_SEEN_WITH = {
    "normal vision": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    # Machado, Oliveira and Fernandes 2009, severity 1
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
}


def contrast(one: str, other: str) -> float:
    low, high = sorted(map(_luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def least_distance(*colours: str) -> float:
    """Distance of the most similar pair in OKLab (black and white: 1), with the least favourable vision."""
    return min(
        dist(_oklab(one, matrix), _oklab(other, matrix))
        for matrix in _SEEN_WITH.values()
        for one, other in combinations(colours, 2)
    )


def _linear(colour: str) -> list[float]:
    shares = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]


def _luminance(colour: str) -> float:
    red, green, blue = _linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _oklab(colour: str, matrix: tuple[tuple[float, ...], ...]) -> tuple[float, float, float]:
    seen = (sum(a * b for a, b in zip(row, _linear(colour), strict=True)) for row in matrix)
    red, green, blue = (min(1.0, max(0.0, each)) for each in seen)
    long = cbrt(0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue)
    middle = cbrt(0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue)
    short = cbrt(0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue)
    return (
        0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.8086757660 * short,
    )
