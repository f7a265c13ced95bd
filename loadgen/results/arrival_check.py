"""Tests whether requests were sent as their arrival law demands: counts, variation, distribution and independence."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from loadgen.results.record import Record, Run
from loadgen.schedule.arrivals import expected_arrivals
from loadgen.schedule.phases import Law, OpenLoop, timeline

FEWEST = 20
"""Gaps below which nothing is decided."""
SIGNIFICANCE = 0.001
"""Share of correct runs in which one figure fails."""
_Z = 3.29  # of the normal distribution, two-sided at SIGNIFICANCE
CONSTANT_VARIATION = 0.05
"""Coefficient of variation of the gaps up to which arrivals count as constant: send lag is never exactly 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalCheck:
    """The arrivals of one class in one phase, from the times at which they were sent.

    Gaps are measured in expected arrivals, so that they have a mean of 1 under any course of the rate. `variation` is
    their coefficient of variation, `correlation` their autocorrelation at lag 1, `p` the p-value of a
    Kolmogorov-Smirnov test against the law. None where too few gaps decide nothing, or the law has no such figure.
    """

    request_class: str
    phase: str
    law: Law
    count: int
    expected: float
    planned_variation: float
    variation: float | None = None
    correlation: float | None = None
    p: float | None = None
    faults: tuple[str, ...] = ()


def check_arrivals(run: Run, records: Iterable[Record]) -> list[ArrivalCheck]:
    """A check for each class and open-loop phase; the first turn of a conversation is its arrival."""
    first_turns = [record for record in records if record.turn == 0]
    checks = []
    for phase, start, end in timeline(run.phases):
        if not isinstance(phase, OpenLoop) or end > run.seconds:  # a phase that was cut short has fewer
            continue
        for name, usual in run.shares.items():
            share = phase.share(name, usual)
            times = [
                (record.due if record.sent is None else record.sent) - start
                for record in first_turns
                if record.phase == phase.name and record.request_class == name
            ]
            if share:
                checks.append(check(name, phase, share, sorted(times)))
    return checks


def check(name: str, phase: OpenLoop, share: float, times: Sequence[float]) -> ArrivalCheck:
    """Check sorted times in seconds since the start of the phase."""
    scaled = [expected_arrivals(phase, share, min(at, phase.duration)) for at in times]
    gaps = [later - earlier for earlier, later in pairwise(scaled)]
    expected = expected_arrivals(phase, share, phase.duration)
    found = ArrivalCheck(
        request_class=name,
        phase=phase.name,
        law=phase.arrivals,
        count=len(times),
        expected=expected,
        planned_variation=phase.variation,
    )
    # The variance of the count of a renewal process is about variation^2 x mean.
    faults = []
    if abs(len(times) - expected) > _Z * phase.variation * math.sqrt(expected) + 2:
        faults.append(f"{len(times)} arrivals, {expected:.0f} expected")
    if len(gaps) < FEWEST or not (total := sum(gaps)):
        return replace(found, faults=tuple(faults))
    mean = total / len(gaps)
    deviations = [gap - mean for gap in gaps]
    squares = sum(deviation**2 for deviation in deviations)
    variation = math.sqrt(squares / (len(gaps) - 1)) / mean
    if phase.arrivals is Law.CONSTANT:
        if variation > CONSTANT_VARIATION:
            faults.append(f"variation {variation:.2f}, at most {CONSTANT_VARIATION} expected")
        return replace(found, variation=variation, faults=tuple(faults))
    correlation = sum(a * b for a, b in pairwise(deviations)) / squares if squares else 1.0
    p = kolmogorov_smirnov(gaps, phase.burstiness)
    if p < SIGNIFICANCE:
        faults.append(f"the gaps do not follow the law (KS p {p:.2g})")
    if abs(correlation) > _Z / math.sqrt(len(gaps)):
        faults.append(f"the gaps depend on each other (autocorrelation {correlation:.2f})")
    return replace(found, variation=variation, correlation=correlation, p=p, faults=tuple(faults))


def kolmogorov_smirnov(gaps: Iterable[float], shape: float) -> float:
    """The p-value of gaps against the gamma distribution with this shape and a mean of 1.

    The limiting distribution with Stephens' correction for small samples (Numerical Recipes, 14.3.3).
    """
    shares = [gamma_share(shape, gap * shape) for gap in sorted(gaps)]
    count = len(shares)
    distance = max(max((index + 1) / count - share, share - index / count) for index, share in enumerate(shares))
    root = math.sqrt(count)
    scaled = (root + 0.12 + 0.11 / root) * distance
    if scaled < 0.2:  # where the series below converges slowly, and p is 1 to six digits
        return 1.0
    terms = ((-1) ** (term - 1) * math.exp(-2 * term**2 * scaled**2) for term in range(1, 101))
    return min(1.0, max(0.0, 2 * sum(terms, 0.0)))


def gamma_share(shape: float, x: float) -> float:
    """The regularised lower incomplete gamma function P(shape, x), by its power series (DLMF 8.7.1)."""
    if x <= 0:
        return 0.0
    if x > 500 + 10 * shape:  # 1 to all digits, where the series would overflow
        return 1.0
    term = total = 1 / shape
    divisor = shape
    while term > total * 1e-15:
        divisor += 1
        term *= x / divisor
        total += term
    return min(1.0, math.exp(math.log(total) + shape * math.log(x) - x - math.lgamma(shape)))
