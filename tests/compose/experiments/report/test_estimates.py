"""Values are those of the load report, and differences are stated only if their interval excludes 0."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from compose.experiments.report.conclusions import best
from compose.experiments.report.estimates import difference, excludes_zero, interval, value
from compose.experiments.report.groups import Group, Repeat, read_groups
from compose.experiments.report.metrics import (
    COMPLETION,
    E2E_P50,
    E2E_P99,
    GOODPUT,
    ITL_P50,
    ITL_P99,
    JUDGED,
    METRICS,
    THROUGHPUT,
    TPOT_P50,
    TPOT_P99,
    TTFT_MEAN,
    TTFT_P50,
    TTFT_P99,
    ReportMetric,
    Unit,
)
from compose.experiments.setup.cell_store import EngineReading, Metric
from compose.experiments.setup.level import PHASES
from exporters.analysis.estimates.estimates import Difference
from exporters.analysis.estimates.paired_difference import PairedDifference
from loadgen.results.record import ClientOutcome, Record
from loadgen.results.summary import summarise_class
from loadgen.schedule.phases import Steady
from tests.compose.experiments.report.report_folders import Made, requests, write
from tests.loadgen.load_records import record, run

RUN = run(phases=[Steady("steady", 100, 2)], seconds=100.0)
seconds = st.floats(0.001, 500).map(lambda value: round(value, 3))


@st.composite
def records(draw: st.DrawFn) -> Record:
    stream, outcome = draw(st.booleans()), draw(st.sampled_from(ClientOutcome))
    started = stream and draw(st.booleans())
    return record(
        stream=stream,
        outcome=outcome,
        due=draw(st.floats(0, 99)),
        ttft=draw(seconds) if started else None,
        e2e=draw(seconds),
        tpot=draw(seconds) if started else None,
        itl_p50=draw(seconds) if started else None,
        itl_p95=draw(seconds) if started else None,
        completion_tokens=draw(st.none() | st.integers(0, 1000)),
        good=draw(st.none() | st.booleans()),
    )


def group(made: list[Record], name: str = "base", schedule: str = "0f") -> Group:
    return Group(name, name, PHASES, (Repeat(structs.replace(RUN, schedule=schedule), made, EngineReading()),), ())


@pytest.mark.slow
@given(st.lists(records(), min_size=1, max_size=40))
def test_the_values_are_those_of_the_load_report(made: list[Record]) -> None:
    row, measured = summarise_class("siso", made), group(made)

    def found(metric: ReportMetric) -> float | None:
        each = value(metric, measured, "siso")
        return None if each is None else each.pooled

    assert found(GOODPUT) == pytest.approx(row.good / row.offered)
    assert found(JUDGED) == (row.goodput if row.goodput is None else pytest.approx(row.goodput))
    assert found(COMPLETION) == pytest.approx(row.ok / row.offered)
    assert found(THROUGHPUT) == pytest.approx(row.completion_tokens / 100)
    assert (found(TTFT_P50), found(TTFT_P99)) == (row.ttft.p50, row.ttft.p99)
    assert (found(E2E_P50), found(E2E_P99)) == (row.e2e.p50, row.e2e.p99)
    times = [math.inf if each.ttft is None else each.ttft for each in made if each.stream]
    assert found(TTFT_MEAN) == (pytest.approx(sum(times) / len(times)) if times else None)
    received = value(METRICS["output_tokens"], measured)
    assert received is not None
    assert received.pooled == sum(each.completion_tokens or 0 for each in made)


def test_streams_without_a_token_count_as_slower_than_any() -> None:
    fast = [
        record(number=number, due=float(number), ttft=0.1, tpot=0.02, itl_p50=0.01, itl_p95=0.05)
        for number in range(49)
    ]
    never = [record(number=50 + number, due=50.0, outcome=ClientOutcome.TIMEOUT) for number in range(51)]
    for metric in (TTFT_P50, ITL_P50, TPOT_P50, TTFT_P99, ITL_P99, TPOT_P99):
        some, most = value(metric, group(fast)), value(metric, group(fast + never))
        assert some is not None
        assert some.pooled < 1
        assert most is not None
        assert Unit.SECONDS.text(most.pooled) == "∞"


def test_every_metric_of_predictions_can_be_measured() -> None:
    assert {str(each) for each in Metric} <= METRICS.keys()


@pytest.mark.parametrize(
    "after, shown",
    [
        pytest.param(requests(0.9, seed=2), True, id="many more are good"),
        pytest.param(requests(0.5, seed=2), False, id="other requests are good"),
        pytest.param(requests(0.5), False, id="the same ones"),
    ],
)
@pytest.mark.parametrize("schedule", ["0f", "other"])
def test_a_difference_is_shown_if_its_interval_excludes_zero(
    tmp_path: Path, after: list[Record], shown: bool, schedule: str
) -> None:
    cells = [Made("base", requests(0.5)), Made("new", after, schedule=schedule)]
    base, new = read_groups(write(tmp_path / "out", cells), None)
    for metric in (GOODPUT, COMPLETION, THROUGHPUT):
        found = difference(metric, base, new)
        assert found is not None
        assert excludes_zero(interval(found)) is shown
        # the same schedule is paired, but without a draw that differs there is no width
        paired = metric is not THROUGHPUT and schedule == "0f" and after != requests(0.5)
        assert isinstance(found, PairedDifference if paired else Difference)


def test_repeats_of_the_same_schedules_are_paired_in_blocks_of_each(tmp_path: Path) -> None:
    cells = [
        Made(name, requests(share, seed=repeat), repeat=repeat, schedule=f"{repeat}f")
        for name, share in (("base", 0.5), ("new", 0.6))
        for repeat in (1, 2)
    ]
    base, new = read_groups(write(tmp_path / "out", cells), None)
    found = difference(GOODPUT, base, new)
    assert isinstance(found, PairedDifference)
    assert found.blocks == 20
    one = replace(new, repeats=new.repeats[:1])
    assert isinstance(difference(GOODPUT, base, one), Difference)


def test_the_best_configuration_and_those_that_do_not_differ_from_it(tmp_path: Path) -> None:
    shares = {"base": requests(0.4), "prefix": requests(0.8, seed=2), "stack": requests(0.79, seed=3)}
    groups = [*read_groups(write(tmp_path / "out", [Made(*each) for each in shares.items()]), None)]
    found = best(groups, "all")
    assert {found.configuration, *found.ties} == {"prefix", "stack"}
    assert [found.marks(each.configuration) for each in groups] == [False, True, True]


def test_there_is_no_best_configuration_without_a_good_request(tmp_path: Path) -> None:
    groups = [*read_groups(write(tmp_path / "out", [Made("base", requests(0.0))]), None)]
    assert best(groups, "all").configuration is None


@pytest.mark.parametrize(
    "unit, number, text, change",
    [
        pytest.param(Unit.SHARE, 0.3425, "34.2 %", "+34.2", id="share"),
        pytest.param(Unit.SHARE, 1.0, "100 %", "+100", id="all"),
        pytest.param(Unit.SHARE, -0.004, "-0.4 %", "-0.4", id="small share"),
        pytest.param(Unit.SECONDS, -0.25, "-250 ms", "-250 ms", id="time"),
        pytest.param(Unit.SECONDS, float("inf"), "∞", "+∞", id="infinite time"),
        pytest.param(Unit.PER_SECOND, 1951.3, "1,951", "+1,951", id="rate"),
        pytest.param(Unit.COUNT, 0.0, "0", "0", id="none"),
    ],
)
def test_numbers_have_three_digits_and_changes_a_sign(unit: Unit, number: float, text: str, change: str) -> None:
    assert (unit.text(number), unit.change(number)) == (text, change)
