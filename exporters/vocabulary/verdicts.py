"""Judges one request against the SLOs of its class; each verdict is returned once, as soon as it is certain."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf

import msgspec

from exporters.vocabulary.signals import Outcome, Verdict
from exporters.vocabulary.slo_file import Latency, Measure, Rejected, Sli, Slo, Unary, ValidOutput

ENGINE_TIMES = frozenset({Measure.QUEUE, Measure.PREFILL, Measure.DECODE})
"""Signals that the engine reports, in its response or in its span."""

_STREAM_ONLY = frozenset({Measure.TTFT, Measure.TTFT_ANSWER, Measure.TPOT, Measure.ITL_P95})
_SEVERAL_TOKENS = frozenset({Measure.TPOT, Measure.ITL_P95})
_DEADLINE = frozenset({Measure.TTFT, Measure.TTFT_ANSWER, Measure.E2E})
# Without the timeout these would stay undecided while the engine hangs.
_BAD_WITHOUT_FIRST_TOKEN = frozenset({Measure.TPOT, Measure.ITL_P95, Measure.DECODE, Measure.AVAILABILITY})

# Enum member access takes 0.1 us in CPython 3.11, and each request uses all of these.
_TTFT, _TTFT_ANSWER = Measure.TTFT, Measure.TTFT_ANSWER
_TPOT, _ITL_P95, _E2E = Measure.TPOT, Measure.ITL_P95, Measure.E2E
_GOOD, _BAD, _ABANDONED = Verdict.GOOD, Verdict.BAD, Verdict.ABANDONED
_OK = Outcome.OK

SERVER_FAULT = frozenset(
    {
        Outcome.TIMEOUT_FIRST_TOKEN,
        Outcome.TIMEOUT_IDLE,
        Outcome.TIMEOUT_TOTAL,
        Outcome.TRUNCATED,
        Outcome.UPSTREAM_ERROR,
        Outcome.UPSTREAM_UNREACHABLE,
    }
)
"""Outcomes that make every undecided SLO bad."""


def outcome_of_status(status: int) -> Outcome:
    """The outcome of a complete response by its HTTP status."""
    if status in {429, 503}:
        return Outcome.REJECTED
    if status >= 500:
        return Outcome.UPSTREAM_ERROR
    return Outcome.CLIENT_ERROR if status >= 400 else Outcome.OK


class Ending(msgspec.Struct, frozen=True, gc=False):  # creating a dataclass takes three times as long
    """The end of a request: times on the judge's clock, engine times in seconds, None if unknown."""

    at: float
    outcome: Outcome
    last_chunk: float | None = None
    gaps: int = 0  # between output chunks
    completion_tokens: int | None = None
    queue: float | None = None
    prefill: float | None = None
    decode: float | None = None
    paused: float = 0.0  # seconds until `at` in which the client did not read


@dataclass(frozen=True, slots=True)
class ApplicableSlos:
    """The SLOs that apply to one kind of request, and limits derived from their thresholds."""

    slos: dict[str, Slo]
    """Each SLO by its name, with the SLI by which it judges this kind of request."""
    deadlines: dict[str, float]
    """Seconds from time zero after which a `ttft`, `ttft_answer` or `e2e` is bad."""
    answers: frozenset[str]
    """Each `ttft_answer`."""
    awaiting_first_token: frozenset[str]
    """The SLOs that `first_token_timeout` makes bad."""
    first_deadline: float
    """The earliest of the `deadlines`."""
    late_gap: float
    """Seconds; a gap up to this makes no verdict certain."""
    tpot: float
    """Seconds; a chunk within this time per token of `max_tokens` makes no verdict certain."""


def several_tokens(choices: int, max_tokens: int | None) -> bool:
    """Whether the time between tokens is defined; it is not for several choices, whose chunks interleave."""
    return choices == 1 and (max_tokens is None or max_tokens >= 2)


