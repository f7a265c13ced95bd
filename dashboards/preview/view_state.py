"""What is looked at: when, in which time zone, and what the variables at the top have chosen."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo

from dashboards.audit import TimeRange
from dashboards.interpolation import step_of
from dashboards.preview.data_frames import Grid


@dataclass(frozen=True, slots=True)
class View:
    """A time range, where its moments are read, and the choices that somebody made."""

    span: TimeRange
    zone: tzinfo = UTC
    chosen: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def step(self) -> float:
        return step_of(self.span.seconds, self.span.scrape_interval)

    @property
    def aligned(self) -> TimeRange:
        """The range on multiples of its step, so that a refresh moves points and never bends them."""
        start, end = (moment // self.step * self.step for moment in (self.span.start, self.span.end))
        return TimeRange(start, max(end, start + self.step), self.span.scrape_interval)

    @property
    def grid(self) -> Grid:
        return Grid(self.aligned.start, self.step, round(self.aligned.seconds / self.step) + 1)

    @property
    def local(self) -> datetime:
        """The end of the range as a clock on the wall shows it."""
        return datetime.fromtimestamp(self.span.end, self.zone)
