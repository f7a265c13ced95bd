"""Predictions are kept, failed or undecided, with the numbers for it."""

from pathlib import Path

import pytest
from msgspec import structs

from compose.experiments.report.conclusions import Verdict, beside, judged
from compose.experiments.report.groups import read_groups
from compose.experiments.setup.cell_store import Direction, EngineReading, ExpectedFigure, Metric, Prediction
from compose.experiments.setup.level import Level
from tests.compose.experiments.report.report_folders import ENGINE, Made, requests, write

KEPT, FAILED, UNDECIDED = Verdict.KEPT, Verdict.FAILED, Verdict.UNDECIDED
HALF, MOST = requests(0.5), requests(0.9, seed=2)
CALM = structs.replace(ENGINE, preemptions=20, kv_capacity_tokens=171_000)
BARE = EngineReading()


def cells(*, repeats: int, engines: tuple[EngineReading, EngineReading] = (ENGINE, CALM)) -> list[Made]:
    return [
        Made(name, records, repeat=repeat, engine=engine)
        for (name, records), engine in zip((("base", HALF), ("new", MOST)), engines, strict=True)
        for repeat in range(1, repeats + 1)
    ]


def direction(metric: Metric, expected: Direction, configuration: str = "new", baseline: str = "base") -> Prediction:
    return Prediction(configuration=configuration, metric=metric, baseline=baseline, direction=expected)


def bounds(metric: Metric, low: float | None, high: float | None) -> Prediction:
    return Prediction(configuration="new", request_class="siso", metric=metric, low=low, high=high)


@pytest.mark.parametrize(
    "prediction, text, verdict",
    [
        pytest.param(direction(Metric.GOODPUT, Direction.HIGHER), "higher than base", KEPT, id="higher"),
        pytest.param(direction(Metric.GOODPUT, Direction.LOWER), "lower than base", FAILED, id="not lower"),
        pytest.param(direction(Metric.GOODPUT, Direction.SAME), "same as base", FAILED, id="not the same"),
        pytest.param(direction(Metric.E2E_P50, Direction.LOWER), "lower than base", UNDECIDED, id="base at its edge"),
        pytest.param(
            direction(Metric.GOODPUT, Direction.HIGHER, "base", "base"), "higher than base", UNDECIDED, id="itself"
        ),
        pytest.param(
            direction(Metric.KV_CAPACITY_TOKENS, Direction.SAME, "base", "base"),
            "same as base",
            KEPT,
            id="itself, exact",
        ),
        pytest.param(direction(Metric.KV_CAPACITY_TOKENS, Direction.HIGHER), "higher than base", KEPT, id="exact"),
        pytest.param(direction(Metric.PREEMPTIONS, Direction.LOWER), "lower than base", UNDECIDED, id="one run"),
        pytest.param(bounds(Metric.GOODPUT, 0.6, None), "at least 60 %", KEPT, id="within"),
        pytest.param(bounds(Metric.GOODPUT, None, 0.3), "at most 30 %", FAILED, id="outside"),
        pytest.param(bounds(Metric.GOODPUT, 0.85, 0.95), "at least 85 %, at most 95 %", UNDECIDED, id="at a bound"),
        pytest.param(bounds(Metric.E2E_P50, 1.0, 3.0), "at least 1 s, at most 3 s", KEPT, id="time"),
        pytest.param(bounds(Metric.E2E_P99, None, 60.0), "at most 60 s", FAILED, id="infinite time"),
        pytest.param(bounds(Metric.PREEMPTIONS, 0, 30), "at least 0, at most 30", KEPT, id="engine within"),
        pytest.param(bounds(Metric.PREEMPTIONS, 30, 50), "at least 30, at most 50", FAILED, id="engine outside"),
    ],
)
def test_a_prediction_is_decided_by_intervals(
    tmp_path: Path, prediction: Prediction, text: str, verdict: Verdict
) -> None:
    found = [*judged(read_groups(write(tmp_path / "out", cells(repeats=1), predictions=[prediction]), None))]
    assert [(each.text, each.verdict) for each in found] == [(text, verdict)]
    assert found[0].numbers


@pytest.mark.parametrize(
    "repeats, engines, numbers, verdict",
    [
        pytest.param(
            1,
            (ENGINE, CALM),
            "20, baseline 262; one run each has no interval, so measure more repeats",
            UNDECIDED,
            id="one run each",
        ),
        pytest.param(2, (ENGINE, CALM), "20, baseline 262", KEPT, id="all repeats lower"),
        pytest.param(2, (CALM, ENGINE), "262, baseline 20", FAILED, id="all repeats higher"),
        pytest.param(2, (ENGINE, ENGINE), "262, baseline 262", UNDECIDED, id="equal"),
        pytest.param(2, (ENGINE, BARE), "not measured", UNDECIDED, id="not reported"),
    ],
)
def test_figures_of_the_engine_need_repeats(
    tmp_path: Path, repeats: int, engines: tuple[EngineReading, EngineReading], numbers: str, verdict: Verdict
) -> None:
    made = cells(repeats=repeats, engines=engines)
    prediction = direction(Metric.PREEMPTIONS, Direction.LOWER)
    found = [*judged(read_groups(write(tmp_path / "out", made, predictions=[prediction]), None))]
    assert [(each.numbers, each.verdict) for each in found] == [(numbers, verdict)]


def test_a_prediction_and_a_figure_of_the_source_have_a_row_for_each_rate(tmp_path: Path) -> None:
    made = [Made(name, HALF, level=Level(rate=rate)) for name in ("base", "new") for rate in (1.0, 2.5)]
    expected = ExpectedFigure(configuration="base", request_class="lilo", metric=Metric.COMPLETION, value=0.21)
    prediction = direction(Metric.COMPLETION, Direction.HIGHER)
    out = write(tmp_path / "out", made, predictions=[prediction], expected=[expected])
    experiment = read_groups(out, None)
    assert [each.level.rate for each in judged(experiment)] == [1.0, 2.5]
    share = sum(each.good is True for each in HALF[1::2]) / 100
    only = structs.replace(expected, rate=2.5)
    assert [each.level.rate for each in beside(read_groups(write(tmp_path / "one", made, expected=[only]), None))] == [
        2.5
    ]
    rows = [*beside(experiment)]
    assert [each.level.rate for each in rows] == [1.0, 2.5]
    assert [each.ours.pooled for each in rows if each.ours] == pytest.approx([share, share])