def _sli(sli: Sli, *, stream: bool, several: bool, structured: bool) -> Sli | None:
    """The SLI by which an SLO judges a kind of request; None if it does not."""
    match sli:
        case Latency(measure, threshold, unary) if measure in _STREAM_ONLY and not stream:
            return Latency(Measure.E2E, threshold) if unary is Unary.E2E else None
        case Latency(measure) if measure in _SEVERAL_TOKENS and not several:
            return None
        case ValidOutput() if not structured:
            return None
    return sli


def applicable_slos(slos: Iterable[Slo], *, stream: bool, several: bool, structured: bool = False) -> ApplicableSlos:
    """The SLOs that apply to a request; `several` is the result of `several_tokens`.

    `structured`: its output is checked, and may have to be JSON.
    """
    judged = ((slo, _sli(slo.sli, stream=stream, several=several, structured=structured)) for slo in slos)
    applicable = {slo.name: replace(slo, sli=sli) for slo, sli in judged if sli is not None}
    limits = [(slo, slo.sli.threshold) for slo in applicable.values() if isinstance(slo.sli, Latency)]
    deadlines = {slo.name: limit for slo, limit in limits if slo.measure in _DEADLINE}
    return ApplicableSlos(
        applicable,
        deadlines=deadlines,
        answers=frozenset(slo.name for slo, _ in limits if slo.measure is _TTFT_ANSWER),
        awaiting_first_token=frozenset(
            slo.name for slo in applicable.values() if slo.measure in _BAD_WITHOUT_FIRST_TOKEN
        ),
        first_deadline=min(deadlines.values(), default=inf),
        late_gap=min((limit for slo, limit in limits if slo.measure is _ITL_P95), default=inf),
        tpot=min((limit for slo, limit in limits if slo.measure is _TPOT), default=inf),
    )


