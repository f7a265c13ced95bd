"""The step model beside measured points of vLLM; `python -m tests.compose.simulator.measured.validation` has all."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import pytest

from compose.simulator.presets.step_terms import DENSE_ERRORS, MIXTURE_ERRORS, StepTerms, preset_of
from exporters.analysis.roofline.gpus import Dtype
from exporters.text.errors import UsageError
from tests.compose.simulator.measured.points import Point, predict, read_points, setup_of

POINTS = [*read_points()]
QUICK = [point for point in POINTS if not point.fits and point.concurrency <= 32 and point.output <= 1024]
DENSE, MIXTURES = ([point for point in QUICK if point.mixture is mixture] for mixture in (False, True))

NAMES = ("ttft", "tpot")


def test_the_fit_uses_at_most_a_third_of_the_points() -> None:
    assert 0 < sum(point.fits for point in POINTS) <= len(POINTS) / 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "points, errors",
    [pytest.param(DENSE, DENSE_ERRORS, id="dense"), pytest.param(MIXTURES, MIXTURE_ERRORS, id="mixtures")],
)
def test_points_that_were_not_used_for_the_fit_are_predicted(
    points: Sequence[Point], errors: tuple[float, float]
) -> None:
    pairs = [(point, predict(point, StepTerms())) for point in points[::4]]
    assert len(pairs) >= 15
    found = [median(abs(getattr(ours, name) / getattr(point, name) - 1) for point, ours in pairs) for name in NAMES]
    assert all(one < 1.5 * stated for one, stated in zip(found, errors, strict=True)), found


@pytest.mark.parametrize("point", QUICK[::20], ids=lambda point: f"{point.model} {point.gpu} {point.tensor_parallel}")
def test_no_step_is_faster_than_the_datasheet(point: Point) -> None:
    setup = setup_of(point)
    preset = point.preset(StepTerms())
    for batch in (1, 64, 1024):
        floor = max(replace(setup, context=500).memory_seconds(batch), setup.compute_seconds(batch))
        assert preset.step_seconds(tokens=batch, context=batch * 500, sequences=batch, pairs=batch * 500) > floor


def test_a_model_that_does_not_fit_is_refused() -> None:
    large = replace(setup_of(POINTS[-1]), tensor_parallel=1, weight_dtype=Dtype.BF16, utilization=0.3)
    with pytest.raises(UsageError, match="the weights leave no memory for the KV cache"):
        preset_of(large, name="large", model="large")
