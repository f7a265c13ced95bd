"""The limit of decode for any number of requests, from those of a few batches."""

import pytest

from exporters.vocabulary.ceilings import Ceilings

MEMORY_PER_STEP, MEMORY_PER_REQUEST, COMPUTE_PER_REQUEST = 0.020, 0.0002, 0.00025
"""Seconds; compute takes over at a batch of 400."""


def exact(batch: float) -> float:
    return batch / max(MEMORY_PER_STEP + batch * MEMORY_PER_REQUEST, batch * COMPUTE_PER_REQUEST)


CEILINGS = Ceilings(1 / COMPUTE_PER_REQUEST, {batch: exact(batch) for batch in (1, 8, 50, 200, 1000)}, 100_000)


@pytest.mark.parametrize("batch", [0, 1, 5, 8, 24, 50, 120.5, 200, 1000, 5000])
def test_the_limit_of_a_batch_follows_from_the_batches_around_it(batch: float) -> None:
    assert CEILINGS.decode_of(batch) == pytest.approx(exact(batch))


@pytest.mark.parametrize("batch", [250, 400, 800])
def test_where_compute_takes_over_the_limit_is_a_little_too_low(batch: float) -> None:
    assert 0.8 * exact(batch) < CEILINGS.decode_of(batch) < exact(batch)


def test_with_one_batch_a_step_takes_as_long_for_every_number_of_requests() -> None:
    single = Ceilings(13_000, {8: 400.0}, 1)
    assert [single.decode_of(batch) for batch in (4, 8, 16, 10_000)] == pytest.approx([200, 400, 800, 13_000])
