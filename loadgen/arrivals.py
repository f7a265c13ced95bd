"""The arrival times of a run: a seeded point process per class and phase, fixed before the first request is sent.

A process is drawn in *expected arrivals* (a renewal process with a mean gap of 1) and mapped to seconds by the inverse
of the cumulative rate. So every law works with every course of the rate, and a class keeps its arrivals when another
class changes.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from heapq import merge
from itertools import pairwise
from random import Random
from typing import Annotated, NamedTuple

from exporters.yaml_keys import COUNT, DURATION, NAMED, Key, Kind, choice, list_of, read
from exporters.yaml_reader import Node

CYCLE_PIECES = 96
"""Straight pieces that stand for one cycle of a diurnal rate; the error is below 0.06 % of the amplitude."""


class Law(StrEnum):
    """The distribution of the gaps between arrivals."""

    CONSTANT = "constant"
    POISSON = "poisson"
    GAMMA = "gamma"


NOT_NEGATIVE = Kind(lambda node: node.number(least=0), {"type": "number", "minimum": 0})


def _above_zero(node: Node) -> float | None:
    value = node.number(least=0)
    if value == 0:
        node.problem("expected a number above 0, found '0'")
        return None
    return value


POSITIVE = Kind(_above_zero, {"type": "number", "exclusiveMinimum": 0})


@dataclass(frozen=True, slots=True)
class Piece:
    """`seconds` in which the rate changes linearly from `begin` to `end`, both in requests/s."""

    seconds: float
    begin: float
    end: float

    @property
    def events(self) -> float:
        """Expected arrivals."""
        return self.seconds * (self.begin + self.end) / 2

    def after(self, events: float) -> float:
        """Seconds from the start of the piece until `events` arrivals are expected."""
        slope = (self.end - self.begin) / self.seconds
        root = math.sqrt(max(0.0, self.begin**2 + 2 * slope * events))
        return min(self.seconds, 2 * events / (self.begin + root)) if events else 0.0

    def within(self, seconds: float) -> float:
        """Expected arrivals in the first `seconds`."""
        return seconds * (self.begin + (self.end - self.begin) * seconds / self.seconds / 2)


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of the run; `duration` and all times in seconds, rates in requests/s over all classes.

    Exactly one of `rate`, `steps`, `requests` and `users` is given: a rate (rising linearly to `end_rate`, or swinging
    up to `peak_rate` and back in each `cycle`), one rate after the other for equal times, a number of requests at once
    at the start of the phase, or a closed loop of users who each wait for their response and then `think_time`.
    `burstiness` is the shape of the gamma law: the coefficient of variation of the gaps is 1/sqrt(burstiness).
    """

    name: Annotated[str, Key(NAMED)]
    duration: Annotated[float, Key(DURATION)]
    rate: Annotated[float | None, Key(NOT_NEGATIVE)] = None
    end_rate: Annotated[float | None, Key(NOT_NEGATIVE)] = None
    peak_rate: Annotated[float | None, Key(NOT_NEGATIVE)] = None
    cycle: Annotated[float | None, Key(DURATION)] = None
    steps: Annotated[tuple[float, ...], Key(list_of(NOT_NEGATIVE, "is empty; write rates, such as [1, 2, 4]"))] = ()
    requests: Annotated[int | None, Key(COUNT)] = None
    users: Annotated[int | None, Key(COUNT)] = None
    think_time: Annotated[float | None, Key(DURATION)] = None
    arrivals: Annotated[Law | None, Key(choice(Law))] = None
    burstiness: Annotated[float | None, Key(POSITIVE)] = None

    @property
    def shape(self) -> float:
        """Of the gamma law; 1 is Poisson."""
        return self.burstiness or 1.0

    @property
    def law(self) -> Law:
        return self.arrivals or Law.POISSON

    @property
    def variation(self) -> float:
        """Coefficient of variation of the gaps, for a rate that does not change."""
        match self.law:
            case Law.CONSTANT:
                return 0.0
            case Law.POISSON:
                return 1.0
            case Law.GAMMA:
                return 1 / math.sqrt(self.shape)

    @property
    def constant_rate(self) -> bool:
        """Whether it is an open loop whose rate does not change."""
        return bool(self.rate) and self.peak_rate is None and self.end_rate in {None, self.rate}

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The course of the rate; empty for `requests` and `users`."""
        if self.steps:
            return tuple(Piece(self.duration / len(self.steps), rate, rate) for rate in self.steps)
        if self.rate is None:
            return ()
        if self.peak_rate is not None and self.cycle is not None:
            return tuple(_diurnal(self.duration, self.rate, self.peak_rate, self.cycle))
        return (Piece(self.duration, self.rate, self.rate if self.end_rate is None else self.end_rate),)


def _diurnal(duration: float, low: float, high: float, cycle: float) -> Iterator[Piece]:
    def rate(at: float) -> float:
        return low + (high - low) * (1 - math.cos(2 * math.pi * at / cycle)) / 2

    count = math.ceil(duration / cycle * CYCLE_PIECES)
    times = [duration * index / count for index in range(count + 1)]
    return (Piece(end - begin, rate(begin), rate(end)) for begin, end in pairwise(times))


_KINDS = ("rate", "steps", "requests", "users")
_NEEDS = {
    "end_rate": ("rate",),
    "peak_rate": ("rate", "cycle"),
    "cycle": ("rate", "peak_rate"),
    "think_time": ("users",),
    "burstiness": ("arrivals",),
}


def read_phase(node: Node) -> Phase:
    """Read a phase and report keys that do not go together."""
    phase, given = read(Phase, node), node.mapping()
    kinds = [kind for kind in _KINDS if kind in given]
    if len(kinds) != 1 and node.is_mapping:
        found = " and ".join(kinds) or "none"
        node.problem(f"needs exactly one of {', '.join(_KINDS)}, found {found}; write one, such as rate: 4")
    for key, needed in _NEEDS.items():
        for other in needed:
            if key in given and other not in given:
                given[key].problem(f"needs {other}; add it, or remove {key}")
    if "peak_rate" in given and "end_rate" in given:
        given["end_rate"].problem("cannot be combined with peak_rate; keep one")
    if "arrivals" in given and not {"rate", "steps"} & given.keys():
        given["arrivals"].problem("applies to rate and steps only; remove it")
    if phase.arrivals is Law.GAMMA and phase.burstiness is None and "burstiness" not in given:
        given["arrivals"].problem("gamma needs burstiness; add it, such as burstiness: 0.5 (1 is poisson)")
    if "burstiness" in given and phase.arrivals in {Law.CONSTANT, Law.POISSON}:
        given["burstiness"].problem(f"applies to gamma only, not to {phase.arrivals}; remove it")
    return phase


def timeline(phases: Iterable[Phase]) -> Iterator[tuple[Phase, float, float]]:
    """Each phase with its start and end, in seconds since the start of the run."""
    start = 0.0
    for phase in phases:
        end = start + phase.duration
        yield phase, start, end
        start = end


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

    def of_class(number: int, phase: Phase, name: str, start: float, end: float) -> Iterator[Arrival]:
        random = Random(f"{seed}/arrivals/{number}/{name}")  # noqa: S311 - repeatable, not secret
        for at in process(phase, shares[name], random):
            if start + at >= end:  # by rounding
                return
            yield Arrival(start + at, phase.name, name, counts[name])
            counts[name] += 1

    for number, (phase, start, end) in enumerate(timeline(phases)):
        yield from merge(*(of_class(number, phase, name, start, end) for name in shares))
        yield from _at_once(phase, number, shares, seed, start, counts)


def _at_once(
    phase: Phase, number: int, shares: Mapping[str, float], seed: int, start: float, counts: dict[str, int]
) -> Iterator[Arrival]:
    random = Random(f"{seed}/arrivals/{number}")  # noqa: S311 - repeatable, not secret
    for name in random.choices(list(shares), list(shares.values()), k=phase.requests or 0):
        yield Arrival(start, phase.name, name, counts[name])
        counts[name] += 1


def process(phase: Phase, share: float, random: Random) -> Iterator[float]:
    """The arrivals of one class with `share` of the rate, in seconds since the start of the phase.

    The process is stationary: its first arrival has the residual time of the law, U x a length-biased gap.
    """
    shape = phase.shape

    def gap(bias: int = 0) -> float:
        return 1.0 if phase.law is Law.CONSTANT else random.gammavariate(shape + bias, 1 / shape)

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


def with_duration(phases: Sequence[Phase], seconds: float) -> tuple[Phase, ...]:
    """The phases with a total length of `seconds`: cut short, or with a longer last phase.

    The course of the rate in a phase whose length changes is compressed or stretched.
    """
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
    """The phases with every rate, and the numbers of requests and users, multiplied by `factor`."""

    def scaled(value: float | None) -> float | None:
        return None if value is None else value * factor

    def rounded(value: int | None) -> int | None:
        return None if value is None else max(1, round(value * factor))

    return tuple(
        replace(
            phase,
            rate=scaled(phase.rate),
            end_rate=scaled(phase.end_rate),
            peak_rate=scaled(phase.peak_rate),
            steps=tuple(rate * factor for rate in phase.steps),
            requests=rounded(phase.requests),
            users=rounded(phase.users),
        )
        for phase in phases
    )
