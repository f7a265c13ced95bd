"""Asks a live Prometheus over HTTP, for what it knows or only for how much."""

import json
import math
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exporters.errors import UsageError


@dataclass(frozen=True, slots=True)
class Answer:
    """What one request brought: `samples` leaves out NaN, which is drawn as nothing; `error` when it failed."""

    series: int
    samples: int
    seconds: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A server by its base URL, such as `http://127.0.0.1:9090`."""

    url: str
    timeout: float = 30.0

    def ask(self, path: str, parameters: Mapping[str, str]) -> Answer:
        """One request to the HTTP API, such as `/api/v1/query`.

        Raises:
            UsageError: nothing answers at the URL.
        """
        started = time.monotonic()
        try:
            data, error = self.data(path, parameters), ""
        except FailedError as failed:
            data, error = None, str(failed)
        series, samples = _count(data)
        return Answer(series, samples, time.monotonic() - started, error)

    def data(self, path: str, parameters: Mapping[str, str]) -> Any:
        """What one request to the HTTP API answers.

        Raises:
            FailedError: it was refused, or not answered as a Prometheus would.
            UsageError: nothing answers at the URL.
        """
        url = f"{self.url.rstrip('/')}{path}?{urllib.parse.urlencode(parameters)}"
        try:
            # the command line lets no other scheme through
            with urllib.request.urlopen(url, timeout=self.timeout) as response:  # noqa: S310
                body = response.read()
        except urllib.error.HTTPError as error:
            with error:
                raise FailedError(_reason(error)) from error
        except urllib.error.URLError as error:
            why = getattr(error.reason, "strerror", None) or error.reason
            raise UsageError(
                f"cannot reach Prometheus at {self.url}: {str(why).lower()}; "
                "give the address of its web page to --prometheus, such as http://127.0.0.1:9090"
            ) from error
        except TimeoutError as error:
            raise FailedError(f"no answer within {self.timeout:g} s") from error
        except OSError as error:
            raise FailedError(f"the connection broke: {str(error).lower()}") from error
        try:
            return json.loads(body)["data"]
        except (ValueError, KeyError, TypeError) as error:
            raise FailedError("the answer is not that of a Prometheus") from error


class FailedError(Exception):
    """A request failed; the text says why."""


def _reason(error: urllib.error.HTTPError) -> str:
    """The message of Prometheus's JSON, else the status line, as from a proxy in between."""
    try:
        return str(json.load(error)["error"])
    except (ValueError, KeyError, TypeError, OSError):
        return f"HTTP {error.code} {error.reason}"


def _count(data: Any) -> tuple[int, int]:
    match data:
        case {"resultType": "matrix" | "vector", "result": list(result)}:
            drawn = [sum(_is_number(v) for _, v in one.get("values", [one.get("value")])) for one in result]
            return len(drawn), sum(drawn)
        case {"resultType": "scalar" | "string", "result": [_, value]}:
            return 1, int(_is_number(value))
        case [*values]:  # the values of a label
            return len(values), len(values)
        case _:
            return 0, 0


def _is_number(value: str) -> bool:
    try:
        return not math.isnan(float(value))
    except ValueError:
        return True  # a string, or a native histogram
