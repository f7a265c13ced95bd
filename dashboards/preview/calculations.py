"""Turns a column into one figure, by the names of Grafana's calculations."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

Calc = Callable[[Sequence[Any]], Any]


def _numbers(values: Sequence[Any]) -> list[float]:
    return [value for value in values if isinstance(value, int | float)]


def _present(values: Sequence[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def _of_numbers(calc: Callable[[list[float]], float]) -> Calc:
    return lambda values: calc(found) if (found := _numbers(values)) else None


CALCS: dict[str, tuple[str, Calc]] = {
    "lastNotNull": ("Last *", lambda values: found[-1] if (found := _present(values)) else None),
    "last": ("Last", lambda values: values[-1] if values else None),
    "firstNotNull": ("First *", lambda values: found[0] if (found := _present(values)) else None),
    "first": ("First", lambda values: values[0] if values else None),
    "min": ("Min", _of_numbers(min)),
    "max": ("Max", _of_numbers(max)),
    "mean": ("Mean", _of_numbers(lambda found: sum(found) / len(found))),
    "sum": ("Total", _of_numbers(sum)),
    "count": ("Count", len),
    "range": ("Range", _of_numbers(lambda found: max(found) - min(found))),
    "delta": ("Delta", _of_numbers(lambda found: found[-1] - found[0])),
    "diff": ("Difference", _of_numbers(lambda found: found[-1] - found[0])),
}
"""What stands above each, and what it does."""


def in_order(places: Iterable[int], value: Callable[[int], Any], *, descending: bool) -> list[int]:
    """The places sorted by their values; those without one are last either way."""
    every = list(places)
    known = sorted((place for place in every if value(place) is not None), key=value, reverse=descending)
    return known + [place for place in every if value(place) is None]


def reduce(name: str, values: Sequence[Any]) -> Any:
    """One value for a column; the last one where the calculation is not known."""
    return CALCS.get(name, CALCS["lastNotNull"])[1](values)
