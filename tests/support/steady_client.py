"""A client that sends short requests one after the other, so that a test can say which of them a failure cost."""

import http.client
import json
import threading
import time
import urllib.request
import uuid
from dataclasses import dataclass
from types import TracebackType
from typing import Self

PAUSE = 0.1
"""Seconds between two requests."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One request; times in unix seconds, `ok` if its response was complete."""

    request_id: str
    began: float
    ended: float
    ok: bool


class SteadyClient:
    """Sends requests to the relay at `url` from a thread of its own while it is entered."""

    def __init__(self, url: str, model: str) -> None:
        self.sent: list[Sent] = []
        self._url = f"{url}/v1/completions"
        self._body = json.dumps({"model": model, "prompt": "Hello", "max_tokens": 4}).encode()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def completed(self, count: int) -> int:
        """How many requests have succeeded, less `count`."""
        return sum(each.ok for each in list(self.sent)) - count

    def _run(self) -> None:
        while not self._stop.wait(PAUSE):
            name, began = f"steady-{uuid.uuid4()}", time.time()
            ok = self._send(name)
            self.sent.append(Sent(name, began, time.time(), ok))

    def _send(self, request_id: str) -> bool:
        headers = {"Content-Type": "application/json", "x-request-id": request_id}
        request = urllib.request.Request(self._url, data=self._body, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return bool(json.load(response)["choices"])
        except (OSError, http.client.HTTPException, ValueError):  # refused, reset, or cut in the body
            return False
