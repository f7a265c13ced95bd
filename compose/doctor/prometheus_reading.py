"""Reads the configuration, the targets, the rules and the clock of a Prometheus, or of a server with its API."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import yaml

from compose.doctor.engine_pods import EnginePod, read_engine_pods
from compose.doctor.finding import Place, Unread
from compose.doctor.http_fetch import TIMEOUT
from compose.doctor.rule_difference import Rules, our_rules
from exporters.analysis.label_collisions import LABELS_PATH, Collision, collisions
from exporters.analysis.prometheus_api import Prometheus, PrometheusError, UnreachableError
from exporters.processes.worker_threads import WorkerThreads
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label

_T = TypeVar("_T")

_BY_ENGINE = f"{Label.INSTANCE}, {Label.ENGINE}"
_REVISIONS = (
    f"count by ({_BY_ENGINE}) (group by ({_BY_ENGINE}, {Label.REVISION}) "
    f"(last_over_time({signals.ENGINE_CONFIG_INFO.name}[1d])))"
)
# One hour more: the time of a change is the start of the engine, which may be before the day, and its revision in it.
_CHANGED_SETTINGS = (
    f"count by ({_BY_ENGINE}) (last_over_time({signals.ENGINE_CONFIG_CHANGE.name}[1d]) > time() - 25 * 3600)"
)
_RECENT = 300.0
"""Seconds for which Prometheus returns the last sample of a series."""


@dataclass(frozen=True, slots=True)
class ServerTime:
    """`time()` of a query between two moments of this machine, in unix seconds."""

    time: float
    sent_at: float
    received_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusReading:
    """The content of each response, or why there is none."""

    place: Place
    version: str | Unread
    flags: Mapping[str, str] | Unread
    config: Mapping[str, Any] | Unread
    targets: Sequence[Mapping[str, Any]] | Unread
    """The active targets."""
    rules: Rules | Unread
    """The rules of our groups."""
    collisions: Sequence[Collision] | Unread
    clock: ServerTime | Unread
    revisions: Mapping[tuple[str, str], int] | Unread
    """Config revisions in the last day, by sidecar and engine."""
    changed_settings: Mapping[tuple[str, str], int] | Unread
    """Settings that changed in this time, by sidecar and engine."""
    engine_pods: Sequence[EnginePod] | Unread

    def formatted(self, expression: str) -> str | None:
        """The expression as this server prints it; None if it cannot."""
        try:
            return str(_client(self.place).get("/api/v1/format_query", {"query": expression}))
        except PrometheusError:
            return None


def read_prometheus(place: Place) -> PrometheusReading:
    client, now = _client(place), time.time()

    def attempt(path: str, read: Callable[[], _T]) -> _T | Unread:
        try:
            return read()
        except PrometheusError as error:
            return place.unreachable(error.reason) if isinstance(error, UnreachableError) else other(path, error.reason)
        except (LookupError, TypeError, ValueError, AttributeError, yaml.YAMLError):
            return other(path, "the response is not from Prometheus")

    def other(path: str, reason: str) -> Unread:
        return Unread(f"{place.url}{path}: {reason}", f"check {place.flag}; other servers may lack this endpoint")

    def get(path: str, convert: Callable[[Any], _T], parameters: Mapping[str, str] | None = None) -> _T | Unread:
        return attempt(path, lambda: convert(client.get(path, parameters or {})))

    def query(read: Callable[[], _T]) -> _T | Unread:
        return attempt("/api/v1/query", read)

    reads: dict[str, Callable[[], Any]] = {
        "version": lambda: get("/api/v1/status/buildinfo", lambda data: str(data["version"])),
        "flags": lambda: get("/api/v1/status/flags", dict),
        "config": lambda: get("/api/v1/status/config", lambda data: dict(yaml.safe_load(data["yaml"]))),
        "targets": lambda: get("/api/v1/targets", lambda data: list(data["activeTargets"]), {"state": "active"}),
        "rules": lambda: get("/api/v1/rules", lambda data: our_rules(data["groups"])),
        "collisions": lambda: attempt(LABELS_PATH, lambda: collisions(client, now - _RECENT, now)),
        "clock": lambda: query(lambda: _server_time(client)),
        "revisions": lambda: query(lambda: _counts(client, _REVISIONS)),
        "changed_settings": lambda: query(lambda: _counts(client, _CHANGED_SETTINGS)),
        "engine_pods": lambda: query(lambda: read_engine_pods(client)),
    }
    with WorkerThreads(4, "doctor") as pool:
        found = dict(zip(reads, pool.map(lambda read: read(), reads.values()), strict=True))
    return PrometheusReading(place=place, **found)


def _client(place: Place) -> Prometheus:
    return Prometheus(place.url, timeout=TIMEOUT)


def _counts(client: Prometheus, query: str) -> Mapping[tuple[str, str], int]:
    """The result of a query by sidecar and engine."""
    return {
        (each.labels.get(Label.INSTANCE, ""), each.labels.get(Label.ENGINE, "")): int(each.value)
        for each in client.query(query)
    }


def _server_time(client: Prometheus) -> ServerTime:
    sent_at = time.time()
    (sample,) = client.query("vector(time())")
    return ServerTime(sample.value, sent_at, time.time())
