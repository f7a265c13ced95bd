"""From the records of a run to its figures per class and phase: pure, and never only the survivors."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from exporters.signals import SEND_LATE, Verdict
from exporters.verdicts import nearest_rank
from loadgen.request_record import Fate, Record

TOTAL = "all"


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Nearest-rank percentiles in seconds; None where that share of the values does not exist."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


@dataclass(frozen=True, slots=True)
class Met:
    """Requests that an SLO judged, and how many it found bad."""

    events: int
    bad: int


@dataclass(frozen=True, slots=True)
class Figures:
    """One class, or all of them.

    `ttft` counts a stream that never got a first token as worse than any that did, so its percentiles may be None
    with streams present; `ttft_of_started` leaves such streams out, as every server-side histogram does.
    `goodput` is good over judged, None when none was judged; `abandoned` were ended by the client before some SLO
    could judge them. `itl_p95` are percentiles over requests of their own
    95th percentile of gaps.
    """

    name: str
    offered: int
    outcomes: dict[str, int]
    streams: int
    without_first_token: int
    ttft: Quantiles
    ttft_of_started: Quantiles
    itl_p95: Quantiles
    e2e_ok: Quantiles
    judged: int
    abandoned: int
    good: int
    goodput: float | None
    slos: dict[str, Met]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    send_lag: Quantiles

    @property
    def ok(self) -> int:
        return self.outcomes.get(Fate.OK, 0)


@dataclass(frozen=True, slots=True)
class Summary:
    """A whole run: each class, all together, the same for each phase, and what makes the figures doubtful."""

    total: Figures
    classes: tuple[Figures, ...]
    phases: dict[str, tuple[Figures, ...]]
    warnings: tuple[str, ...]


def summary(records: Sequence[Record], classes: Sequence[str], phases: Sequence[str]) -> Summary:
    """The figures of a run; classes and phases in the scenario's order, those without a request included."""
    total = figures(TOTAL, records)
    return Summary(
        total=total,
        classes=_by_class(records, classes),
        phases={
            phase: (*_by_class(inside, classes), figures(TOTAL, inside))
            for phase in phases
            for inside in [[record for record in records if record.phase == phase]]
        },
        warnings=tuple(_warnings(total)),
    )


def figures(name: str, records: Iterable[Record]) -> Figures:
    these = list(records)
    streams = [record for record in these if record.stream]
    started = [record.ttft for record in streams if record.ttft is not None]
    goods = [record.good for record in these if record.good is not None]
    return Figures(
        name=name,
        offered=len(these),
        outcomes=dict(sorted(Counter(record.outcome.value for record in these).items())),
        streams=len(streams),
        without_first_token=len(streams) - len(started),
        ttft=quantiles(started, missing=len(streams) - len(started)),
        ttft_of_started=quantiles(started),
        itl_p95=quantiles(record.itl_p95 for record in these if record.itl_p95 is not None),
        e2e_ok=quantiles(record.e2e for record in these if record.e2e is not None and record.outcome is Fate.OK),
        judged=len(goods),
        abandoned=sum(Verdict.ABANDONED in record.slo.values() for record in these),
        good=sum(goods),
        goodput=sum(goods) / len(goods) if goods else None,
        slos=_met(these),
        prompt_tokens=sum(record.prompt_tokens or 0 for record in these),
        completion_tokens=sum(record.completion_tokens or 0 for record in these),
        cached_tokens=sum(record.cached_tokens or 0 for record in these),
        send_lag=quantiles(record.send_lag for record in these if record.send_lag is not None),
    )


def quantiles(values: Iterable[float], *, missing: int = 0) -> Quantiles:
    """Percentiles of the values and of `missing` more that are worse than all of them."""
    ordered: list[float] = sorted(values) + [float("inf")] * missing
    if not ordered:
        return Quantiles()
    found = [nearest_rank(ordered, percent) for percent in (50, 95, 99)]
    return Quantiles(*(None if value == float("inf") else value for value in found))


def _by_class(records: Sequence[Record], classes: Sequence[str]) -> tuple[Figures, ...]:
    return tuple(figures(name, (record for record in records if record.request_class == name)) for name in classes)


def _met(records: Iterable[Record]) -> dict[str, Met]:
    events, bad = Counter[str](), Counter[str]()
    for record in records:
        for slo, verdict in record.slo.items():
            events[slo] += verdict is not Verdict.ABANDONED
            bad[slo] += verdict is Verdict.BAD
    return {slo: Met(events[slo], bad[slo]) for slo in sorted(events)}


def _warnings(total: Figures) -> Iterable[str]:
    lag = total.send_lag.p99
    if lag is not None and lag > SEND_LATE:
        yield (
            f"the generator itself was late: 1 % of the requests left {lag * 1000:.0f} ms or more after they were due, "
            "which every latency contains; give it a core of its own, or lower the rate"
        )
    if total.abandoned:
        yield (
            f"{total.abandoned} requests were ended by the client (timeout, cut) before all their SLOs had judged "
            "them: what was still open made no event, good or bad"
        )
    if unsent := total.outcomes.get(Fate.NOT_SENT, 0):
        yield f"{unsent} requests were due but not sent (see their `error`): the server saw less load than was offered"
