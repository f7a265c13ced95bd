"""The plan of a probe: its requests, when its records are looked at, and what they decide.

A probe offers one rate until a look decides it. Looks are at fixed times, and their errors add up to 1 - `confidence`.
The first look that can find a probe met has half of it, which is Wilson's interval at `confidence`; the later ones
share the other half. A probe is missed if any class misses any SLO, so looks for that divide the whole error by their
number and that of the SLOs.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from exporters.vocabulary.signals import Verdict
from exporters.vocabulary.slo_file import SloFile
from exporters.vocabulary.verdicts import applicable_slos, several_tokens
from loadgen.results.record import ClientOutcome, Record
from loadgen.schedule.phases import OpenLoop, Phase, Steady
from loadgen.schedule.requests import PlannedRequest, Workload
from loadgen.schedule.scenario import Scenario
from loadgen.search.attainment import Attainment, Tally, Verdicts, chance_of_bad, events_needed, wilson, z_of

PHASE = "probe"
_SAMPLE = 20_000
"""Requests of the mix that are drawn to see how often each SLO judges one."""

Pair = tuple[str, str]
"""A class and an SLO."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The shortest and the longest probe in seconds, and the confidence of its decision."""

    least: float
    most: float
    confidence: float


@dataclass(frozen=True, slots=True)
class Look:
    """A decision on the requests due in the first `at` seconds.

    A probe is met if each interval of `z` standard deviations is above its objective, unless the look is `early`, and
    missed if so many bad requests had a probability below `missed_error` at one of the objectives.
    """

    at: float
    z: float
    missed_error: float
    early: bool = False


def pairs(request: PlannedRequest, slos: SloFile) -> Iterable[Pair]:
    """The SLOs that judge a request, with its class."""
    judged_as = slos.classify(request.request_class, request.prompt_tokens, request.max_tokens, request.api)
    applicable = applicable_slos(
        slos.slos_of(judged_as), stream=request.stream, several=several_tokens(1, request.max_tokens)
    )
    return ((request.request_class, name) for name in applicable.slos)


@dataclass(frozen=True, slots=True)
class Demand:
    """The number of requests, over all classes, that a decision needs; `binding` is the rarest class and SLO."""

    requests: int
    binding: Pair
    events: int
    objectives: Mapping[Pair, float]

    def seconds(self, rate: float, timing: Timing) -> float:
        """The length of a probe that decides at its first look."""
        return min(max(self.requests / rate, timing.least), timing.most)


def demand(scenario: Scenario, slos: SloFile, phase: OpenLoop | None, confidence: float) -> Demand | None:
    """Count the requests of the mix until every class and SLO has its events; None if no SLO judges any.

    What is rarer than the sample shows is extrapolated.
    """
    objective_of = {slo.name: slo.objective for slo in slos.slos}
    needed = {name: events_needed(objective, confidence) for name, objective in objective_of.items()}
    awaited = {name for name, share in scenario.shares.items() if share}
    counts: Counter[Pair] = Counter()
    requests: dict[Pair, int] = {}
    number = 0
    for number, request in enumerate(Workload(scenario, [_phase(phase, 1.0, _SAMPLE)], scenario.seed), 1):
        awaited.discard(request.request_class)
        for pair in pairs(request, slos):
            counts[pair] += 1
            if counts[pair] == needed[pair[1]]:
                requests[pair] = number
        if number % 1000 == 0 and not awaited and counts.keys() == requests.keys():
            break
    for pair in counts.keys() - requests.keys():
        requests[pair] = math.ceil(number * needed[pair[1]] / counts[pair])
    if not requests:
        return None
    binding = max(sorted(requests), key=lambda pair: requests[pair])
    objectives = {pair: objective_of[pair[1]] for pair in sorted(requests)}
    return Demand(requests[binding], binding, needed[binding[1]], objectives)


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """The requests of one probe, and its looks; the probe ends after the last one."""

    rate: float
    seed: int
    phase: Phase
    schedule: Workload
    looks: Sequence[Look]
    objectives: Mapping[Pair, float]
    dues: Mapping[Pair, Sequence[float]]

    def judge(self, look: Look, records: Iterable[Record]) -> Verdicts:
        """The verdicts on the requests that were due before a look; requests without a record count as good."""
        offered = {pair: bisect_right(dues, look.at) for pair, dues in self.dues.items()}
        return judge(look, records, self.objectives, offered)