class Judge:
    """Judges one open request; receives its events in order of time (monotonic seconds).

    Each method returns the verdicts that have become certain, as (SLO name, verdict).
    """

    __slots__ = (
        "_applicable",
        "_first_token_at",
        "_first_token_by",
        "_late_gaps",
        "_max_tokens",
        "_next_deadline",
        "_paused",
        "_time_zero",
        "_undecided",
        "awaits_answer",
        "late_after",
        "late_gap",
        "verdicts",
    )

    def __init__(
        self, applicable: ApplicableSlos, *, zero: float, first_token_timeout: float, max_tokens: int | None = None
    ) -> None:
        self.verdicts: dict[str, Verdict] = {}
        self._applicable = applicable
        self._time_zero = zero
        self._first_token_at: float | None = None
        self._first_token_by = zero + first_token_timeout
        self._max_tokens = max_tokens
        self._late_gaps: dict[str, int] = {}
        self._undecided = applicable.slos.copy()
        self._paused = 0.0
        self._next_deadline = zero + applicable.first_deadline
        if applicable.awaiting_first_token and self._first_token_by < self._next_deadline:
            self._next_deadline = self._first_token_by
        self.awaits_answer = bool(applicable.answers)
        """Whether `first_answer` can return a verdict."""
        self.late_gap = applicable.late_gap
        """`chunk` may be skipped for a gap up to this ..."""
        self.late_after = inf
        """... that ends before this time: neither can make a verdict certain."""

    def deadline(self) -> float | None:
        """The time after which `check_deadlines` will return a verdict, if no event comes before."""
        return None if self._next_deadline == inf else self._next_deadline

    def check_deadlines(self, at: float, paused: float = 0.0) -> list[tuple[str, Verdict]]:
        """SLOs whose deadline is before `at` are bad.

        `paused` is the time until `at` in which the client did not read: it extends the deadline of a `ttft_answer`.
        """
        if at <= self._next_deadline:
            return []
        self._paused = paused
        return self._settle([(name, _BAD) for name in self._undecided if at > self._due(name)])

    def _due(self, name: str) -> float:
        """The time after which an undecided SLO is bad if no event comes before."""
        limit = self._applicable.deadlines.get(name)
        if limit is not None:
            return self._time_zero + limit + (self._paused if name in self._applicable.answers else 0.0)
        waits = self._first_token_at is None and name in self._applicable.awaiting_first_token
        return self._first_token_by if waits else inf

    def first_token(self, at: float) -> list[tuple[str, Verdict]]:
        """The first chunk that carries output has arrived."""
        verdicts = self.check_deadlines(at)
        self._first_token_at = at
        if self._max_tokens is not None:
            self.late_after = at + self._applicable.tpot * (self._max_tokens - 1)
        good = [(name, _GOOD) for name, slo in self._undecided.items() if slo.sli.measure is _TTFT]
        return verdicts + self._settle(good)

    def first_answer(self, at: float) -> list[tuple[str, Verdict]]:
        """The first chunk that carries output other than reasoning has arrived; `at` is without pauses."""
        return self._settle(
            [
                (name, _verdict(good=at <= self._time_zero + self._applicable.deadlines[name]))
                for name in self._undecided
                if name in self._applicable.answers
            ]
        )

    def chunk(self, at: float, gap: float, gaps: int) -> list[tuple[str, Verdict]]:
        """A further output chunk has arrived, `gap` seconds after the previous one; `gaps` includes this gap.

        A verdict is bad once the remaining tokens of `max_tokens` cannot change it. An itl_p95 of N gaps (nearest
        rank) exceeds the threshold when more than N // 20 of them do, and N is at most max_tokens - 1.
        """
        bad: list[tuple[str, Verdict]] = []
        for name, slo in self._undecided.items():
            sli = slo.sli
            if not isinstance(sli, Latency):
                continue
            if sli.measure is _ITL_P95 and gap > sli.threshold:
                late = self._late_gaps[name] = self._late_gaps.get(name, 0) + 1
                if self._max_tokens is not None and late > max(gaps, self._max_tokens - 1) // 20:
                    bad.append((name, Verdict.BAD))
            elif (
                sli.measure is _TPOT
                and self._max_tokens is not None
                and self._first_token_at is not None
                and at - self._first_token_at > sli.threshold * (self._max_tokens - 1)
            ):
                bad.append((name, Verdict.BAD))
        return self._settle(bad) if bad else bad

    def output_checked(self, *, valid: bool | None) -> list[tuple[str, Verdict]]:
        """Whether the output is the JSON that the request asked for; if `valid` is None, it is not an event."""
        slos = [name for name, slo in self._undecided.items() if isinstance(slo.sli, ValidOutput)]
        if valid is not None:
            return self._settle([(name, _verdict(good=valid)) for name in slos])
        for name in slos:
            del self._undecided[name]
        return []

    def ended(self, ending: Ending) -> list[tuple[str, Verdict]]:
        """The request has ended: each undecided SLO is good, bad or abandoned, or its signal is undefined."""
        verdicts = self.check_deadlines(ending.at, ending.paused)
        for name, slo in self._undecided.items():
            if (verdict := self._final_verdict(slo, ending)) is not None:
                verdicts.append((name, verdict))
        self.verdicts.update(verdicts)
        self._undecided.clear()
        return verdicts

    def abandon(self) -> list[tuple[str, Verdict]]:
        """The request is no longer measured, so the undecided SLOs are abandoned."""
        return self._settle([(name, Verdict.ABANDONED) for name in self._undecided])

    def _final_verdict(self, slo: Slo, ending: Ending) -> Verdict | None:
        if ending.outcome is _OK:
            return self._when_ok(slo, ending)
        match ending.outcome:
            case Outcome.CLIENT_ABORT:
                return Verdict.ABANDONED
            case Outcome.CLIENT_ERROR:
                return None
            case Outcome.REJECTED:
                return Verdict.BAD if slo.rejected is Rejected.BAD else None
            case _:
                return Verdict.BAD

    def _when_ok(self, slo: Slo, ending: Ending) -> Verdict | None:
        sli = slo.sli
        if not isinstance(sli, Latency) or sli.measure is _E2E:  # a late e2e is bad already
            return _GOOD
        if sli.measure is _ITL_P95:
            late = self._late_gaps.get(slo.name, 0)
            return None if ending.gaps == 0 else _verdict(good=late <= ending.gaps // 20)
        value: float | None
        match sli.measure:
            case Measure.TPOT:
                value = self._time_per_token(ending)
            case Measure.QUEUE:
                value = ending.queue
            case Measure.PREFILL:
                value = ending.prefill
            case Measure.DECODE:
                value = ending.decode
            case _:  # ttft and ttft_answer: undecided only without output, or without an answer
                value = None
        return None if value is None else _verdict(good=value <= sli.threshold)

    def _time_per_token(self, ending: Ending) -> float | None:
        tokens = ending.completion_tokens
        if self._first_token_at is None or ending.last_chunk is None or tokens is None or tokens < 2:
            return None
        return (ending.last_chunk - self._first_token_at) / (tokens - 1)

    def _settle(self, settled: list[tuple[str, Verdict]]) -> list[tuple[str, Verdict]]:
        for name, verdict in settled:
            del self._undecided[name]
            self.verdicts[name] = verdict
        self._next_deadline = min(map(self._due, self._undecided), default=inf)
        return settled


def nearest_rank(ordered: Sequence[float], percent: int) -> float:
    """The nearest-rank percentile: the smallest value with at least `percent` % of all values at or below it."""
    return ordered[nearest_index(len(ordered), percent)]


def nearest_index(count: int, percent: int) -> int:
    """The position of the nearest-rank percentile among `count` values in order."""
    return max(0, -(-count * percent // 100) - 1)


def _verdict(*, good: bool) -> Verdict:
    return _GOOD if good else _BAD


def goodput(verdicts: Iterable[Verdict]) -> bool | None:
    """Whether all SLOs that judged a request are good; None without a good or bad verdict (no event)."""
    final = [verdict for verdict in verdicts if verdict is not _ABANDONED]
    return final.count(_GOOD) == len(final) if final else None


@dataclass(frozen=True, slots=True)
class EndedRequest:
    """A request that has ended; times are seconds since its time zero, `gaps` are between output chunks."""

    stream: bool
    ending: Ending
    n: int = 1
    max_tokens: int | None = None
    first_token: float | None = None
    gaps: Sequence[float] = ()
    first_answer: float | None = None


def judge_request(slos: Iterable[Slo], first_token_timeout: float, request: EndedRequest) -> dict[str, Verdict]:
    """The verdicts of a request that has ended, equal to those of a `Judge` during the request."""
    applicable = applicable_slos(slos, stream=request.stream, several=several_tokens(request.n, request.max_tokens))
    return judge_ended(applicable, first_token_timeout, request)


def judge_ended(applicable: ApplicableSlos, first_token_timeout: float, request: EndedRequest) -> dict[str, Verdict]:
    """The same, for the SLOs that apply to this kind of request."""
    judge = Judge(applicable, zero=0.0, first_token_timeout=first_token_timeout, max_tokens=request.max_tokens)
    if request.first_token is not None:
        judge.first_token(request.first_token)
        if request.first_answer is not None:
            judge.first_answer(request.first_answer)
        at, gaps = request.first_token, request.gaps
        if gaps and (max(gaps) > judge.late_gap or at + sum(gaps) > judge.late_after):
            for number, gap in enumerate(gaps, 1):
                at += gap
                if gap > judge.late_gap or at > judge.late_after:
                    judge.chunk(at, gap, number)
    judge.ended(msgspec.structs.replace(request.ending, gaps=len(request.gaps)))
    return judge.verdicts
