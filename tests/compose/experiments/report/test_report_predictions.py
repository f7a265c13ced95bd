"""Predictions are kept, failed or undecided, with the numbers for it."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec import structs

from compose.experiments.report.conclusions import beside, judged
from compose.experiments.report.groups import read_groups
from compose.experiments.setup.cell_store import Direction, EngineReading, ExpectedFigure, Metric, Prediction
from compose.experiments.setup.level import Level
from tests.compose.experiments.report.report_folders import ENGINE, Made, requests, write
from tests.compose.golden_texts import assert_golden

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


def verdicts(out: Path, predictions: Mapping[str, Prediction], made: list[Made]) -> dict[str, str]:
    experiment = read_groups(write(out, made, predictions=[*predictions.values()]), None)
    return {
        name: f"{each.text}: {each.verdict}: {each.numbers}"
        for name, each in zip(predictions, judged(experiment), strict=True)
    }


def test_a_prediction_is_decided_by_intervals(tmp_path: Path) -> None:
    higher, lower, same = Direction.HIGHER, Direction.LOWER, Direction.SAME
    predictions = {
        "higher": direction(Metric.GOODPUT, higher),
        "not lower": direction(Metric.GOODPUT, lower),
        "not the same": direction(Metric.GOODPUT, same),
        "base at its edge": direction(Metric.E2E_P50, lower),
        "itself": direction(Metric.GOODPUT, higher, "base", "base"),
        "itself, exact": direction(Metric.KV_CAPACITY_TOKENS, same, "base", "base"),
        "exact": direction(Metric.KV_CAPACITY_TOKENS, higher),
        "within": bounds(Metric.GOODPUT, 0.6, None),
        "outside": bounds(Metric.GOODPUT, None, 0.3),
        "at a bound": bounds(Metric.GOODPUT, 0.85, 0.95),
        "time": bounds(Metric.E2E_P50, 1.0, 3.0),
        "infinite time": bounds(Metric.E2E_P99, None, 60.0),
        "engine within": bounds(Metric.PREEMPTIONS, 0, 30),
        "engine outside": bounds(Metric.PREEMPTIONS, 30, 50),
    }
    assert_golden(__file__, "predictions", verdicts(tmp_path, predictions, cells(repeats=1)))


def test_figures_of_the_engine_need_repeats(tmp_path: Path) -> None:
    cases = {
        "one run each": (1, (ENGINE, CALM)),
        "all repeats lower": (2, (ENGINE, CALM)),
        "all repeats higher": (2, (CALM, ENGINE)),
        "equal": (2, (ENGINE, ENGINE)),
        "not reported": (2, (ENGINE, BARE)),
    }
    found: dict[str, str] = {}
    for name, (repeats, engines) in cases.items():
        lower = {name: direction(Metric.PREEMPTIONS, Direction.LOWER)}
        found |= verdicts(tmp_path / name, lower, cells(repeats=repeats, engines=engines))
    assert_golden(__file__, "predictions of the engine", found)


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
