"""Samples of series for a real Prometheus."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain

EVERY = 15
"""Seconds between two scrapes."""

Series = Mapping[str, Callable[[int], float | None]]
"""The value of each series at the n-th scrape from a time on; None without a sample."""


def lines(series: Series, since: float, scrapes: Iterable[int]) -> Iterator[str]:
    """The samples in OpenMetrics, family by family."""
    families: dict[str, list[str]] = {}
    for scrape in scrapes:
        for name, value_at in series.items():
            if (value := value_at(scrape)) is not None:
                samples = families.setdefault(name.partition("{")[0], [])
                samples.append(f"{name} {value} {since + scrape * EVERY}\n")
    return chain.from_iterable(families.values())


def counter(increase: float) -> Callable[[int], float]:
    return lambda scrape: increase * scrape
