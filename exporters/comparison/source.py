"""What a comparison asks of the place where requests were recorded."""

from collections.abc import Sequence
from typing import Protocol

from exporters.comparison.comparison_windows import Change, Reach, Window
from exporters.comparison.measures import Measures


class Source(Protocol):
    """A request log, or Prometheus."""

    name: str

    @property
    def reach(self) -> Reach: ...

    @property
    def changes(self) -> Sequence[Change]:
        """In order of time."""

    @property
    def looked_at(self) -> str:
        """Where no change was found."""

    def changed_to(self, revision: str) -> Change:
        """The newest change to a revision that begins so.

        Raises:
            UsageError: there is none, or several revisions begin so.
        """

    def outages(self, near: Window) -> Sequence[Window]:
        """When no engine answered, at least those in there."""

    def measures(self, window: Window, lead: float) -> Measures:
        """Without requests that had begun more than `lead` seconds before the window, where that can be told."""

    def notes(self, before: Window, after: Window) -> Sequence[str]:
        """What to know of these figures."""
