"""The interface of a source of recorded requests: a request log or Prometheus."""

from collections.abc import Sequence
from typing import Protocol

from exporters.comparison.comparison_windows import Change, Coverage, Window
from exporters.comparison.figures import Measurements


class Source(Protocol):
    """A request log, or Prometheus."""

    name: str

    @property
    def coverage(self) -> Coverage: ...

    @property
    def changes(self) -> Sequence[Change]:
        """In order of time."""

    @property
    def search_scope(self) -> str:
        """Where no change was found."""

    def changed_to(self, revision: str) -> Change:
        """The newest change to a revision that begins so.

        Raises:
            UsageError: there is none, or several revisions begin so.
        """

    def outages(self, near: Window) -> Sequence[Window]:
        """When no engine answered, at least those in there."""

    def measurements(self, window: Window, lead: float) -> Measurements:
        """Without requests that had begun more than `lead` seconds before the window, where that can be told."""

    def notes(self, before: Window, after: Window) -> Sequence[str]:
        """What to know of these figures."""
