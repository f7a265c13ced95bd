"""Detects repeated prompts and bodies, and estimates the number of distinct prompts, from salted hashes."""

from math import sqrt

MAX_PROMPTS = 100_000
"""Prompts kept to detect repeats; the oldest is dropped first. They take up to 15 MB."""

_INDEX_BITS = 12
_REGISTERS = 1 << _INDEX_BITS
_RANKS = 64 - _INDEX_BITS + 1
ERROR = 1.04 / sqrt(_REGISTERS)
"""Relative standard error of an estimate: 1.6 % with 4 KiB."""


class Prompts:
    """Detects repeated prompts, or bodies; memory is bounded, so repeats of old prompts may be missed."""

    def __init__(self) -> None:
        self._digests: dict[bytes, None] = {}

    def repeats(self, digest: str) -> bool:
        """Add a prompt; whether it was added before."""
        key = bytes.fromhex(digest)[:16]
        if key in self._digests:
            return True
        self._digests[key] = None
        if len(self._digests) > MAX_PROMPTS:
            del self._digests[next(iter(self._digests))]
        return False


class Distinct:
    """Estimates the number of distinct digests with HyperLogLog (Flajolet and others, 2007).

    Uses the improved raw estimator of O. Ertl, "New cardinality estimation algorithms for HyperLogLog sketches" (2017),
    algorithm 6, which needs no correction for small numbers and no bias table.
    """

    def __init__(self) -> None:
        self._registers = bytearray(_REGISTERS)

    def add(self, digest: str) -> None:
        bits = int(digest[:16], 16)
        rest = bits >> _INDEX_BITS
        rank = 64 - _INDEX_BITS - rest.bit_length() + 1
        index = bits & (_REGISTERS - 1)
        self._registers[index] = max(self._registers[index], rank)

    def estimate(self) -> float:
        counts = [self._registers.count(rank) for rank in range(_RANKS + 1)]
        denominator = _REGISTERS * _tau(1 - counts[_RANKS] / _REGISTERS)
        for count in reversed(counts[1:_RANKS]):
            denominator = 0.5 * (denominator + count)
        denominator += _REGISTERS * _sigma(counts[0] / _REGISTERS)
        return _ALPHA * _REGISTERS * _REGISTERS / denominator


_ALPHA = 0.7213475204444817  # 1 / (2 ln 2)


def _sigma(x: float) -> float:
    if x == 1.0:
        return float("inf")
    power, total = 1.0, x
    while True:
        x *= x
        before, total = total, total + x * power
        power += power
        if total == before:
            return total


def _tau(x: float) -> float:
    if x in {0.0, 1.0}:
        return 0.0
    power, total = 1.0, 1 - x
    while True:
        x = sqrt(x)
        power *= 0.5
        before, total = total, total - (1 - x) ** 2 * power
        if total == before:
            return total / 3
