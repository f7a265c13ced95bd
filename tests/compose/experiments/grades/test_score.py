"""The score of an experiment: the points of each criterion, and the criteria of the T4 challenge."""

from math import inf
from pathlib import Path

import pytest

from compose.cli import main
from compose.experiments.grades.score import points
from compose.experiments.setup import experiment_file
from compose.experiments.setup.cell_store import Criterion, Metric, Scoring
from tests.compose.experiments.toy_experiment import mistakes, write_experiment

SCORE = """\
score:
  - {metric: output_tokens_per_second, points: 40, by: proportion, value: 3332}
  - {metric: tpot_p99, points: 20, by: limit, value: 0.001}
  - {metric: completion, points: 10, by: least, value: 1}
"""


@pytest.mark.parametrize(
    "by, measured, found",
    [
        pytest.param(Scoring.PROPORTION, 2.0, 40, id="the reference"),
        pytest.param(Scoring.PROPORTION, 4.0, 80, id="twice the reference"),
        pytest.param(Scoring.LIMIT, 1.0, 40, id="below the limit"),
        pytest.param(Scoring.LIMIT, 8.0, 10, id="four times the limit"),
        pytest.param(Scoring.LIMIT, inf, 0, id="a percentile that falls on a failed request"),
        pytest.param(Scoring.LEAST, 2.0, 40, id="the least"),
        pytest.param(Scoring.LEAST, 1.9, 0, id="below the least"),
        pytest.param(Scoring.PROPORTION, None, 0, id="no request"),
    ],
)
def test_each_criterion_has_its_points(by: Scoring, measured: float | None, found: float) -> None:
    assert points(Criterion(metric=Metric.GOODPUT, points=40, by=by, value=2), measured) == found


@pytest.mark.parametrize("name", ["seed-002", "seed-002-burst"])
def test_the_challenge_has_its_weights_and_limits(name: str) -> None:
    criteria = experiment_file.load(experiment_file.find(name)).score
    assert [(each.metric, each.points, each.by, each.value) for each in criteria] == [
        (Metric.OUTPUT_TOKENS_PER_SECOND, 40, Scoring.PROPORTION, 3332),
        (Metric.TPOT_P99, 20, Scoring.LIMIT, 0.05),
        (Metric.TTFT_P99, 15, Scoring.LIMIT, 2),
        (Metric.COMPLETION, 10, Scoring.LEAST, 1),
    ]


def test_the_command_ranks_the_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = write_experiment(tmp_path, more=SCORE), tmp_path / "out"
    main(["experiment", "run", str(path), "--virtual", "--out", str(out), "--configurations", "base,prefix"])
    capsys.readouterr()
    totals = {}
    for reference in ((), ("--reference", "100")):
        assert main(["experiment", "score", str(out), *reference]) == 0
        *lines, legend = capsys.readouterr().out.splitlines()
        totals[reference] = [float(line.split()[-1]) for line in lines if "repeat 1" in line]
        assert len(totals[reference]) == 2
        assert totals[reference] == sorted(totals[reference], reverse=True)
    assert totals["--reference", "100"] > totals[()]
    assert legend == (
        "output tokens/s: 40 points at 100 (proportion); TPOT p99: 20 points at 1 ms (limit); completion: 10 points at "
        "100 % (least)"
    )


def test_an_experiment_without_a_score_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["experiment", "run", str(write_experiment(tmp_path)), "--virtual", "--out", str(tmp_path / "out")])
    assert main(["experiment", "score", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == f"vllm-slo: {tmp_path}/out: small has no score; add the key to its file\n"


def test_a_criterion_needs_a_known_rule(tmp_path: Path) -> None:
    path = write_experiment(tmp_path, more=SCORE.replace("by: limit", "by: limits").replace("points: 10, ", ""))
    assert [text.partition(": score")[2] for text in mistakes(path)] == [
        "[1].by: 'limits' is unknown; did you mean 'limit'?",
        "[2]: points is missing",
    ]
