"""The arrival times of a run: a seeded Poisson process, fixed before the first request is sent."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from random import Random
from typing import Annotated

from exporters.yaml_keys import DURATION, NAMED, Key, Kind

NOT_NEGATIVE = Kind(lambda node: node.number(least=0), {})


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of the run with a mean `rate` in requests/s for `duration` seconds."""

    name: Annotated[str, Key(NAMED)]
    duration: Annotated[float, Key(DURATION)]
    rate: Annotated[float, Key(NOT_NEGATIVE)]


@dataclass(frozen=True, slots=True)
class Arrival:
    """The due time of one request, in seconds since the start of the run."""

    due: float
    phase: str


def arrivals(phases: Sequence[Phase], seed: int) -> Iterator[Arrival]:
    """Every arrival of the phases, in order; the same seed gives the same arrivals.

    A gap that would cross into the next phase is redrawn from the start of that phase at its rate, which is exact
    because a Poisson process is memoryless.
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


def with_duration(phases: Sequence[Phase], seconds: float) -> tuple[Phase, ...]:
    """The phases with a total length of `seconds`: cut short, or with a longer last phase."""
    cut: list[Phase] = []
    remaining = seconds
    for index, phase in enumerate(phases):
        last = index == len(phases) - 1
        duration = remaining if last else min(phase.duration, remaining)
        if duration > 0:
            cut.append(replace(phase, duration=duration))
        remaining -= duration
    return tuple(cut)


def scale_rates(phases: Sequence[Phase], factor: float) -> tuple[Phase, ...]:
    return tuple(replace(phase, rate=phase.rate * factor) for phase in phases)
