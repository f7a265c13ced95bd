"""Over-saturation is found early on simulated queues with fixed seeds, and not on servers that keep up."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

import pytest

from loadgen.results.saturation import Sample, Saturation, SaturationWatch, find_saturation
from loadgen.results.steady_state import Timed
from loadgen.schedule.phases import ClosedLoop, Phase, Ramp, Steady
from tests.loadgen.queues import queue, seeded

RATE = 10.0


def sampled(requests: Sequence[Timed], seconds: int) -> Iterator[Sample]:
    """A sample for each second; the requests are sorted by due time."""
    dues, ends = [request.due for request in requests], sorted(request.closed for request in requests)
    oldest = 0
    for at in range(1, seconds + 1):
        offered = bisect_right(dues, at)
        while oldest < offered and requests[oldest].closed <= at:
            oldest += 1
        yield Sample(at, offered, bisect_right(ends, at), at - dues[oldest] if oldest < offered else 0.0)


def detect(samples: Sequence[Sample], every: int = 5) -> Saturation | None:
    """The first over-saturation in the samples, as a run would find it that looks every 5 s."""
    found = (find_saturation(samples[:count]) for count in range(every, len(samples) + 1, every))
    return next((each for each in found if each is not None), None)


@pytest.mark.slow
@pytest.mark.parametrize("slots", [pytest.param(1, id="M/M/1"), pytest.param(32, id="M/M/32")])
@pytest.mark.parametrize("load", [0.5, 0.8, 0.9])
def test_a_server_that_keeps_up_is_not_saturated(load: float, slots: int) -> None:
    random = seeded(18)
    runs = [queue(load, 2000, random, slots=slots, rate=RATE) for _ in range(8)]
    assert [detect(list(sampled(run, 200))) for run in runs] == [None] * 8


@pytest.mark.slow
@pytest.mark.parametrize(
    "load, seconds",
    [pytest.param(1.3, 180, id="three tenths too much"), pytest.param(2.0, 75, id="twice")],
)
def test_a_server_that_does_not_keep_up_is_saturated_from_the_start(load: float, seconds: int) -> None:
    random = seeded(18)
    for _ in range(8):
        found = detect(list(sampled(queue(load, 2000, random, rate=RATE), seconds)))
        assert found is not None
        assert found.since < 0.75 * found.detected
        assert found.offered == pytest.approx(RATE, rel=0.3)
        assert found.completed == pytest.approx(RATE / load, rel=0.3)


def test_a_server_that_slows_down_is_saturated_since_then() -> None:
    """Constant arrivals, each answered after 2 s until 100 s have passed; then half of the rate is served."""
    dues = [number / RATE for number in range(4000)]
    requests = [Timed(due, 0.0, due + 2 if due < 100 else 102 + (due - 100) * 2) for due in dues]
    found = detect(list(sampled(requests, 390)), every=1)
    assert found is not None
    assert found.since == pytest.approx(100, abs=10)
    assert found.detected <= 220  # when the slow part is about as long as the one before


def test_requests_that_fill_the_server_are_no_saturation() -> None:
    """A server that takes 60 s for each response, at any rate."""
    requests = [Timed(number / RATE, 0.0, number / RATE + 60) for number in range(3000)]
    assert detect(list(sampled(requests, 300))) is None


def test_a_burst_that_ends_is_no_saturation() -> None:
    """The server stops for 10 s of every 200."""
    dues = [number / RATE for number in range(3000)]
    requests = [Timed(due, 0.0, max(due + 1, 110.0) if 100 <= due % 200 < 110 else due + 1) for due in dues]
    assert detect(list(sampled(requests, 300)), every=1) is None


def test_a_phase_with_few_requests_is_not_decided() -> None:
    requests = [Timed(float(number), 0.0, 4.0 * number) for number in range(150)]
    samples = list(sampled(requests, 149))
    assert detect(samples) is None


def watched(watch: SaturationWatch, samples: Sequence[Sample], start: float) -> list[Saturation]:
    """What a watch finds in the samples of a phase that starts at `start`, after 1000 requests that have all ended."""
    found = (
        watch.sample(start + each.at, 1000 + each.offered, 1000 + each.ended, start + each.at - each.oldest)
        for each in samples
    )
    return [each for each in found if each is not None]


def test_a_run_reports_its_first_saturation_once_and_by_the_counts_of_its_phase() -> None:
    samples = list(sampled(queue(2.0, 2000, seeded(1), rate=RATE), 100))
    watch = SaturationWatch([Steady("calm", 300, 1), Steady("peak", 101, RATE), Steady("more", 101, RATE)])
    (found,) = watched(watch, samples, 300)
    assert (found.phase, watch.found) == ("peak", found)
    assert 300 <= found.since < found.detected < 400
    assert found.offered == pytest.approx(RATE, rel=0.3)
    assert watched(watch, samples, 401) == []


@pytest.mark.parametrize(
    "phase",
    [
        pytest.param(Ramp("ramp", 101, 1, end_rate=20), id="ramp"),
        pytest.param(ClosedLoop("users", 101, users=50), id="closed loop"),
    ],
)
def test_open_requests_may_rise_if_the_load_rises(phase: Phase) -> None:
    samples = list(sampled(queue(2.0, 2000, seeded(1), rate=RATE), 100))
    assert watched(SaturationWatch([phase]), samples, 0) == []
