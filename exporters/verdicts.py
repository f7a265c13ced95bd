"""Judges one request against the SLOs of its class: each verdict falls once, as soon as it is certain."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf

from exporters.signals import Outcome, Verdict
from exporters.slos import Measure, Rejected, Slo, Unary

_STREAM_ONLY = frozenset({Measure.TTFT, Measure.TPOT, Measure.ITL_P95})
_SEVERAL_TOKENS = frozenset({Measure.TPOT, Measure.ITL_P95})
_DEADLINE = frozenset({Measure.TTFT, Measure.E2E})
# Without a first token these could stay undecided for as long as a hung engine hangs.
_BAD_WITHOUT_FIRST_TOKEN = frozenset({Measure.TPOT, Measure.ITL_P95, Measure.DECODE, Measure.AVAILABILITY})

SERVER_FAULT = frozenset(
    {
        Outcome.TIMEOUT_FIRST_TOKEN,
        Outcome.TIMEOUT_IDLE,
        Outcome.TRUNCATED,
        Outcome.UPSTREAM_ERROR,
        Outcome.UPSTREAM_UNREACHABLE,
    }
)
"""Outcomes that are bad for every SLO still undecided."""


def outcome_of_status(status: int) -> Outcome:
    """The outcome of a complete response, by its HTTP status alone."""
    if status in {429, 503}:
        return Outcome.REJECTED
    if status >= 500:
        return Outcome.UPSTREAM_ERROR
    return Outcome.CLIENT_ERROR if status >= 400 else Outcome.OK


@dataclass(frozen=True, slots=True)
class Ending:
    """How a request ended: times on the judge's clock, engine times in seconds, None for what is not known."""

    at: float
    outcome: Outcome
    last_chunk: float | None = None
    gaps: int = 0  # between output chunks
    completion_tokens: int | None = None
    queue: float | None = None
    prefill: float | None = None
    decode: float | None = None


@dataclass(frozen=True, slots=True)
class Charges:
    """The SLOs that can judge one kind of request, and what follows from their thresholds."""

    slos: dict[str, tuple[Slo, Measure]]
    late_gap: float
    """`Judge.chunk` decides nothing for a gap up to this (seconds) ..."""
    tpot: float
    """... nor for a chunk within this many seconds per token of `max_tokens`."""
    deadline: float
    """Seconds from time zero to the first threshold that time alone can miss."""
    awaits_first_token: bool
    """Whether `first_token_timeout` decides any of them."""


def several_tokens(n: int, max_tokens: int | None) -> bool:
    """Whether there can be a time between tokens: the chunks of several choices interleave."""
    return n == 1 and (max_tokens is None or max_tokens >= 2)


def charges(slos: Iterable[Slo], *, stream: bool, several: bool) -> Charges:
    """What a request is judged by; `several` as `several_tokens` has it."""
    judged: dict[str, tuple[Slo, Measure]] = {}
    for slo in slos:
        measure = slo.measure
        if not stream and measure in _STREAM_ONLY:
            if slo.unary is Unary.SKIP:
                continue
            measure = Measure.E2E
        elif measure in _SEVERAL_TOKENS and not several:
            continue
        judged[slo.name] = slo, measure

    def least(*wanted: Measure) -> float:
        return min(
            (s.threshold for s, measure in judged.values() if measure in wanted and s.threshold is not None),
            default=inf,
        )

    return Charges(
        judged,
        late_gap=least(Measure.ITL_P95),
        tpot=least(Measure.TPOT),
        deadline=least(*_DEADLINE),
        awaits_first_token=any(measure in _BAD_WITHOUT_FIRST_TOKEN for _, measure in judged.values()),
    )


