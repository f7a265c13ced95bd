"""Holds twelve figures of the dashboard against the request log, and six of them against the load's own record."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import fmean, median

from compose.demo_checks import Check
from exporters.requestlog.log_entry import LogEntry
from exporters.signals import Outcome, Verdict
from exporters.verdicts import goodput
from loadgen.request_record import Fate, Record

TOLERANCE = 0.02
CLIENT_SECONDS = 0.01
"""What a busy machine may add between the relay's socket and the client's: the relay cannot see it, a user can."""

FIGURES = ("offered", "ok", "goodput", "ttft_p50", "tokens_out", "cached_tokens")
OF_LOG = ("failed", "bad_events", "prompt_tokens", "tpot_mean", "e2e_mean", "queue_mean")
"""Those that the load generator does not have, or counts by another clock."""

TRUE_MEDIAN = "ttft_p50 of log and load"
Figures = Mapping[str, Mapping[str, float]]
"""By figure, then by class."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure of one class by its sources; None where a source does not have it."""

    figure: str
    name: str
    sources: Mapping[str, float | None]
    slack: float = 0.0

    @property
    def apart(self) -> float:
        """The greatest distance between any two sources, relative to the greater one; infinite if one has none."""
        return max(_apart(one, other) for one, other in combinations(self.sources.values(), 2))

    @property
    def agrees(self) -> bool:
        known = [value for value in self.sources.values() if value is not None]
        within = len(known) == len(self.sources) and max(known) - min(known) <= self.slack
        return within or self.apart <= TOLERANCE


@dataclass(frozen=True, slots=True)
class Seen:
    """What log and load record have in common of one request; `ttft` only of streams."""

    name: str
    ok: bool
    good: bool | None
    ttft: float | None
    completion_tokens: int
    cached_tokens: int


def of_log(requests: Iterable[LogEntry]) -> list[Seen]:
    return [
        Seen(
            each.request_class,
            each.outcome is Outcome.OK,
            goodput(each.slo.values()),
            each.ttft_ms / 1000 if each.stream and each.ttft_ms is not None else None,
            each.completion_tokens or 0,
            each.cached_tokens or 0,
        )
        for each in requests
    ]


def of_load(records: Iterable[Record]) -> list[Seen]:
    """All but what was never sent, of which a server can know nothing."""
    return [
        Seen(
            each.request_class,
            each.outcome is Fate.OK,
            each.good,
            each.ttft if each.stream else None,
            each.completion_tokens or 0,
            each.cached_tokens or 0,
        )
        for each in records
        if each.outcome is not Fate.NOT_SENT
    ]


def figures(requests: Sequence[Seen], classes: Iterable[str]) -> Figures:
    """Five of the six figures, and the true median of TTFT."""
    result: dict[str, dict[str, float]] = {figure: {} for figure in (*FIGURES, TRUE_MEDIAN)}
    for name in classes:
        these = [each for each in requests if each.name == name]
        result["offered"][name] = len(these)
        result["ok"][name] = sum(each.ok for each in these)
        judged = [each.good for each in these if each.good is not None]
        if judged:
            result["goodput"][name] = sum(judged) / len(judged)
        waits = [each.ttft for each in these if each.ttft is not None]
        if waits:
            result[TRUE_MEDIAN][name] = median(waits)
        result["tokens_out"][name] = sum(each.completion_tokens for each in these)
        result["cached_tokens"][name] = sum(each.cached_tokens for each in these)
    return result


def further_figures(requests: Sequence[LogEntry], classes: Iterable[str]) -> Figures:
    """The other six; a mean only where there is something to take it of."""
    result: dict[str, dict[str, float]] = {figure: {} for figure in OF_LOG}
    for name in classes:
        these = [each for each in requests if each.request_class == name]
        result["failed"][name] = sum(each.outcome is not Outcome.OK for each in these)
        result["bad_events"][name] = sum(list(each.slo.values()).count(Verdict.BAD) for each in these)
        result["prompt_tokens"][name] = sum(each.prompt_tokens or 0 for each in these)
        for figure, values in (
            ("tpot_mean", [each.tpot_ms for each in these if each.tpot_ms is not None]),
            ("e2e_mean", [each.e2e_ms for each in these]),
            ("queue_mean", [each.queue_ms for each in these if each.queue_ms is not None]),
        ):
            if values:
                result[figure][name] = fmean(values) / 1000
    return result


def bucketed_quantile(q: float, values: Sequence[float], bounds: Sequence[float]) -> float | None:
    """What `histogram_quantile` makes of these values: linear between the bounds of the bucket that holds the rank."""
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
    load: Sequence[Seen],
    classes: Sequence[str],
    bounds: Sequence[float],
) -> list[Comparison]:
    """Every figure of every class that any of the sources has.

    A median from a histogram is as good as its buckets (0.05 to 0.1 s, say), so holding it against a true one would
    test their width. Instead the log's raw values go through the same buckets and must give the dashboard's median;
    and the true medians of log and load must agree.
    """
    log = of_log(logged)
    by_log, by_load, further = figures(log, classes), figures(load, classes), further_figures(logged, classes)
    made = []
    for name in classes:
        for figure in FIGURES:
            sources = {"dashboard": dashboard[figure].get(name)}
            if figure == "ttft_p50":
                waits = [each.ttft for each in log if each.name == name and each.ttft is not None]
                sources["log in its buckets"] = bucketed_quantile(0.5, waits, bounds)
            else:
                sources |= {"log": by_log[figure].get(name), "load": by_load[figure].get(name)}
            made.append(Comparison(figure, name, sources))
        for figure in OF_LOG:
            sources = {"dashboard": dashboard[figure].get(name), "log": further[figure].get(name)}
            made.append(Comparison(figure, name, sources))
        true = {"log": by_log[TRUE_MEDIAN].get(name), "load": by_load[TRUE_MEDIAN].get(name)}
        made.append(Comparison(TRUE_MEDIAN, name, true, CLIENT_SECONDS))
    return [each for each in made if any(value is not None for value in each.sources.values())]


def checks(comparisons: Sequence[Comparison]) -> list[Check]:
    """One a figure: the class that is furthest apart decides."""
    made = []
    for figure in (*FIGURES, *OF_LOG, TRUE_MEDIAN):
        these = [each for each in comparisons if each.figure == figure]
        slack = f" or {CLIENT_SECONDS * 1000:.0f} ms" if figure == TRUE_MEDIAN else ""
        promise = f"truth: {figure} agrees within 2 %{slack} in every class"
        if not these:
            made.append(Check(promise, "no source has it", kept=False))
            continue
        worst = max(these, key=lambda each: (not each.agrees, each.apart))
        values = (f"{source} {'-' if value is None else f'{value:.6g}'}" for source, value in worst.sources.items())
        made.append(Check(promise, f"worst {worst.name}: {worst.apart:.2%} ({', '.join(values)})", worst.agrees))
    return made


def _apart(one: float | None, other: float | None) -> float:
    if one is None or other is None:
        return float("inf") if one is not other else 0.0
    return 0.0 if one == other else abs(one - other) / max(abs(one), abs(other))