def judge(
    look: Look, records: Iterable[Record], objectives: Mapping[Pair, float], offered: Mapping[Pair, int]
) -> Verdicts:
    """The verdicts of a look on records that were due before it.

    For a miss, requests that are `offered` and have no record count as good, so that a look need not wait for them. A
    request that the client gave up on (an abandoned verdict) counts as bad: the server did not serve it.
    """
    events, bad = Counter[Pair](), Counter[Pair]()
    for record in records:
        if record.due <= look.at and record.outcome is not ClientOutcome.NOT_SENT:
            for slo, verdict in record.slo.items():
                events[record.request_class, slo] += 1
                bad[record.request_class, slo] += verdict is not Verdict.GOOD
    return Verdicts(
        [
            tally(pair, objective, look, events=events[pair], bad=bad[pair], offered=offered.get(pair, 0))
            for pair, objective in objectives.items()
        ]
    )


def tally(pair: Pair, objective: float, look: Look, *, events: int, bad: int, offered: int) -> Tally:
    """What a look decides for one class and SLO; `offered` includes requests that have not ended."""
    result, offered = Attainment.UNDECIDED, max(events, offered)
    if chance_of_bad(bad, offered, 1 - objective) < look.missed_error:
        result = Attainment.MISSED
    elif not look.early and wilson(events - bad, events, look.z)[0] > objective:
        result = Attainment.MET
    return Tally(*pair, objective, events, bad, *wilson(events - bad, events, look.z), result)


def plan(
    scenario: Scenario, slos: SloFile, phase: OpenLoop | None, rate: float, seed: int, timing: Timing, demanded: Demand
) -> ProbePlan:
    """The plan of a probe; the same arguments give the same plan."""
    dues: dict[Pair, list[float]] = {pair: [] for pair in demanded.objectives}
    for request in Workload(scenario, [_phase(phase, rate, timing.most)], seed):
        for pair in pairs(request, slos):
            if pair in dues:
                dues[pair].append(request.due)
    enough = timing.least
    for pair, objective in demanded.objectives.items():
        needed = events_needed(objective, timing.confidence)
        enough = max(enough, dues[pair][needed - 1] if len(dues[pair]) >= needed else timing.most)
    looks = look_times(enough, timing, len(demanded.objectives))
    offered = _phase(phase, rate, looks[-1].at)
    return ProbePlan(rate, seed, offered, Workload(scenario, [offered], seed), looks, demanded.objectives, dues)


def look_times(enough: float, timing: Timing, slos: int) -> list[Look]:
    """Looks at `enough` seconds, at its doubles and at the end, and before it at its halves, for a miss only."""
    final = [enough]
    while final[-1] * 2 < timing.most:
        final.append(final[-1] * 2)
    if final[-1] < timing.most:
        final.append(timing.most)
    early = [enough / 2]
    while early[0] >= timing.least:
        early.insert(0, early[0] / 2)
    del early[0]
    error = 1 - timing.confidence
    missed_error = error / slos / (len(early) + len(final))
    first, later = z_of(error / 2), z_of(error / 2 / max(1, len(final) - 1))
    return [
        *(Look(at, first, missed_error, early=True) for at in early),
        *(Look(at, later if number else first, missed_error) for number, at in enumerate(final)),
    ]


def first_rate_phase(phases: Collection[Phase]) -> OpenLoop | None:
    """The first phase that has a rate; its law is that of every probe."""
    return next((phase for phase in phases if isinstance(phase, OpenLoop)), None)


def _phase(like: OpenLoop | None, rate: float, seconds: float) -> Steady:
    found = Steady(PHASE, seconds, rate)
    return found if like is None else replace(found, arrivals=like.arrivals, burstiness=like.burstiness)
