"""Notices that requests fail one after the other in the same way, so that a run does not end before someone looks."""

from loadgen.results.record import ClientOutcome, Record

FIRST = 5
"""Failures before the first success that give a notice."""
LATER = 20
"""Failures in a row after a success that give one."""


class FailureNotice:
    """Takes the records of a run; each kind of failure gives one notice at most."""

    def __init__(self) -> None:
        self._kind: tuple[ClientOutcome, int | None] | None = None
        self._count = 0
        self._limit = FIRST
        self._noticed: set[tuple[ClientOutcome, int | None]] = set()

    def add(self, record: Record) -> str | None:
        """The text of a notice that this record completes."""
        match record.outcome:
            case ClientOutcome.OK:
                self._kind, self._limit = None, LATER
                return None
            case ClientOutcome.CUT | ClientOutcome.NOT_SENT:  # not by the target
                return None
        kind = record.outcome, record.status
        self._count = self._count + 1 if kind == self._kind else 1
        self._kind = kind
        if self._count < self._limit or kind in self._noticed:
            return None
        self._noticed.add(kind)
        which = "first" if self._limit == FIRST else "last"
        status = "" if record.status is None else f", status {record.status}"
        reason = "" if record.error is None else f": {record.error}"
        return f"the {which} {self._count} requests all failed: {record.outcome}{status}{reason}; ctrl-c stops the run"
