"""Measures how long the event loop of the load generator could not run."""

from time import monotonic

import gevent

STALL = 0.05
"""Seconds that the event loop must be late to count as stalled."""
_INTERVAL = 0.02


class StallWatch:
    """Sleeps for short times, and counts how often, and for how long, it wakes up late."""

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self.worst = 0.0

    def run(self) -> None:
        """Watch until the greenlet is killed."""
        while True:
            before = monotonic()
            gevent.sleep(_INTERVAL)
            self.add(monotonic() - before - _INTERVAL)

    def add(self, late: float) -> None:
        if late > STALL:
            self.count += 1
            self.seconds += late
            self.worst = max(self.worst, late)
