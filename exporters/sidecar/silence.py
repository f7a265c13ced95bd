"""Silences the alerts of a planned change through Alertmanager's API v2; a silence expires by itself."""

import http.client
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from exporters.http.admin_client import send
from exporters.text.addresses import Url, parse_url
from exporters.text.errors import NotReachableError, UsageError
from exporters.vocabulary.signals import Label

ALERTS = "LLM.+"
"""Matches the names of all alerts of the rendered rules except the Watchdog, which must not be silenced."""

_EXAMPLE = "http://127.0.0.1:9093"


@dataclass(frozen=True, slots=True)
class Matcher:
    """A label and its value, or with `is_regex` an anchored pattern; an absent label has an empty value."""

    label: str
    value: str
    is_regex: bool = False

    def __str__(self) -> str:
        return f'{self.label}{"=~" if self.is_regex else "="}"{self.value}"'


Matchers = tuple[Matcher, ...]


def matchers(engine: str | None, model: str | None) -> tuple[Matchers, ...]:
    """The matchers of each silence, which are alternatives.

    SLOs have no engine, so the silence of a model includes alerts without one, but no alerts of its other engines.
    """
    ours = Matcher("alertname", ALERTS, is_regex=True)
    of_engine = () if engine is None else ((ours, Matcher(Label.ENGINE, engine)),)
    if model is None:
        return of_engine or ((ours,),)
    engines = () if engine is None else (Matcher(Label.ENGINE, f"{re.escape(engine)}|", is_regex=True),)
    return (*of_engine, (ours, Matcher(Label.MODEL, model), *engines))


@dataclass(frozen=True, slots=True)
class Alertmanager:
    """An Alertmanager by its URL, which may have a path."""

    text: str
    url: Url

    @classmethod
    def parse(cls, text: str) -> "Alertmanager":
        """Parse the value of --alertmanager; raises UsageError if it is not a URL."""
        return cls(text, parse_url("--alertmanager", text, f"http://host:port, such as {_EXAMPLE}"))

    def silence(self, alternatives: Sequence[Matchers], seconds: float, comment: str) -> list[str]:
        """Silence the alerts of each of the alternatives from now on; returns the ids of the silences.

        Raises:
            UsageError: Alertmanager is unreachable or rejects a silence; there is none then.
        """
        ids: list[str] = []
        try:
            for each in alternatives:
                ids.append(self._create(each, seconds, comment))  # noqa: PERF401 - to end them if one fails
        except UsageError:
            self.expire(ids)
            raise
        return ids

    def expire(self, ids: Sequence[str]) -> None:
        """End silences; raises UsageError if Alertmanager is unreachable."""
        for each in ids:
            self._request("DELETE", f"/silence/{each}")

    def _create(self, matchers: Matchers, seconds: float, comment: str) -> str:
        now = time.time()
        silence = {
            "matchers": [
                {"name": each.label, "value": each.value, "isRegex": each.is_regex, "isEqual": True}
                for each in matchers
            ],
            "startsAt": _rfc3339(now),
            "endsAt": _rfc3339(now + seconds),
            "createdBy": "vllm-slo flip",
            "comment": comment,
        }
        status, text = self._request("POST", "/silences", json.dumps(silence).encode())
        try:
            answer: Any = json.loads(text)
        except ValueError:
            answer = None
        match answer:
            case {"silenceID": str(silence_id)} if status == 200:
                return silence_id
        raise UsageError(
            f"--alertmanager: {self.text}: no silence: status {status} with {text[:200]!r}; write the URL of "
            f"Alertmanager with its API v2, such as {_EXAMPLE}, or declare the change without --maintenance"
        )

    def _request(self, method: str, path: str, body: bytes = b"") -> tuple[int, str]:
        try:
            return send(method, self.url, f"{self.url.path.rstrip('/')}/api/v2{path}", body)
        except (OSError, http.client.HTTPException) as error:
            raise NotReachableError(
                f"--alertmanager: {self.text}: request failed: {str(error) or type(error).__name__}; write the URL of "
                f"Alertmanager, such as {_EXAMPLE}, or declare the change without --maintenance"
            ) from error


def _rfc3339(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
