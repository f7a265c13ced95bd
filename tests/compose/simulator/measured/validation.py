"""Compares the simulator with measured points, and fits its terms. Run it as a module: `python -m`."""

import argparse
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from multiprocessing import Pool

from compose.simulator.presets.step_terms import StepTerms
from compose.whatif.calibration import fit
from tests.compose.simulator.measured.points import Point, Prediction, predict, read_points

_SHARES = {field.name for field in fields(StepTerms) if field.name.endswith(("_bandwidth", "_flops"))}
_FITTED_REQUESTS = 3
"""Requests of each client while terms are fitted, to save time."""
_TTFT_WEIGHT = 0.5
"""Weight of TTFT beside TPOT in the fit."""
_SCALE = 0.1
"""Logarithmic error from which an error counts less and less."""


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fit", action="store_true", help="fit the coefficients first, with the points for that")
    parser.add_argument("--rounds", type=int, default=2, help="times that each coefficient is fitted (default 2)")
    arguments = parser.parse_args(words)
    points, terms = list(read_points()), StepTerms()
    with Pool() as pool:

        def predictions(chosen: Iterable[Point], *arguments: object) -> list[Prediction]:
            return pool.starmap(predict, [(point, *arguments) for point in chosen], chunksize=1)

        def cost(chosen: Sequence[Point], tried: StepTerms) -> float:
            found = loss(chosen, predictions(chosen, tried, _FITTED_REQUESTS))
            print(f"{found:8.3f} {tried}", file=sys.stderr)
            return found

        if arguments.fit:
            chosen = [point for point in points if point.fits]
            chosen.sort(key=lambda point: -point.output * point.concurrency)  # the longest begin first
            terms = fit(terms, partial(cost, chosen), arguments.rounds, 0.1, _scaled)
            for name, value in asdict(terms).items():
                print(f"{name} = {value:.3g}")
        judged = [point for point in points if not point.fits]
        print("\n".join(table(judged, predictions(judged, terms))))
    return 0


def loss(points: Sequence[Point], found: Sequence[Prediction]) -> float:
    """Cauchy's loss of logarithmic errors, so that points that do not fit count little."""
    errors = [math.log(ours.tpot / point.tpot) for point, ours in zip(points, found, strict=True)]
    errors += [_TTFT_WEIGHT * math.log(ours.ttft / point.ttft) for point, ours in zip(points, found, strict=True)]
    return sum(math.log1p((error / _SCALE) ** 2) for error in errors)


def _scaled(terms: StepTerms, name: str, by: float) -> StepTerms:
    value = getattr(terms, name) * math.exp(by)
    return replace(terms, **{name: min(value, 0.95) if name in _SHARES else value})


def table(points: Sequence[Point], found: Sequence[Prediction]) -> list[str]:
    """Median and 90th percentile of the absolute percentage errors, for each model and GPU, as Markdown.

    E2E is the latency of a whole request, TTFT and TPOT of the other output tokens.
    """
    groups: dict[str, list[tuple[Point, Prediction]]] = {"all": [], "dense models": [], "mixtures of experts": []}
    for point, ours in zip(points, found, strict=True):
        kind = "mixtures of experts" if point.mixture else "dense models"
        for group in ("all", kind, f"{point.model}, {point.gpu}"):
            groups.setdefault(group, []).append((point, ours))
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
