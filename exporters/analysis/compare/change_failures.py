"""The requests that failed while the config changed, which are in neither of the two windows."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ChangeFailures:
    """Requests that failed between the two windows, by the server's fault; `in_flight` at the end of the first window.

    `in_flight_failed` is None if the source has no individual requests.
    """

    failed: int
    in_flight: int
    in_flight_failed: int | None

    def as_json(self) -> dict[str, int | None]:
        return {
            "between_windows": self.failed,
            "in_flight_at_change": self.in_flight,
            "in_flight_failed": self.in_flight_failed,
        }

    @property
    def text(self) -> str:
        """A clause for the report."""
        if self.in_flight_failed is None:
            return f"{self.failed} requests failed between the windows ({self.in_flight} were in flight at the change)"
        text = f"{self.in_flight_failed} of the {self.in_flight} requests in flight at the change failed"
        others = self.failed - self.in_flight_failed
        return f"{text}, and {others} that arrived between the windows" if others else text
