"""Summarises the records of a run by class and phase; requests that failed count too."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from exporters.vocabulary.signals import Verdict
from exporters.vocabulary.verdicts import nearest_rank
from loadgen.results.answer_checks import AnswerCheck, check_answers, found_by
from loadgen.results.arrival_check import ArrivalCheck, check_arrivals
from loadgen.results.client_health import ClientHealth, judge
from loadgen.results.goodput_definitions import Goodput, by_definition
from loadgen.results.record import ClientOutcome, Record, Run, elapsed
from loadgen.results.steady_state import State, SteadyState, Timed, steady_state
from loadgen.schedule.phases import ClosedLoop

TOTAL = "all"


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Nearest-rank percentiles in seconds; infinite where a request without a value has the rank, None without any."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


@dataclass(frozen=True, slots=True)
class SloResult:
    """Requests with a verdict of an SLO, and how many are bad."""

    events: int
    bad: int


@dataclass(frozen=True, slots=True)
class ClassSummary:
    """The figures of one class, or of all classes.

    `ttft` ranks streams without a first token last, so its percentiles may be infinite; `ttft_of_started` excludes such
    streams, as server-side histograms do, and `ttft_sent` too, but counts from sending. `tpot` and `e2e` rank requests
    that did not end ok last, `tpot_ok` and `e2e_ok` exclude them, and `e2e_sent` too, but counts from sending.
    `goodput` is good / judged, None when none was judged. `abandoned` counts requests with an abandoned verdict.
    `itl_p95` has percentiles over the ITL p95 of each request.
    """

    name: str
    offered: int
    outcomes: dict[str, int]
    streams: int
    without_first_token: int
    ttft: Quantiles
    ttft_of_started: Quantiles
    ttft_sent: Quantiles
    tpot: Quantiles
    tpot_ok: Quantiles
    tpot_vllm: Quantiles
    tpot_guidellm: Quantiles
    itl_p95: Quantiles
    e2e: Quantiles
    e2e_ok: Quantiles
    e2e_sent: Quantiles
    judged: int
    abandoned: int
    good: int
    goodput: float | None
    slos: dict[str, SloResult]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    send_lag: Quantiles

    @property
    def ok(self) -> int:
        return self.outcomes.get(ClientOutcome.OK, 0)


@dataclass(frozen=True, slots=True)
class StableWindow:
    """The steady state of a phase with a constant rate, and the figures of the requests that are due in it.

    `left_out` is the share of the phase's requests that are due before the window. It is None, and `rows` (each class
    and the total) is empty, unless the phase is steady.
    """

    steady: SteadyState
    left_out: float | None = None
    rows: tuple[ClassSummary, ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """A whole run: the total, each class, the same by phase, and warnings about the figures.

    `stable` has the stable window of each open-loop phase with a constant rate, `goodput` is that of the whole run by
    several definitions, `health` that of the load generator. `answers` has the checks of what the server sent, and
    `rule` says which SLO rule has judged the requests.
    """

    rule: str

    total: ClassSummary
    classes: tuple[ClassSummary, ...]
    phases: dict[str, tuple[ClassSummary, ...]]
    stable: dict[str, StableWindow]
    arrivals: tuple[ArrivalCheck, ...]
    answers: tuple[AnswerCheck, ...]
    goodput: tuple[Goodput, ...]
    health: ClientHealth
    warnings: tuple[str, ...]


def summarise(run: Run, records: Sequence[Record]) -> Summary:
    """The summary of a run; classes and phases in the scenario's order, including those without a request."""
    total = summarise_class(TOTAL, records)
    arrivals = tuple(check_arrivals(run, records))
    answers = check_answers(run, records)
    phases = {phase.name: [record for record in records if record.phase == phase.name] for phase in run.phases}
    stable = {phase.name: _stable_window(run, phases[phase.name]) for phase in run.phases if phase.constant_rate}
    return Summary(
        rule=run.rule,
        total=total,
        classes=_by_class(records, run.classes),
        phases={
            name: (*_by_class(inside, run.classes), summarise_class(TOTAL, inside)) for name, inside in phases.items()
        },
        stable=stable,
        arrivals=arrivals,
        answers=answers,
        goodput=tuple(by_definition(records, run.slos, run.seconds)),
        health=_health(run, records, answers),
        warnings=(
            *_warnings(total),
            *found_by(answers, invalidates=False),
            *_warnings_of_load(run, stable),
            *_warnings_of_arrivals(run, records, arrivals),
        ),
    )


def health_of(run: Run, records: Sequence[Record]) -> ClientHealth:
    """Whether a run is valid, without its other figures, which take a hundred times as long."""
    return _health(run, records, check_answers(run, records))


def _health(run: Run, records: Sequence[Record], answers: Iterable[AnswerCheck]) -> ClientHealth:
    send_lag = _of(records, lambda record: record.send_lag)
    health = judge(run, records, send_lag.p99, _of(records, slot_wait).p99)
    return replace(health, faults=(*health.faults, *found_by(answers, invalidates=True)))


def _stable_window(run: Run, inside: Sequence[Record]) -> StableWindow:
    """The stable window of the records of one phase."""
    steady = steady_state(timed(inside))
    if steady.start is None:
        return StableWindow(steady)
    kept = [record for record in inside if record.due >= steady.start]
    rows = (*_by_class(kept, run.classes), summarise_class(TOTAL, kept))
    return StableWindow(steady, 1 - len(kept) / len(inside), rows)


_WAITED = (ClientOutcome.OK, ClientOutcome.TRUNCATED, ClientOutcome.TIMEOUT)


