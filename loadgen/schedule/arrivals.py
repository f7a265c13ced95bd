"""The arrival times of a run: a seeded point process per class and phase, fixed before the first request is sent.

A process is drawn in *expected arrivals* (a renewal process with a mean gap of 1) and mapped to seconds by the inverse
of the cumulative rate. So every law works with every course of the rate, and a class keeps its arrivals when another
class changes.
"""

from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from random import Random
from typing import NamedTuple

from loadgen.schedule.phases import AtOnce, Law, OpenLoop, Phase, timeline


class Arrival(NamedTuple):
    """The due time of one request in seconds since the start of the run; `number` counts in its class from 0."""

    due: float
    phase: str
    request_class: str
    number: int


def arrivals(phases: Sequence[Phase], shares: Mapping[str, float], seed: int) -> Iterator[Arrival]:
    """Every arrival of the open-loop phases in order; the same seed gives the same arrivals.

    Each class of `shares`, with a sum of 1, has a process of its own: it depends on the seed, the phase and its rate.
    """
    counts = dict.fromkeys(shares, 0)

    def of_class(number: int, phase: OpenLoop, name: str, start: float, end: float) -> Iterator[Arrival]:
        random = Random(f"{seed}/arrivals/{number}/{name}")  # noqa: S311 - repeatable, not secret
        for at in process(phase, phase.share(name, shares[name]), random):
            if start + at >= end:  # by rounding
                return
            yield Arrival(start + at, phase.name, name, counts[name])
            counts[name] += 1

    for number, (phase, start, end) in enumerate(timeline(phases)):
        match phase:
            case OpenLoop():
                yield from merge(*(of_class(number, phase, name, start, end) for name in shares))
            case AtOnce():
                random = Random(f"{seed}/arrivals/{number}")  # noqa: S311 - repeatable, not secret
                weights = [phase.share(name, share) for name, share in shares.items()]
                for name in random.choices(list(shares), weights, k=phase.requests):
                    yield Arrival(start, phase.name, name, counts[name])
                    counts[name] += 1


def process(phase: OpenLoop, share: float, random: Random) -> Iterator[float]:
    """The arrivals of one class with `share` of the rate, in seconds since the start of the phase.

    The process is stationary: its first arrival has the residual time of the law, U x a length-biased gap.
    """
    shape = phase.burstiness

    def gap(bias: int = 0) -> float:
        return 1.0 if phase.arrivals is Law.CONSTANT else random.gammavariate(shape + bias, 1 / shape)

    due, passed, begin = random.random() * gap(bias=1), 0.0, 0.0
    for piece in phase.pieces:
        events = piece.events * share
        while due < passed + events:
            yield begin + piece.after((due - passed) / share)
            due += gap()
        passed += events
        begin += piece.seconds


def expected_arrivals(phase: Phase, share: float, at: float) -> float:
    """Arrivals of a class that are expected in the first `at` seconds of a phase."""
    events, left = 0.0, at
    for piece in phase.pieces:
        events += piece.within(min(left, piece.seconds))
        left -= piece.seconds
        if left <= 0:
            break
    return events * share
