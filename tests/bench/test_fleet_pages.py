"""The pages of simulated sidecars are pages of one sidecar at a later time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tests.bench.fleet_pages import PERIOD, FleetPages

PAGE = """\
# HELP up_total Requests.
# TYPE up_total counter
up_total{engine="10.0.0.1:8000",outcome="ok"} 30
up_total{engine="10.0.0.1:8000",outcome="failed"} 0.0
# HELP open Open requests.
# TYPE open gauge
open{engine="10.0.0.1:8000"} 7.0
# HELP wait_seconds Wait.
# TYPE wait_seconds histogram
wait_seconds_bucket{le="0.5"} 3.0
wait_seconds_bucket{le="+Inf"} 4.0
wait_seconds_sum 2.5
wait_seconds_count 4.0
"""
PAGES = FleetPages(PAGE, "10.0.0.1:8000", ("a", "b"))


def samples(page: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


@given(st.floats(0, 1e6), st.sampled_from(["a", "b"]))
def test_counters_and_histograms_grow_alike_and_all_else_is_constant(seconds: float, name: str) -> None:
    factor = 1 + seconds / PERIOD
    engine = f"{name}:8000"
    assert samples(PAGES.render(name, seconds)) == pytest.approx(
        {
            ("up_total", engine, "ok"): 30 * factor,
            ("up_total", engine, "failed"): 0,
            ("open", engine): 7,
            ("wait_seconds_bucket", "0.5"): 3 * factor,
            ("wait_seconds_bucket", "+Inf"): 4 * factor,
            ("wait_seconds_sum",): 2.5 * factor,
            ("wait_seconds_count",): 4 * factor,
        }
    )


def test_the_first_page_is_that_of_the_sidecar() -> None:
    page = PAGES.render("10.0.0.1", 0)
    assert samples(page) == samples(PAGE)
    assert [line for line in page.splitlines() if line.startswith("#")] == [
        line for line in PAGE.splitlines() if line.startswith("#")
    ]


def test_samples_at_0_do_not_move() -> None:
    assert PAGES.moving == 5
