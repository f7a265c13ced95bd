"""Compares twelve dashboard figures with the request log, and six of them with the records of the load run."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import fmean, median

from compose.demo.checks import Check
from exporters.requestlog.entry import LogEntry
from exporters.vocabulary.signals import Outcome, Verdict
from exporters.vocabulary.verdicts import goodput
from loadgen.results.record import ClientOutcome, Record

TOLERANCE = 0.02
_WITHOUT_TOKEN = frozenset({ClientOutcome.OK, ClientOutcome.CLIENT_ERROR})
CLIENT_SECONDS = 0.01
"""Allowed delay between the sockets of relay and client on a busy machine, which the relay cannot measure."""

Figures = Mapping[str, Mapping[str, float]]
"""Values by figure, then by class."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure of one class by source; None where a source does not have it."""

    figure: str
    name: str
    sources: Mapping[str, float | None]
    slack: float = 0.0

    @property
    def difference(self) -> float:
        """The greatest relative difference of two sources; infinite if one of them has no value."""
        return max(_difference(one, other) for one, other in combinations(self.sources.values(), 2))

    @property
    def agrees(self) -> bool:
        values = [value for value in self.sources.values() if value is not None]
        within = len(values) == len(self.sources) and max(values) - min(values) <= self.slack
        return within or self.difference <= TOLERANCE


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """The fields that the request log and the load records share; `ttft` in seconds, for streams only.

    It is infinite if a stream ended without a first token.
    """

    request_class: str
    ok: bool
    good: bool | None
    ttft: float | None
    completion_tokens: int
    cached_tokens: int


def of_log(requests: Iterable[LogEntry]) -> list[RequestFacts]:
    return [
        RequestFacts(
            each.request_class,
            each.outcome is Outcome.OK,
            goodput(each.slo.values()),
            each.first_token_wait,
            each.completion_tokens or 0,
            each.cached_tokens or 0,
        )
        for each in requests
    ]


def of_load(records: Iterable[Record]) -> list[RequestFacts]:
    """All requests except those that were not sent, which a server cannot count."""
    return [
        RequestFacts(
            each.request_class,
            each.outcome is ClientOutcome.OK,
            each.good,
            _first_token_wait(each),
            each.completion_tokens or 0,
            each.cached_tokens or 0,
        )
        for each in records
        if each.outcome is not ClientOutcome.NOT_SENT
    ]


def _first_token_wait(record: Record) -> float | None:
    """The wait for the first token; empty responses and client errors are not slow, as in the request log."""
    if not record.stream or record.ttft is not None or record.outcome in _WITHOUT_TOKEN:
        return record.ttft if record.stream else None
    return math.inf


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: Iterable[float | None]) -> float | None:
    known = _known(values)
    return fmean(known) if known else None


def _mean_seconds(milliseconds: Iterable[float | None]) -> float | None:
    return _mean(value / 1000 for value in _known(milliseconds))


SHARED: dict[str, Callable[[Sequence[RequestFacts]], float | None]] = {
    "offered": len,
    "ok": lambda requests: sum(each.ok for each in requests),
    "goodput": lambda requests: _mean(each.good for each in requests),
    "tokens_out": lambda requests: sum(each.completion_tokens for each in requests),
    "cached_tokens": lambda requests: sum(each.cached_tokens for each in requests),
}
"""Figures of the dashboard, the request log and the load."""

OF_LOG: dict[str, Callable[[Sequence[LogEntry]], float | None]] = {
    "failed": lambda requests: sum(each.outcome is not Outcome.OK for each in requests),
    "bad_events": lambda requests: sum(list(each.slo.values()).count(Verdict.BAD) for each in requests),
    "prompt_tokens": lambda requests: sum(each.prompt_tokens or 0 for each in requests),
    "tpot_mean": lambda requests: _mean_seconds(each.tpot_ms for each in requests),
    "e2e_mean": lambda requests: _mean_seconds(each.e2e_ms for each in requests if each.outcome is Outcome.OK),
    "queue_mean": lambda requests: _mean_seconds(each.queue_ms for each in requests),
}
"""Figures that the load generator does not have, or measures on another clock."""

