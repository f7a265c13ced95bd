"""Reads the readiness and the metrics of a sidecar."""

from dataclasses import dataclass

from compose.doctor.finding import Place, Unread
from compose.doctor.http_fetch import Response, fetch
from exporters.engines.exposition import Exposition, parse_exposition
from exporters.processes.worker_threads import WorkerThreads
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label, Signal

_READ = (
    *(signals.SIDECAR_BUILD, signals.SIDECAR_RELOAD_SUCCESSFUL),
    *(signals.ENGINE_UP, signals.ENGINE_STATE, signals.ENGINE_STATE_REASON, signals.SIDECAR_UPSTREAM_ERRORS),
    *(signals.SIDECAR_CONNECTIONS, signals.SIDECAR_CONNECTIONS_LIMIT),
    *(signals.REQUESTS, signals.REQUESTS_WITH_ENGINE_TIMES, signals.CACHED_TOKENS, signals.ENGINE_CACHE_HITS),
)


@dataclass(frozen=True, slots=True)
class SidecarPage:
    """The samples of `/metrics`."""

    exposition: Exposition

    def values(self, signal: Signal, by: Label) -> dict[str, float]:
        """Sums by the value of a label."""
        sums: dict[str, float] = {}
        for pairs, value in self.exposition.samples_of(signal.name).items():
            key = dict(pairs).get(by, "")
            sums[key] = sums.get(key, 0.0) + value
        return sums

    def names(self, signal: Signal, label: Label) -> dict[str, str]:
        """The value of a label by engine, in the samples that are 1."""
        samples = self.exposition.samples_of(signal.name).items()
        return {dict(pairs)[Label.ENGINE]: dict(pairs)[label] for pairs, value in samples if value == 1}

    def total(self, signal: Signal, **labels: tuple[str, ...]) -> float:
        """The sum of the samples whose labels have one of these values."""
        return sum(
            value
            for pairs, value in self.exposition.samples_of(signal.name).items()
            if all(dict(pairs).get(name) in values for name, values in labels.items())
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarReading:
    """The content of each response, or why there is none."""

    place: Place
    readiness: Response | Unread
    page: SidecarPage | Unread


def read_sidecar(place: Place) -> SidecarReading:
    with WorkerThreads(4, "doctor") as pool:
        readiness = pool.submit(fetch, place, "/readyz")
        metrics = pool.submit(fetch, place, "/metrics")
        return SidecarReading(place=place, readiness=readiness.result(), page=_page(place, metrics.result()))


def _page(place: Place, response: Response | Unread) -> SidecarPage | Unread:
    if isinstance(response, Unread):
        return response
    if response.status == 401:
        return Unread(
            f"{place.url}/metrics: HTTP 401; the sidecar has --metrics-auth-file", "query its series in Prometheus"
        )
    try:
        page = SidecarPage(parse_exposition(response.body, {signal.name for signal in _READ}))
    except ValueError:
        page = None
    if response.status != 200 or page is None or not page.values(signals.SIDECAR_BUILD, Label.VERSION):
        return Unread(f"{place.url} is not the metrics port of a sidecar", f"set {place.flag} to its --metrics address")
    return page
