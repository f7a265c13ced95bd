"""The requests that wait in a window, which show whether the load can be served, and those that the change failed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from exporters.analysis.estimates.block_means import block_rate
from exporters.analysis.estimates.estimates import Z
from exporters.analysis.estimates.figures import Measurement
from exporters.analysis.estimates.windows import Window


class Trend(StrEnum):
    GREW = "grew"
    SHRANK = "shrank"


@dataclass(frozen=True, slots=True)
class Backlog:
    """The number of waiting requests at the edges of the blocks of a window, and the arrivals in the window."""

    window: Window
    waiting: Sequence[float]
    arrived: float

    @property
    def growth(self) -> float:
        return self.waiting[-1] - self.waiting[0]

    @property
    def served_per_second(self) -> float:
        """Requests that no longer wait, per second."""
        return (self.arrived - self.growth) / self.window.seconds

    @property
    def trend(self) -> Trend | None:
        """None if random arrivals at a load that the engine can serve explain the growth.

        The growth is arrivals minus requests served; the variance of a Poisson count is its mean.
        """
        variance = 2 * self.arrived - self.growth
        if abs(self.growth) <= Z * math.sqrt(max(variance, 0.0)):
            return None
        return Trend.GREW if self.growth > 0 else Trend.SHRANK

    def as_json(self) -> dict[str, object]:
        """The waiting requests at both ends of the window, and the requests/s that no longer wait."""
        return {
            "trend": self.trend and self.trend.value,
            "waiting_at_start": round(self.waiting[0]),
            "waiting_at_end": round(self.waiting[-1]),
            "served_per_second": float(f"{self.served_per_second:.6g}"),
        }

    @property
    def measurement(self) -> Measurement:
        """The growth per second, over the blocks."""
        growths = [late - early for early, late in zip(self.waiting, self.waiting[1:], strict=False)]
        return Measurement(round(self.arrived), block_rate(self.window, growths, lowest=-math.inf))


@dataclass(frozen=True, slots=True)
class ChangeFailures:
    """Requests that failed between the two windows, by the server's fault; the fields are also those of the JSON.

    `in_flight_at_change` is counted at the end of the first window. `in_flight_failed` is None if the source has no
    individual requests.
    """

    between_windows: int
    in_flight_at_change: int
    in_flight_failed: int | None

    @property
    def text(self) -> str:
        """A clause for the report."""
        if self.in_flight_failed is None:
            open_requests = f"{self.in_flight_at_change} were in flight at the change"
            return f"{self.between_windows} requests failed between the windows ({open_requests})"
        text = f"{self.in_flight_failed} of the {self.in_flight_at_change} requests in flight at the change failed"
        others = self.between_windows - self.in_flight_failed
        return f"{text}, and {others} that arrived between the windows" if others else text
