"""The figures of one class in one window, from its requests; each value counts at the time when it was known."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from exporters.analysis.compare.engine_work import measure_work
from exporters.analysis.compare.request import Request
from exporters.analysis.estimates import figures
from exporters.analysis.estimates.event_estimates import quantiles, rate, share
from exporters.analysis.estimates.figures import Figure, Measurement
from exporters.analysis.estimates.windows import Window
from exporters.vocabulary.signals import Outcome, Verdict
from exporters.vocabulary.slo_file import Measure, SloFile
from exporters.vocabulary.verdicts import ApplicableSlos, applicable_slos

Event = tuple[float, bool]
"""The time when a verdict was certain, and whether it is good."""


def measure(requests: Sequence[Request], window: Window, lead: float, spec: SloFile) -> Mapping[Figure, Measurement]:
    """The figures of a window, from requests that arrived at most `lead` seconds before it.

    In an overload, few requests arrive and end in the same window, and those are the fast ones.
    """
    recent = [request for request in requests if request.arrived >= window.start - lead]
    ended = [request for request in recent if window.contains(request.ended)]
    slos = {stream: applicable_slos(spec.slos, stream=stream, several=True) for stream in (False, True)}
    declared = [slo.name for slo in spec.slos]
    names = {name for request in requests for name in request.slo}
    events = [(request, _events(request, slos[request.stream], spec.first_token_timeout)) for request in recent]

    def times(
        percentiles: tuple[Figure, ...], value: Callable[[Request], float | None]
    ) -> Mapping[Figure, Measurement]:
        values = ((request.ended, value(request)) for request in ended)
        return quantiles(window, percentiles, [(at, seconds) for at, seconds in values if seconds is not None])

    def share_of_good(verdicts: Iterable[Event]) -> Measurement:
        return share(window, [(at, float(good), 1.0) for at, good in verdicts if window.contains(at)])

    work = measure_work(requests, window)
    return {
        figures.OFFERED: offered(requests, window),
        figures.COMPLETED: work[figures.COMPLETED],
        **{
            figures.attainment(name): share_of_good(by_slo[name] for _, by_slo in events if name in by_slo)
            for name in [*(name for name in declared if name in names), *sorted(names.difference(declared))]
        },
        figures.GOODPUT: share_of_good(
            _goodput_event(request, by_slo.values()) for request, by_slo in events if by_slo
        ),
        **quantiles(window, figures.TTFT, _first_token_waits(recent, window)),
        **times(figures.E2E, _e2e),
        **times(figures.TPOT, lambda request: request.tpot),
        **times((figures.ITL,), lambda request: request.itl_p95),
        **times(figures.QUEUE, lambda request: request.queue),
        figures.CLIENT_ERRORS: share_of_good(
            (request.ended, request.outcome is Outcome.CLIENT_ERROR) for request in ended
        ),
        figures.OUTPUT_TOKENS: work[figures.OUTPUT_TOKENS],
        figures.CACHE_HITS: work[figures.CACHE_HITS],
    }


def offered(requests: Iterable[Request], window: Window) -> Measurement:
    """Requests that arrived in the window, however long they wait."""
    return rate(window, [(request.arrived, 1.0) for request in requests if window.contains(request.arrived)])


def _e2e(request: Request) -> float | None:
    """Infinite for a request without a complete response; a client error has no response to wait for."""
    if request.outcome is Outcome.OK:
        return request.ended - request.arrived
    return None if request.outcome is Outcome.CLIENT_ERROR else math.inf


def _events(request: Request, applicable: ApplicableSlos, first_token_timeout: float) -> dict[str, Event]:
    """The good and bad verdicts by SLO; an abandoned one is not an event."""
    return {
        name: (_certain_at(request, name, verdict, applicable, first_token_timeout), verdict is Verdict.GOOD)
        for name, verdict in request.slo.items()
        if verdict is not Verdict.ABANDONED
    }


def _certain_at(
    request: Request, name: str, verdict: Verdict, applicable: ApplicableSlos, first_token_timeout: float
) -> float:
    """When `Judge` decided the verdict, as far as the log shows it; else the end of the request."""
    slo = applicable.slos.get(name)
    after: float | None = None
    if verdict is Verdict.BAD:
        waited = request.ttft is None and name in applicable.awaiting_first_token
        after = first_token_timeout if waited else applicable.deadlines.get(name)
    elif slo is not None:
        after = {Measure.TTFT: request.ttft, Measure.TTFT_ANSWER: request.ttft_answer}.get(slo.measure)
    return request.ended if after is None else min(request.arrived + after, request.ended)


def _goodput_event(request: Request, events: Iterable[Event]) -> Event:
    """The goodput event: bad at the first bad verdict, or good at the end of the request."""
    bad = [at for at, good in events if not good]
    return (min(bad), False) if bad else (request.ended, True)


def _first_token_waits(requests: Iterable[Request], window: Window) -> list[tuple[float, float]]:
    """The end and the duration of each wait for a first token that ended in the window."""
    waits = ((request, wait) for request in requests if (wait := request.first_token_wait) is not None)
    return [(at, wait) for request, wait in waits if window.contains(at := min(request.arrived + wait, request.ended))]
