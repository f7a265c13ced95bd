"""Grafana's calculations by name, which reduce a column to one value, and its order of values."""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cmp_to_key
from itertools import pairwise
from typing import Any

Calc = Callable[[Sequence[Any]], Any]


def is_absent(value: Any) -> bool:
    """Whether a value is null or NaN; Grafana counts neither in a calculation, but shows them differently."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def _numbers(values: Sequence[Any]) -> list[float]:
    return [value for value in values if isinstance(value, int | float) and not is_absent(value)]


def _present(values: Sequence[Any]) -> list[Any]:
    return [value for value in values if not is_absent(value)]


def _of_numbers(calc: Callable[[list[float]], float]) -> Calc:
    return lambda values: calc(numbers) if (numbers := _numbers(values)) else None


def _delta(values: Sequence[Any]) -> Any:
    """The sum of all increases; the first increase after a decrease is not counted, as in Grafana."""
    if not values:
        return None
    total, was_up = 0.0, True
    for before, after in pairwise(_numbers(values)):
        if after >= before and was_up:
            total += after - before
        was_up = after >= before
    return total


CALCS: dict[str, tuple[str, Calc]] = {
    "lastNotNull": ("Last *", lambda values: numbers[-1] if (numbers := _present(values)) else None),
    "last": ("Last", lambda values: values[-1] if values else None),
    "firstNotNull": ("First *", lambda values: numbers[0] if (numbers := _present(values)) else None),
    "first": ("First", lambda values: values[0] if values else None),
    "min": ("Min", _of_numbers(min)),
    "max": ("Max", _of_numbers(max)),
    "mean": ("Mean", _of_numbers(lambda numbers: sum(numbers) / len(numbers))),
    "sum": ("Total", lambda values: sum(_numbers(values))),
    "count": ("Count", lambda values: sum(value is not None for value in values)),
    "range": ("Range", _of_numbers(lambda numbers: max(numbers) - min(numbers))),
    "delta": ("Delta", _delta),
    "diff": ("Difference", _of_numbers(lambda numbers: numbers[-1] - numbers[0])),
}
"""The heading and the function of each calculation."""


def sort_rows(rows: Iterable[int], value: Callable[[int], Any], *, descending: bool) -> list[int]:
    """The rows as Grafana's transformation sorts them: null is 0 among numbers, an empty text is after all texts."""

    def compare(one: int, other: int) -> int:
        a, b = (value(other), value(one)) if descending else (value(one), value(other))
        if isinstance(a, str) or isinstance(b, str):
            if not a or not b:
                return bool(b) - bool(a)
            a, b = a.casefold(), b.casefold()
        else:
            a, b = a or 0, b or 0
        # NaN is neither above nor below
        return int(a > b) - int(a < b)

    return sorted(rows, key=cmp_to_key(compare))


def sort_table_rows(rows: Iterable[int], value: Callable[[int], Any], *, descending: bool) -> list[int]:
    """The rows as Grafana's tables and legends sort them: a missing value is lower than all others."""

    def key(row: int) -> tuple[bool, Any]:
        each = value(row)
        return not is_absent(each), 0 if is_absent(each) else each.casefold() if isinstance(each, str) else each

    return sorted(rows, key=key, reverse=descending)


def reduce(name: str, values: Sequence[Any]) -> Any:
    """One value for a column; an unknown calculation gives the last value."""
    return CALCS.get(name, CALCS["lastNotNull"])[1](values)
