"""Logs the begin and the end of an outage, not each failure."""

import logging
from math import inf

LOG_SECONDS = 60.0
"""The shortest time between two warnings of one outage log."""


class OutageLog:
    """Logs the first failure, another reason for it, and the end of the outage; times are monotonic seconds."""

    def __init__(self, logger: logging.Logger, subject: str, verb: str) -> None:
        """The messages begin with `SUBJECT cannot be VERB` and `SUBJECT can be VERB again`."""
        self._logger = logger
        self._subject = subject
        self._verb = verb
        self._since: float | None = None
        self._logged_reason: str | None = None
        self._logged_at = -inf

    def failed(self, reason: str, now: float) -> None:
        self._since = now if self._since is None else self._since
        if reason != self._logged_reason and now - self._logged_at >= LOG_SECONDS:
            self._logged_reason, self._logged_at = reason, now
            self._logger.warning("%s cannot be %s: %s", self._subject, self._verb, reason)

    def succeeded(self, now: float) -> None:
        if self._since is None:
            return
        if self._logged_reason is not None:
            self._logger.info("%s can be %s again, after %.0f s", self._subject, self._verb, now - self._since)
        self._since = self._logged_reason = None
