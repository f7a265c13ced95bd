"""Compares the simulator with measured points, and fits its terms. Run it as a module: `python -m`."""

import argparse
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from functools import partial
from multiprocessing import Pool

from compose.simulator.presets.step_terms import StepTerms
from compose.whatif.calibration import fit, soft_sum
from tests.compose.simulator.measured.points import Point, Prediction, predict, read_points

_SHARES = ("weight_bandwidth", "kv_bandwidth", "fp8_flops", "bf16_flops", "attention_flops", "link_bandwidth")
_TTFT_WEIGHT = 0.5
"""Weight of TTFT beside TPOT in the fit."""


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fit", action="store_true", help="fit the coefficients first, with a third of the points")
    parser.add_argument("--rounds", type=int, default=2, help="times that each coefficient is fitted (default 2)")
    arguments = parser.parse_args(words)
    points, terms = list(read_points()), StepTerms()
    with Pool() as pool:

        def predictions(chosen: Iterable[Point], with_terms: StepTerms) -> list[Prediction]:
            return pool.starmap(predict, [(point, with_terms) for point in chosen], chunksize=1)

        def cost(chosen: Sequence[Point], tried: StepTerms) -> float:
            found = loss(chosen, predictions(chosen, tried))
            print(f"{found:8.3f} {tried}", file=sys.stderr)
            return found

        if arguments.fit:
            chosen = sorted(
                (point for point in points if point.fits), key=lambda point: -point.output * point.concurrency
            )
            terms = fit(terms, partial(cost, chosen), arguments.rounds, 0.2, _scaled)
            for name, value in asdict(terms).items():
                print(f"{name} = {value:.3g}")
        judged = [point for point in points if not point.fits]
        print("\n".join(table(judged, predictions(judged, terms))))
    return 0


def loss(points: Sequence[Point], found: Sequence[Prediction]) -> float:
    """The sum of soft absolute values of logarithmic errors, so that a few points that do not fit count little."""
    errors = [math.log(ours.tpot / point.tpot) for point, ours in zip(points, found, strict=True)]
    errors += [_TTFT_WEIGHT * math.log(ours.ttft / point.ttft) for point, ours in zip(points, found, strict=True)]
    return soft_sum(errors)


def _scaled(terms: StepTerms, name: str, by: float) -> StepTerms:
    value = getattr(terms, name) * math.exp(by)
    return replace(terms, **{name: min(value, 0.95) if name in _SHARES else value})


def table(points: Sequence[Point], found: Sequence[Prediction]) -> list[str]:
    """Median and 90th percentile of the absolute percentage errors, for each model and GPU, as Markdown.

    E2E is the latency of a whole request, TTFT and TPOT of the other output tokens.
    """
    groups = {"all": [*zip(points, found, strict=True)]}
    for point, ours in groups["all"]:
        groups.setdefault(f"{point.model}, {point.gpu}", []).append((point, ours))
    lines = ["| points | number | TTFT | TPOT | E2E |", "|---|---|---|---|---|"]
    for name, pairs in groups.items():
        ratios = [
            (ours.ttft / point.ttft, ours.tpot / point.tpot, _e2e(point, ours) / _e2e(point, point))
            for point, ours in pairs
        ]
        cells = (_errors([abs(ratio - 1) for ratio in column]) for column in zip(*ratios, strict=True))
        lines.append(f"| {name} | {len(pairs)} | {' | '.join(cells)} |")
    return lines


def _e2e(point: Point, times: Point | Prediction) -> float:
    return times.ttft + (point.output - 1) * times.tpot


def _errors(values: list[float]) -> str:
    values.sort()
    return f"{values[len(values) // 2]:.1%}, {values[int(len(values) * 0.9)]:.1%}"


if __name__ == "__main__":
    sys.exit(main())
