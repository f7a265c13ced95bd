"""The seeded Poisson process: when each request is due, known before the first one is sent."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from random import Random


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of the run with one mean rate (requests/s) over `duration` seconds."""

    name: str
    duration: float
    rate: float


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request is due, in seconds since the start of the run."""

    due: float
    phase: str


def arrivals(phases: Sequence[Phase], seed: int) -> Iterator[Arrival]:
    """Every arrival of the phases, in order; the same seed gives the same ones.

    A gap that would cross into the next phase is drawn anew from its beginning at the new rate: the process has no
    memory, so this is exact.
    """
    random = Random(f"{seed}/arrivals")  # noqa: S311 - repeatable, not secret
    ends = accumulate(phase.duration for phase in phases)
    for phase, end in zip(phases, ends, strict=True):
        due = end - phase.duration
        while phase.rate > 0:
            due += random.expovariate(phase.rate)
            if due >= end:
                break
            yield Arrival(due, phase.name)


def lasting(phases: Sequence[Phase], seconds: float) -> tuple[Phase, ...]:
    """The phases, cut off or the last one drawn out, so that they end after `seconds`."""
    cut: list[Phase] = []
    left = seconds
    for index, phase in enumerate(phases):
        last = index == len(phases) - 1
        duration = left if last else min(phase.duration, left)
        if duration > 0:
            cut.append(replace(phase, duration=duration))
        left -= duration
    return tuple(cut)


def scaled(phases: Sequence[Phase], factor: float) -> tuple[Phase, ...]:
    return tuple(replace(phase, rate=phase.rate * factor) for phase in phases)
