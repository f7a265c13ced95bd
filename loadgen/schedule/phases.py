"""The phases of a run: one type per schedule, read from a scenario, stored, scaled and cut to a length."""

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any, get_origin, get_type_hints

import msgspec

from exporters.text.yaml_keys import COUNT, DURATION, NAMED, Kind, choice, list_of
from exporters.text.yaml_reader import Node

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


def _shares(node: Node) -> Mapping[str, float]:
    """The shares of the classes in a phase, with a sum of 1."""
    weights = {name: NOT_NEGATIVE.read(weight) or 0.0 for name, weight in node.entries()}
    total = sum(weights.values())
    if not total and not node.reader.problems:
        node.problem("no class has a share above 0; set one, such as {chat: 1}")
    return {name: weight / (total or 1.0) for name, weight in weights.items()}


SHARES = Kind(_shares, {})


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


class Phase(ABC):
    """A part of the run: one of the types below, by its schedule.

    `duration` and all times in seconds, rates in requests/s over all classes.
    """

    __slots__ = ()
    name: str
    duration: float

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The course of the rate; empty for a phase without one."""
        return ()

    @property
    def constant_rate(self) -> bool:
        """Whether it is an open loop whose rate does not change."""
        return False

    @abstractmethod
    def lasting(self, seconds: float) -> "Phase":
        """The phase with another duration, to which a ramp or steps are compressed or stretched."""

    def scaled(self, factor: float) -> "Phase":
        """The phase with every rate, or the number of requests or users, multiplied by `factor`."""
        return self


@dataclass(frozen=True, slots=True)
class _Named(Phase):
    name: Annotated[str, NAMED]
    duration: Annotated[float, DURATION]

    def lasting(self, seconds: float) -> Phase:
        return replace(self, duration=seconds)


@dataclass(frozen=True, slots=True)
class _Shared(_Named):
    """Arrivals whose classes have the shares of the scenario, or `shares` of the phase, with a sum of 1."""

    shares: Annotated[Mapping[str, float] | None, SHARES] = field(default=None, kw_only=True)

    def share(self, name: str, usual: float) -> float:
        """The share of a class that has the share `usual` in the scenario."""
        return usual if self.shares is None else self.shares.get(name, 0.0)


@dataclass(frozen=True, slots=True)
class Replay(_Named):
    """The requests of a trace, at their recorded times."""


@dataclass(frozen=True, slots=True)
class OpenLoop(_Shared):
    """A planned rate: the gaps between arrivals follow a law.

    `burstiness` is the shape of the gamma law, 1 for Poisson: the coefficient of variation of the gaps is
    1/sqrt(burstiness).
    """

    arrivals: Annotated[Law, choice(Law)] = field(default=Law.POISSON, kw_only=True)
    burstiness: Annotated[float, POSITIVE] = field(default=1.0, kw_only=True)

    @property
    def variation(self) -> float:
        """Coefficient of variation of the gaps, for a rate that does not change."""
        return 0.0 if self.arrivals is Law.CONSTANT else 1 / math.sqrt(self.burstiness)

    def scaled(self, factor: float) -> Phase:
        rates = [name for name in ("rate", "end_rate", "peak_rate") if hasattr(self, name)]
        return replace(self, **{name: getattr(self, name) * factor for name in rates})


@dataclass(frozen=True, slots=True)
class Steady(OpenLoop):
    """A constant rate."""

    rate: Annotated[float, NOT_NEGATIVE]

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return (Piece(self.duration, self.rate, self.rate),)

    @property
    def constant_rate(self) -> bool:
        return self.rate > 0


@dataclass(frozen=True, slots=True)
class Ramp(OpenLoop):
    """A rate that changes linearly from `rate` to `end_rate`."""

    rate: Annotated[float, NOT_NEGATIVE]
    end_rate: Annotated[float, NOT_NEGATIVE]

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return (Piece(self.duration, self.rate, self.end_rate),)


@dataclass(frozen=True, slots=True)
class Diurnal(OpenLoop):
    """A rate that swings from `rate` up to `peak_rate` and back in each `cycle` of seconds."""

    rate: Annotated[float, NOT_NEGATIVE]
    peak_rate: Annotated[float, NOT_NEGATIVE]
    cycle: Annotated[float, DURATION]

    @property
    def pieces(self) -> tuple[Piece, ...]:
        count = math.ceil(self.duration / self.cycle * CYCLE_PIECES)
        times = [self.duration * index / count for index in range(count + 1)]
        return tuple(Piece(end - begin, self._rate(begin), self._rate(end)) for begin, end in pairwise(times))

    def _rate(self, at: float) -> float:
        return self.rate + (self.peak_rate - self.rate) * (1 - math.cos(2 * math.pi * at / self.cycle)) / 2


@dataclass(frozen=True, slots=True)
class Steps(OpenLoop):
    """One rate after the other for equal times."""

    steps: Annotated[tuple[float, ...], list_of(NOT_NEGATIVE, "is empty; write rates, such as [1, 2, 4]")]

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return tuple(Piece(self.duration / len(self.steps), rate, rate) for rate in self.steps)

    def scaled(self, factor: float) -> "Steps":
        return replace(self, steps=tuple(rate * factor for rate in self.steps))


@dataclass(frozen=True, slots=True)
class AtOnce(_Shared):
    """A number of requests at the start of the phase."""

    requests: Annotated[int, COUNT]

    def scaled(self, factor: float) -> "AtOnce":
        return replace(self, requests=max(1, round(self.requests * factor)))


@dataclass(frozen=True, slots=True)
class ClosedLoop(_Named):
    """Users who each wait for their response, and then `think_time` seconds."""

    users: Annotated[int, COUNT]
    think_time: Annotated[float, DURATION] = 0.0

    def scaled(self, factor: float) -> "ClosedLoop":
        return replace(self, users=max(1, round(self.users * factor)))


_TYPES: Mapping[str, type[_Named]] = {
    "steps": Steps,
    "requests": AtOnce,
    "users": ClosedLoop,
    "end_rate": Ramp,
    "peak_rate": Diurnal,
    "rate": Steady,
}
"""The type of a phase by the first of these keys that it has."""
_KINDS = ("rate", "steps", "requests", "users")
_NEEDS = {
    "end_rate": ("rate",),
    "peak_rate": ("rate", "cycle"),
    "cycle": ("rate", "peak_rate"),
    "think_time": ("users",),
    "burstiness": ("arrivals",),
}
_KEYS: Mapping[str, Kind[Any]] = {
    name: hint.__metadata__[0]
    for made in _TYPES.values()
    for name, hint in get_type_hints(made, include_extras=True).items()
    if get_origin(hint) is Annotated
}


def _type_of(keys: Collection[str]) -> type[_Named]:
    return next((made for key, made in _TYPES.items() if key in keys), Replay)


def read_phase(node: Node) -> Phase:
    """Read a phase and report keys that do not go together; a value with a mistake is None."""
    nodes = node.fields(_KEYS, ("name", "duration"))
    values = {key: _KEYS[key].read(value) for key, value in nodes.items()}
    kinds = [kind for kind in _KINDS if kind in nodes]
    if len(kinds) != 1 and node.is_mapping:
        found = " and ".join(kinds) or "none"
        node.problem(f"needs exactly one of {', '.join(_KINDS)}, found {found}; write one, such as rate: 4")
    for key, needed in _NEEDS.items():
        for other in needed:
            if key in nodes and other not in nodes:
                nodes[key].problem(f"needs {other}; add it, or remove {key}")
    if "peak_rate" in nodes and "end_rate" in nodes:
        nodes["end_rate"].problem("cannot be combined with peak_rate; keep one")
    if "shares" in nodes and not {"rate", "steps", "requests"} & nodes.keys():
        nodes["shares"].problem("applies to rate, steps and requests only; remove it")
    if "arrivals" in nodes and not {"rate", "steps"} & nodes.keys():
        nodes["arrivals"].problem("applies to rate and steps only; remove it")
    law = values.get("arrivals")
    if law is Law.GAMMA and "burstiness" not in nodes:
        nodes["arrivals"].problem("gamma needs burstiness; add it, such as burstiness: 0.5 (1 is poisson)")
    if "burstiness" in nodes and law in {Law.CONSTANT, Law.POISSON}:
        nodes["burstiness"].problem(f"applies to gamma only, not to {law}; remove it")
    made = _type_of(nodes)
    required = {each.name: None for each in fields(made) if each.default is MISSING}
    return made(**required | {each.name: values[each.name] for each in fields(made) if each.name in values})


def stored_phase(stored: Mapping[str, object]) -> Phase:
    """A phase from its fields in a file; releases up to 0.2 wrote the keys of all types, null where not given.

    Raises:
        msgspec.ValidationError: they are not those of a phase.
    """
    given = {key: value for key, value in stored.items() if value not in (None, [])}
    return msgspec.convert(given, _type_of(given))


def timeline(phases: Iterable[Phase]) -> Iterator[tuple[Phase, float, float]]:
    """Each phase with its start and end, in seconds since the start of the run."""
    start = 0.0
    for phase in phases:
        end = start + phase.duration
        yield phase, start, end
        start = end


def with_duration(phases: Sequence[Phase], seconds: float) -> tuple[Phase, ...]:
    """The phases with a total length of `seconds`: cut short, or with a longer last phase."""
    cut: list[Phase] = []
    remaining = seconds
    for index, phase in enumerate(phases):
        last = index == len(phases) - 1
        duration = remaining if last else min(phase.duration, remaining)
        if duration > 0:
            cut.append(phase.lasting(duration))
        remaining -= duration
    return tuple(cut)


def scale_rates(phases: Iterable[Phase], factor: float) -> tuple[Phase, ...]:
    """The phases with every rate, and the numbers of requests and users, multiplied by `factor`."""
    return tuple(phase.scaled(factor) for phase in phases)
