"""The result of one check: its state, what it looked at, what a lack costs, and how to correct it."""

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """A check without evidence is `not checked`, never `ok`."""

    OK = "ok"
    WARNING = "warning"
    """Less is visible, or a limit is near."""
    FAILED = "failed"
    """Requests, measurements or alerts are lost or wrong, or will be."""
    NOT_CHECKED = "not checked"


@dataclass(frozen=True, slots=True)
class Finding:
    """`found` is the evidence, or why there is none; `cost` and `fix` are empty if the state is `ok`."""

    state: State
    looked_at: str
    found: str
    cost: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Unread:
    """A source that could not be read; `fix` would make it readable."""

    reason: str
    fix: str = ""

    def not_checked(self, looked_at: str) -> Finding:
        """The finding of a check that needs this source."""
        return Finding(State.NOT_CHECKED, looked_at, self.reason, fix=self.fix)


@dataclass(frozen=True, slots=True)
class Place:
    """A server: its URL, and whether a flag named it; a server at its default address may not run."""

    url: str
    flag: str
    named: bool

    def unreachable(self, reason: str) -> Unread:
        return Unread(f"{self.url}: {reason}", f"start it, or set {self.flag} URL")

    def finding(self, unread: Unread, cost: str) -> Finding:
        """The finding of the check that the server can be read."""
        if self.named:
            return Finding(State.FAILED, self.url, unread.reason, cost, unread.fix)
        return unread.not_checked(self.url)
