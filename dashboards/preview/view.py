"""The state of a view: its time range, time zone and selected values of variables."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo

from dashboards.live.interpolation import step_of
from dashboards.live.reader import TimeRange
from dashboards.preview.frames.frame import TimeGrid


@dataclass(frozen=True, slots=True)
class View:
    """A time range, a time zone, and the selected values by variable."""

    time_range: TimeRange
    zone: tzinfo = UTC
    selection: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def step(self) -> float:
        return step_of(self.time_range.seconds, self.time_range.scrape_interval)

    @property
    def aligned(self) -> TimeRange:
        """The range rounded to multiples of the step, so that points keep their timestamps after a refresh."""
        start, end = (moment // self.step * self.step for moment in (self.time_range.start, self.time_range.end))
        return TimeRange(start, max(end, start + self.step), self.time_range.scrape_interval)

    @property
    def grid(self) -> TimeGrid:
        return TimeGrid(self.aligned.start, self.step, round(self.aligned.seconds / self.step) + 1)

    @property
    def local_end(self) -> datetime:
        """The end of the range in the time zone."""
        return datetime.fromtimestamp(self.time_range.end, self.zone)