def timed(records: Sequence[Record]) -> Iterable[Timed]:
    """The times of the requests of one phase, from which its steady state is found.

    Later turns of conversations are not due at a constant rate. If there are streams, only their first tokens show the
    queue: the time of a unary response depends on its length. The wait of a request that was cut is not known.
    """
    streams = any(record.stream for record in records)
    for record in records:
        if record.turn == 0 and record.outcome is not ClientOutcome.NOT_SENT:
            first = record.first if record.stream else None
            waited = (first is not None or record.outcome in _WAITED) and (record.stream or not streams)
            end = record.closed if first is None else first
            yield Timed(record.due, end - record.due if waited else None, record.closed)


def summarise_class(name: str, records: Iterable[Record]) -> ClassSummary:
    requests = list(records)
    streams = [record for record in requests if record.stream]
    started = [record.ttft for record in streams if record.ttft is not None]
    ended_ok = [record for record in requests if record.outcome is ClientOutcome.OK]
    failed = len(requests) - len(ended_ok)
    failed_streams = len(streams) - sum(record.stream for record in ended_ok)
    goods = [record.good for record in requests if record.good is not None]
    return ClassSummary(
        name=name,
        offered=len(requests),
        outcomes=dict(sorted(Counter(record.outcome.value for record in requests).items())),
        streams=len(streams),
        without_first_token=len(streams) - len(started),
        ttft=quantiles(started, missing=len(streams) - len(started)),
        ttft_of_started=quantiles(started),
        ttft_sent=_of(streams, lambda record: record.ttft_sent),
        tpot=_of(ended_ok, lambda record: record.tpot, missing=failed_streams),
        tpot_ok=_of(ended_ok, lambda record: record.tpot),
        tpot_vllm=_of(ended_ok, lambda record: record.tpot_vllm),
        tpot_guidellm=_of(ended_ok, lambda record: record.tpot_guidellm),
        itl_p95=_of(requests, lambda record: record.itl_p95),
        e2e=_of(ended_ok, lambda record: record.e2e, missing=failed),
        e2e_ok=_of(ended_ok, lambda record: record.e2e),
        e2e_sent=_of(ended_ok, lambda record: record.e2e_sent),
        judged=len(goods),
        abandoned=sum(Verdict.ABANDONED in record.slo.values() for record in requests),
        good=sum(goods),
        goodput=sum(goods) / len(goods) if goods else None,
        slos=_slo_results(requests),
        prompt_tokens=sum(record.prompt_tokens or 0 for record in requests),
        completion_tokens=sum(record.completion_tokens or 0 for record in requests),
        cached_tokens=sum(record.cached_tokens or 0 for record in requests),
        send_lag=_of(requests, lambda record: record.send_lag),
    )


def _of(records: Iterable[Record], value: Callable[[Record], float | None], *, missing: int = 0) -> Quantiles:
    return quantiles((each for each in map(value, records) if each is not None), missing=missing)


def quantiles(values: Iterable[float], *, missing: int = 0) -> Quantiles:
    """Percentiles of the values and of `missing` more that rank after all of them."""
    ordered = [*sorted(values), *[math.inf] * missing]
    return Quantiles(*(nearest_rank(ordered, percent) for percent in (50, 95, 99))) if ordered else Quantiles()


def _by_class(records: Sequence[Record], classes: Sequence[str]) -> tuple[ClassSummary, ...]:
    return tuple(
        summarise_class(name, (record for record in records if record.request_class == name)) for name in classes
    )


def _slo_results(records: Iterable[Record]) -> dict[str, SloResult]:
    events, bad = Counter[str](), Counter[str]()
    for record in records:
        for slo, verdict in record.slo.items():
            events[slo] += verdict is not Verdict.ABANDONED
            bad[slo] += verdict is Verdict.BAD
    return {slo: SloResult(events[slo], bad[slo]) for slo in sorted(events)}


def _warnings(total: ClassSummary) -> Iterable[str]:
    if total.abandoned:
        yield (
            f"{total.abandoned} requests were ended by the client (timeout, cut) before every SLO had a verdict; the "
            "SLOs without a verdict count them as abandoned, not as good or bad"
        )


def slot_wait(record: Record) -> float | None:
    """Seconds for which a request that was sent waited for a slot of --max-concurrency."""
    return elapsed(record.dispatched, record.sent)


def _warnings_of_load(run: Run, stable: dict[str, StableWindow]) -> Iterable[str]:
    if (found := run.saturated) is not None:
        yield (
            f"{found.phase}: the server was saturated from about {found.since:.0f} s: {found.offered:.3g} requests/s "
            f"were offered, {found.completed:.3g} ended; latencies depend on the length of the run"
        )
    for name, window in stable.items():
        if window.steady.state is State.DRIFTING:
            yield (
                f"{name} is not in a steady state: its queue grew, so its latencies depend on the length of the phase"
            )


def _warnings_of_arrivals(run: Run, records: Iterable[Record], checks: Iterable[ArrivalCheck]) -> Iterable[str]:
    for phase in run.phases:
        if isinstance(phase, ClosedLoop):
            yield (
                f"{phase.name} is a closed loop of {phase.users} users: they send less when the server is slow, so its "
                "latencies do not show a queue, and its rate is a result, not a load"
            )
    for check in checks:
        for fault in check.faults:
            yield f"{check.phase}, {check.request_class}: not the planned {check.law} arrivals: {fault}"
    if lost := sum(record.turns_lost for record in records):
        yield f"{lost} turns were not sent, because an earlier request of their conversation failed"
