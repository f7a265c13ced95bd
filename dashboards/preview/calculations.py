"""Grafana's calculations by name, which reduce a column to one value."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

Calc = Callable[[Sequence[Any]], Any]


def _numbers(values: Sequence[Any]) -> list[float]:
    return [value for value in values if isinstance(value, int | float)]


def _present(values: Sequence[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def _of_numbers(calc: Callable[[list[float]], float]) -> Calc:
    return lambda values: calc(numbers) if (numbers := _numbers(values)) else None


CALCS: dict[str, tuple[str, Calc]] = {
    "lastNotNull": ("Last *", lambda values: numbers[-1] if (numbers := _present(values)) else None),
    "last": ("Last", lambda values: values[-1] if values else None),
    "firstNotNull": ("First *", lambda values: numbers[0] if (numbers := _present(values)) else None),
    "first": ("First", lambda values: values[0] if values else None),
    "min": ("Min", _of_numbers(min)),
    "max": ("Max", _of_numbers(max)),
    "mean": ("Mean", _of_numbers(lambda numbers: sum(numbers) / len(numbers))),
    "sum": ("Total", _of_numbers(sum)),
    "count": ("Count", len),
    "range": ("Range", _of_numbers(lambda numbers: max(numbers) - min(numbers))),
    "delta": ("Delta", _of_numbers(lambda numbers: numbers[-1] - numbers[0])),
    "diff": ("Difference", _of_numbers(lambda numbers: numbers[-1] - numbers[0])),
}
"""The heading and the function of each calculation."""


def sort_rows(rows: Iterable[int], value: Callable[[int], Any], *, descending: bool) -> list[int]:
    """The rows sorted by their values; rows without a value come last in both directions."""
    all_rows = list(rows)
    with_value = sorted((row for row in all_rows if value(row) is not None), key=value, reverse=descending)
    return with_value + [row for row in all_rows if value(row) is None]


def reduce(name: str, values: Sequence[Any]) -> Any:
    """One value for a column; an unknown calculation gives the last value."""
    return CALCS.get(name, CALCS["lastNotNull"])[1](values)
