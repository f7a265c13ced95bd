"""Waits until the target runs no request, by the gauges of its /metrics, or for a fixed time if it has none."""

import re
from contextlib import suppress
from time import monotonic

import gevent

from exporters.http.parser import BadHttpError
from exporters.vocabulary import signals
from loadgen.client.http_client import HttpClient, UnreachableError

LIMIT = 120.0
"""Longest wait in seconds for an empty engine."""
_INTERVAL = 0.5
_TIMEOUT = 5.0
_GAUGES = ("vllm:num_requests_running", "vllm:num_requests_waiting")
_SIDECAR_GAUGES = (signals.ENGINE_RUNNING.name, signals.ENGINE_WAITING.name)
_SAMPLE = re.compile(rf"^({'|'.join((*_GAUGES, *_SIDECAR_GAUGES))})(?:\{{.*\}})? +([0-9.e+]+)", re.MULTILINE)


def open_requests(exposition: str) -> float | None:
    """The running and waiting requests of all engines; None without such a series."""
    samples = [float(match[2]) for match in _SAMPLE.finditer(exposition)]
    return sum(samples) if samples else None


def wait_until_idle(client: HttpClient, cool_down: float) -> bool | None:
    """Whether the engine became idle within the limit; None after the cool-down of one that does not report it."""
    end = monotonic() + LIMIT
    while (found := _read(client)) is not None:
        if not found:
            return True
        if monotonic() > end:
            return False
        gevent.sleep(_INTERVAL)
    gevent.sleep(cool_down)
    return None


def unreachable(client: HttpClient) -> str | None:
    """Why the target does not respond; None if it does, whatever it responds."""
    try:
        with suppress(BadHttpError):
            client.get("/v1/models", _TIMEOUT)
    except UnreachableError as error:
        return str(error)
    return None


def _read(client: HttpClient) -> float | None:
    try:
        response = client.get("/metrics", _TIMEOUT)
    except (UnreachableError, BadHttpError):
        return None
    return open_requests(response.body.decode("utf-8", "replace")) if response.http.status == 200 else None
