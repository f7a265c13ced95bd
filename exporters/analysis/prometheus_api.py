"""A synchronous client of Prometheus's HTTP API; asyncio code calls it through `asyncio.to_thread`.

It uses urllib, because a library would be a dependency of all commands, and single requests need no connection pool.
"""

import http.client
import json
import logging
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exporters.text.addresses import is_loopback
from exporters.text.errors import NotReachableError, UsageError
from exporters.text.units import number

_log = logging.getLogger(__name__)


class PrometheusError(Exception):
    """A request to Prometheus failed; `reason` does not contain the address."""

    def __init__(self, reason: str, message: str | None = None) -> None:
        super().__init__(message or reason)
        self.reason = reason


class UnreachableError(PrometheusError, NotReachableError):
    """Nothing listens at the URL."""


class QueryError(PrometheusError):
    """The request was rejected or timed out, or the response is not from a Prometheus."""


class NoResponseError(QueryError):
    """The request timed out, or the connection was lost."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One series of an instant query."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Series:
    """One series of a range query; each point is a time in unix seconds and a value."""

    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Alert:
    """An active alert; `state` is `pending` or `firing`."""

    state: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A server by its base URL, such as `http://127.0.0.1:9090`.

    All methods raise UnreachableError if nothing listens at the URL, and QueryError for all other failures.
    """

    url: str
    timeout: float = 30.0

    def query(self, expression: str, at: float | None = None) -> list[Sample]:
        """The vector of an instant query, now or at `at` (unix seconds)."""
        time = {} if at is None else {"time": f"{at:.3f}"}
        result = self._result("/api/v1/query", {"query": expression, **time})
        return [Sample(series["metric"], float(series["value"][1])) for series in result]

    def query_by(self, label: str, expression: str, at: float | None = None) -> dict[str, float]:
        """The values of an instant query by the value of `label`; series without the label are omitted."""
        return {sample.labels[label]: sample.value for sample in self.query(expression, at) if label in sample.labels}

    def query_range(self, expression: str, start: float, end: float, step: float) -> list[Series]:
        """The matrix of a range query; times in unix seconds."""
        parameters = {"query": expression, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": number(step)}
        return [
            Series(series["metric"], [(float(at), float(value)) for at, value in series["values"]])
            for series in self._result("/api/v1/query_range", parameters)
        ]

    def alerts(self) -> list[Alert]:
        return [Alert(alert["state"], alert["labels"]) for alert in self.get("/api/v1/alerts", {})["alerts"]]

    def get(self, path: str, parameters: Mapping[str, str]) -> Any:
        """The `data` of the response to `GET path`; its warnings are logged."""
        url = f"{self.url.rstrip('/')}{path}?{urllib.parse.urlencode(parameters)}"
        # A proxy from the environment cannot reach the loopback interface of this machine.
        proxies = [urllib.request.ProxyHandler({})] if is_loopback(urllib.parse.urlsplit(url).hostname or "") else []
        try:
            with urllib.request.build_opener(*proxies).open(url, timeout=self.timeout) as response:
                body = response.read()
        except urllib.error.HTTPError as error:
            with error:
                raise QueryError(_reason(error)) from error
        except urllib.error.URLError as error:
            reason = str(getattr(error.reason, "strerror", None) or error.reason).lower()
            raise UnreachableError(
                reason,
                f"cannot reach Prometheus at {self.url}: {reason}; "
                "set --prometheus to its address, such as http://127.0.0.1:9090",
            ) from error
        except TimeoutError as error:
            raise NoResponseError(f"no response within {self.timeout:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            raise NoResponseError(f"connection failed: {str(error).lower()}") from error
        try:
            content = json.loads(body)
            for warning in content.get("warnings") or ():
                _log.warning("Prometheus at %s: %s", self.url, warning)
            return content["data"]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise QueryError("the response is not from Prometheus") from error

    def _result(self, path: str, parameters: Mapping[str, str]) -> list[Any]:
        match self.get(path, parameters):
            case {"resultType": "vector" | "matrix", "result": list(result)}:
                return result
        raise QueryError("the response is not from Prometheus")


class FlagPrometheus(Prometheus):
    """The server of --prometheus: its queries raise UsageError if they fail."""

    def _result(self, path: str, parameters: Mapping[str, str]) -> list[Any]:
        try:
            return super()._result(path, parameters)
        except QueryError as error:
            kind = NotReachableError if isinstance(error, NoResponseError) else UsageError
            raise kind(f"--prometheus: a query of {self.url} failed: {error.reason}") from error


def _reason(error: urllib.error.HTTPError) -> str:
    """The error message of Prometheus, or the status line if a proxy has responded."""
    try:
        return str(json.load(error)["error"])
    except (ValueError, KeyError, TypeError, OSError):
        return f"HTTP {error.code} {error.reason}"