MEDIAN, EXACT_MEDIAN = "ttft_p50", "ttft_p50 of log and load"
UNSERVED = "streams without a token of log and load"
FIGURES = (*SHARED, MEDIAN, *OF_LOG)


def bucketed_quantile(q: float, values: Sequence[float], bounds: Sequence[float]) -> float | None:
    """`histogram_quantile` of these values: linear between the bounds of the bucket with the rank."""
    if not values:
        return None
    rank = q * len(values)
    below = sum(value <= bounds[0] for value in values)
    if below >= rank:
        return bounds[0] * rank / below
    for low, high in pairwise(bounds):
        inside = sum(low < value <= high for value in values)
        if below + inside >= rank:
            return low + (high - low) * (rank - below) / inside
        below += inside
    return bounds[-1]


def compare(
    dashboard: Figures,
    logged: Sequence[LogEntry],
    load: Sequence[RequestFacts],
    classes: Sequence[str],
    bounds: Sequence[float],
) -> list[Comparison]:
    """Every figure of every class that any source has.

    A histogram median is only as exact as its buckets, so it is compared with the log's values in the same buckets.
    Of log and load, the numbers of streams without a token are compared, and the exact medians of the others: if many
    have none, few values are near the median of all, and it varies by more than the allowed delay.
    """
    comparisons = []
    for name in classes:
        entries = [each for each in logged if each.request_class == name]
        log, client = of_log(entries), [each for each in load if each.request_class == name]
        log_ttft, client_ttft = (_known(each.ttft for each in requests) for requests in (log, client))
        sources: dict[str, dict[str, float | None]] = {
            figure: {"dashboard": dashboard[figure].get(name)} for figure in FIGURES
        }
        for figure, value in SHARED.items():
            sources[figure] |= {"log": value(log), "load": value(client)}
        sources[MEDIAN]["log in its buckets"] = bucketed_quantile(0.5, log_ttft, bounds)
        for figure, value_of_log in OF_LOG.items():
            sources[figure]["log"] = value_of_log(entries)
        comparisons += [Comparison(figure, name, values) for figure, values in sources.items()]
        finite = {
            source: [wait for wait in waits if wait < math.inf]
            for source, waits in (("log", log_ttft), ("load", client_ttft))
        }
        exact = {source: median(waits) if waits else None for source, waits in finite.items()}
        without = {"log": len(log_ttft) - len(finite["log"]), "load": len(client_ttft) - len(finite["load"])}
        comparisons.append(Comparison(UNSERVED, name, without if entries or client else dict.fromkeys(without)))
        comparisons.append(Comparison(EXACT_MEDIAN, name, exact, CLIENT_SECONDS))
    return [each for each in comparisons if any(value is not None for value in each.sources.values())]


def checks(comparisons: Sequence[Comparison]) -> list[Check]:
    """One check per figure, with the class that has the greatest difference."""
    results = []
    for figure in (*FIGURES, UNSERVED, EXACT_MEDIAN):
        selected = [each for each in comparisons if each.figure == figure]
        slack = f" or {CLIENT_SECONDS * 1000:.0f} ms" if figure == EXACT_MEDIAN else ""
        claim = f"cross-check: {figure} agrees within 2 %{slack} in every class"
        if not selected:
            results.append(Check(claim, "no source has a value", passed=False))
            continue
        worst = max(selected, key=lambda each: (not each.agrees, each.difference))
        values = (f"{source} {'-' if value is None else f'{value:.6g}'}" for source, value in worst.sources.items())
        results.append(Check(claim, f"worst {worst.name}: {worst.difference:.2%} ({', '.join(values)})", worst.agrees))
    return results


def _difference(one: float | None, other: float | None) -> float:
    if one is None or other is None:
        return float("inf") if one is not other else 0.0
    if math.isinf(one) or math.isinf(other):
        return 0.0 if one == other else math.inf
    return 0.0 if one == other else abs(one - other) / max(abs(one), abs(other))
