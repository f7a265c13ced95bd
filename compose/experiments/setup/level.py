"""How much load a cell offers: a rate, or a number of users."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Level:
    """The offered load of a cell: a rate in requests/s, or a number of users of a closed loop.

    With neither, the phases of the load scenario.
    """

    rate: float | None = None
    concurrency: int | None = None

    @property
    def name(self) -> str:
        """The name in the folder of a cell."""
        if self.concurrency is not None:
            return f"{self.concurrency}-users"
        return "phases" if self.rate is None else f"{self.rate:g}"

    @property
    def text(self) -> str:
        """The text after the name of a configuration, with a space before it; empty for the phases of the scenario."""
        if self.concurrency is not None:
            return f" with {self.concurrency} user{'s' * (self.concurrency > 1)}"
        return "" if self.rate is None else f" at {self.rate:g}/s"


PHASES = Level()
"""The phases of the load scenario, as they are."""


def levels(rates: Iterable[float], concurrencies: Iterable[int]) -> list[Level]:
    """The loads at which each configuration is measured."""
    found = [Level(rate=rate) for rate in rates] + [Level(concurrency=users) for users in concurrencies]
    return found or [PHASES]


def at_level(level: Level, among: Collection[Level]) -> str:
    """The level after the name of what is measured at it; empty if there is only one."""
    return level.text if len(among) > 1 else ""
