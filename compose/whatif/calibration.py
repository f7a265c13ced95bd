"""Fits the speed of an engine, its memory and its arithmetic, to the latencies in a request log."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from statistics import median
from typing import Any, TypeVar

from compose.simulator.presets.preset import Preset

Fields = TypeVar("Fields", bound=Any)
"""A frozen dataclass of positive numbers."""

ROUNDS = 6
_STEP = 0.4
"""Logarithm of the first change of a factor, by half less in each round."""
_OUTLIER = 0.1
"""Logarithmic error above which an error counts less than squared."""


@dataclass(frozen=True, slots=True)
class Latencies:
    """Seconds; None where a request has none."""

    ttft: float | None
    tpot: float | None


@dataclass(frozen=True, slots=True)
class Residuals:
    """Medians of the absolute relative errors, over the requests that ended in the log and in the simulation.

    None where the log has no such latency.
    """

    ttft: float | None
    tpot: float | None
    requests: int


@dataclass(frozen=True, slots=True)
class Speed:
    """Factors of the memory's bandwidth and of the arithmetic of a preset."""

    memory: float = 1.0
    compute: float = 1.0

    def of(self, preset: Preset) -> Preset:
        return replace(
            preset,
            memory_bytes_per_second=preset.memory_bytes_per_second * self.memory,
            flop_per_second=preset.flop_per_second * self.compute,
            overhead_seconds=preset.overhead_seconds / self.memory,
        )


def calibrate(simulate: Callable[[Speed], Mapping[int, Latencies]], measured: Mapping[int, Latencies]) -> Speed:
    """The speed whose latencies are closest to the measured ones of the same requests, by their number."""
    return fit(Speed(), lambda speed: loss(simulate(speed), measured), ROUNDS, _STEP, _scaled)


def fit(
    start: Fields,
    cost: Callable[[Fields], float],
    rounds: int,
    step: float,
    scaled: Callable[[Fields, str, float], Fields],
) -> Fields:
    """The fields of a dataclass with the least cost: each in turn is multiplied by e to the power of up to 2 `step`.

    It goes to the best of both ends of a step and the vertex of the parabola through the three costs. Each round halves
    the step.
    """
    best, least = start, cost(start)
    for _ in range(rounds):
        for name in (field.name for field in fields(start)):
            low, high = (cost(scaled(best, name, by)) for by in (-step, step))
            curvature = low + high - 2 * least
            changes = [(least, 0.0), (low, -step), (high, step)]
            if curvature > 0:
                vertex = max(-2 * step, min(2 * step, 0.5 * step * (low - high) / curvature))
                changes.append((cost(scaled(best, name, vertex)), vertex))
            least, by = min(changes)
            best = scaled(best, name, by)
        step /= 2
    return best


def loss(simulated: Mapping[int, Latencies], measured: Mapping[int, Latencies]) -> float:
    """The mean of soft absolute values of the logarithmic errors; a request that did not end counts as one of 100 %."""
    errors = [math.log(ours / theirs) for each in _pairs(simulated, measured) for ours, theirs in each]
    wanted = sum((each.ttft is not None) + (each.tpot is not None) for each in measured.values())
    missing = max(0, wanted - len(errors)) * math.log(2)
    return (_soft_sum(errors) + missing / _OUTLIER) / max(1, wanted)


def _soft_sum(errors: Iterable[float]) -> float:
    """The sum of soft absolute values of logarithmic errors, so that a few large ones count little."""
    return sum(math.sqrt(1 + (error / _OUTLIER) ** 2) - 1 for error in errors)


def residuals(simulated: Mapping[int, Latencies], measured: Mapping[int, Latencies]) -> Residuals:
    ttft, tpot = _pairs(simulated, measured)
    first, second = (median(abs(a / b - 1) for a, b in each) if each else None for each in (ttft, tpot))
    return Residuals(first, second, max(len(ttft), len(tpot)))


def _scaled(speed: Speed, name: str, by: float) -> Speed:
    return replace(speed, **{name: getattr(speed, name) * math.exp(by)})


def _pairs(
    simulated: Mapping[int, Latencies], measured: Mapping[int, Latencies]
) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """Simulated and measured TTFT, and TPOT, of each request that has both."""
    ttft, tpot = [], []
    for number, ours in simulated.items():
        theirs = measured.get(number)
        if theirs is None:
            continue
        if ours.ttft and theirs.ttft:
            ttft.append((ours.ttft, theirs.ttft))
        if ours.tpot and theirs.tpot:
            tpot.append((ours.tpot, theirs.tpot))
    return ttft, tpot
