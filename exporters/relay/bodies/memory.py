"""Bounds the request bodies that a relay holds: at the bound, it stops reading from clients."""

from collections.abc import Callable


class BodyMemory:
    """Counts the bytes of request bodies that are held, because they are incomplete or the engine has not read them.

    Uploads wait from 7/8 of the limit on. The rest is for requests that are complete when they arrive; at the limit,
    all clients without an open request wait, too. Both end below 3/4, so that they do not alternate with each read.
    """

    def __init__(self, limit: int, on_change: Callable[[], None]) -> None:
        self.limit = limit
        self.held = 0
        self.uploads_wait = False
        self.requests_wait = False
        self._uploads_wait_from = limit * 7 // 8
        self._end_below = limit * 3 // 4
        self._on_change = on_change

    def hold(self, size: int) -> None:
        self.held += size
        if self.held >= self._uploads_wait_from:
            self._set(uploads=True, requests=self.requests_wait or self.held >= self.limit)

    def release(self, size: int) -> None:
        self.held -= size
        if self.uploads_wait and self.held < self._end_below:
            self._set(uploads=False, requests=False)

    def _set(self, *, uploads: bool, requests: bool) -> None:
        if (uploads, requests) != (self.uploads_wait, self.requests_wait):
            self.uploads_wait, self.requests_wait = uploads, requests
            self._on_change()