class Judge:
    """The SLOs of one request, fed with the moments of its life in order of time (monotonic seconds).

    Each method returns the verdicts that fall by it, as (SLO name, verdict).
    """

    __slots__ = (
        "_first",
        "_first_by",
        "_late_by_slo",
        "_max_tokens",
        "_next",
        "_open",
        "_tpot",
        "_zero",
        "late_after",
        "late_gap",
        "verdicts",
    )

    def __init__(
        self, charges: Charges, *, zero: float, first_token_timeout: float, max_tokens: int | None = None
    ) -> None:
        self.verdicts: dict[str, Verdict] = {}
        self._zero = zero
        self._first: float | None = None
        self._first_by = zero + first_token_timeout
        self._max_tokens = max_tokens
        self._late_by_slo: dict[str, int] = {}
        self._open = charges.slos.copy()
        self._next = zero + charges.deadline
        if charges.awaits_first_token:
            self._next = min(self._next, self._first_by)
        self._tpot = charges.tpot
        self.late_gap = charges.late_gap
        """`chunk` decides nothing for a gap up to this, so that the relay may leave the call out ..."""
        self.late_after = inf
        """... unless the chunk arrives after this time."""

    def deadline(self) -> float | None:
        """When `clock` should next be called: just after it a verdict is certain."""
        return None if self._next == inf else self._next

    def clock(self, at: float) -> list[tuple[str, Verdict]]:
        """Time has come to `at`: bad is what has missed its deadline."""
        if at <= self._next:
            return []
        waiting_too_long = self._first is None and at > self._first_by
        return self._settle(
            [
                (name, Verdict.BAD)
                for name, (slo, measure) in self._open.items()
                if (measure in _DEADLINE and slo.threshold is not None and at > self._zero + slo.threshold)
                or (waiting_too_long and measure in _BAD_WITHOUT_FIRST_TOKEN)
            ]
        )

    def first_token(self, at: float) -> list[tuple[str, Verdict]]:
        """The first chunk that carries output has arrived."""
        fallen = self.clock(at)
        self._first = at
        if self._max_tokens is not None:
            self.late_after = at + self._tpot * (self._max_tokens - 1)
        in_time = [(name, Verdict.GOOD) for name, (_, measure) in self._open.items() if measure is Measure.TTFT]
        return fallen + self._settle(in_time)

    def chunk(self, at: float, gap: float, gaps: int) -> list[tuple[str, Verdict]]:
        """A later output chunk has arrived, `gap` seconds after the one before it; `gaps` counts this one too.

        Bad is what the tokens still allowed by `max_tokens` can no longer repair. An itl_p95 of N gaps (nearest
        rank) exceeds the threshold when more than N // 20 of them do, and N is at most max_tokens - 1.
        """
        lost: list[tuple[str, Verdict]] = []
        for name, (slo, measure) in self._open.items():
            if measure is Measure.ITL_P95 and slo.threshold is not None and gap > slo.threshold:
                late = self._late_by_slo[name] = self._late_by_slo.get(name, 0) + 1
                if self._max_tokens is not None and late > max(gaps, self._max_tokens - 1) // 20:
                    lost.append((name, Verdict.BAD))
            elif (
                measure is Measure.TPOT
                and slo.threshold is not None
                and self._max_tokens is not None
                and self._first is not None
                and at - self._first > slo.threshold * (self._max_tokens - 1)
            ):
                lost.append((name, Verdict.BAD))
        return self._settle(lost) if lost else lost

    def ended(self, ending: Ending) -> list[tuple[str, Verdict]]:
        """The request is over: every SLO still open is judged, abandoned or found to have no signal."""
        fallen = self.clock(ending.at)
        for name, (slo, measure) in self._open.items():
            verdict = self._last_word(slo, measure, ending)
            if verdict is not None:
                self.verdicts[name] = verdict
                fallen.append((name, verdict))
        self._open.clear()
        return fallen

    def _last_word(self, slo: Slo, measure: Measure, ending: Ending) -> Verdict | None:
        match ending.outcome:
            case Outcome.OK:
                return self._when_ok(slo, measure, ending)
            case Outcome.CLIENT_ABORT:
                return Verdict.ABANDONED
            case Outcome.CLIENT_ERROR:
                return None
            case Outcome.REJECTED:
                return Verdict.BAD if slo.rejected is Rejected.BAD else None
            case _:
                return Verdict.BAD

    def _when_ok(self, slo: Slo, measure: Measure, ending: Ending) -> Verdict | None:
        if slo.threshold is None or measure is Measure.E2E:  # e2e: `clock` has already seen to the late ones
            return Verdict.GOOD
        if measure is Measure.ITL_P95:
            late = self._late_by_slo.get(slo.name, 0)
            return None if ending.gaps == 0 else _verdict(good=late <= ending.gaps // 20)
        value: float | None
        match measure:
            case Measure.TPOT:
                value = self._time_per_token(ending)
            case Measure.QUEUE:
                value = ending.queue
            case Measure.PREFILL:
                value = ending.prefill
            case Measure.DECODE:
                value = ending.decode
            case _:  # ttft: still open only when there was no output at all
                value = None
        return None if value is None else _verdict(good=value <= slo.threshold)

    def _time_per_token(self, ending: Ending) -> float | None:
        tokens = ending.completion_tokens
        if self._first is None or ending.last_chunk is None or tokens is None or tokens < 2:
            return None
        return (ending.last_chunk - self._first) / (tokens - 1)

    def _settle(self, fallen: list[tuple[str, Verdict]]) -> list[tuple[str, Verdict]]:
        for name, verdict in fallen:
            del self._open[name]
            self.verdicts[name] = verdict
        self._next = inf
        for slo, measure in self._open.values():
            if measure in _DEADLINE and slo.threshold is not None:
                self._next = min(self._next, self._zero + slo.threshold)
            elif self._first is None and measure in _BAD_WITHOUT_FIRST_TOKEN:
                self._next = min(self._next, self._first_by)
        return fallen


def nearest_rank(ordered: Sequence[float], percent: int) -> float:
    """The smallest value with at least `percent` % of all at or below it: the percentile of itl_p95."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def _verdict(*, good: bool) -> Verdict:
    return Verdict.GOOD if good else Verdict.BAD


def goodput(verdicts: Iterable[Verdict]) -> bool | None:
    """Whether a request counts as good: good for all SLOs that judged it; None when none did (no event)."""
    judged = [verdict for verdict in verdicts if verdict is not Verdict.ABANDONED]
    return all(verdict is Verdict.GOOD for verdict in judged) if judged else None


@dataclass(frozen=True, slots=True)
class Story:
    """A whole request after the fact; times in seconds since its time zero, `gaps` between its output chunks."""

    stream: bool
    ending: Ending
    n: int = 1
    max_tokens: int | None = None
    first_token: float | None = None
    gaps: Sequence[float] = ()


def judge_story(slos: Iterable[Slo], first_token_timeout: float, story: Story) -> dict[str, Verdict]:
    """The verdicts of a request that has ended, as a live judge would have given them."""
    judge = Judge(
        charges(slos, stream=story.stream, several=several_tokens(story.n, story.max_tokens)),
        zero=0.0,
        first_token_timeout=first_token_timeout,
        max_tokens=story.max_tokens,
    )
    if story.first_token is not None:
        judge.first_token(story.first_token)
        at = story.first_token
        for number, gap in enumerate(story.gaps, 1):
            at += gap
            judge.chunk(at, gap, number)
    judge.ended(replace(story.ending, gaps=len(story.gaps)))
    return judge.verdicts
