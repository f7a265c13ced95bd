"""The score of the T4 challenge."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from compose.cli import main
from compose.experiment.challenge_score import score
from loadgen.request_record import ClientOutcome, Record
from tests.compose.experiment.toy_experiment import write_experiment


def record(*, tpot: float, ttft: float, outcome: ClientOutcome = ClientOutcome.OK) -> Record:
    return Record(
        request_class="user",
        phase="users",
        number=0,
        request_id="",
        endpoint="/v1/completions",
        stream=True,
        outcome=outcome,
        due=0.0,
        closed=1.0,
        ttft=ttft,
        e2e=1.0,
        tpot=tpot,
        asked_prompt_tokens=512,
        max_tokens=512,
        completion_tokens=500,
    )


GOOD = record(tpot=0.02, ttft=1.0)


@pytest.mark.parametrize(
    "records,points",
    [
        pytest.param([GOOD, GOOD], (40, 20, 15, 10), id="the reference, within all limits"),
        pytest.param([GOOD] * 4, (80, 20, 15, 10), id="twice the reference"),
        pytest.param([record(tpot=0.1, ttft=8.0)] * 2, (40, 10, 3.75, 10), id="twice and four times the limits"),
        pytest.param(
            [GOOD, record(tpot=0.02, ttft=1.0, outcome=ClientOutcome.TIMEOUT)], (40, 0, 15, 0), id="one failed"
        ),
        pytest.param([], (0, 0, 0, 0), id="no request"),
    ],
)
def test_each_criterion_has_its_points(records: Sequence[Record], points: tuple[float, ...]) -> None:
    found = score(records, 10.0, reference=100.0)
    assert (found.throughput, found.tpot, found.ttft, found.success) == pytest.approx(points)
    assert found.total == pytest.approx(sum(points))


def test_the_command_ranks_the_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["experiment", "run", str(write_experiment(tmp_path)), "--virtual", "--out", str(tmp_path / "out")])
    capsys.readouterr()
    assert main(["experiment", "score", str(tmp_path / "out"), "--reference", "100"]) == 0
    lines = capsys.readouterr().out.splitlines()
    totals = [float(line.split()[-1]) for line in lines if "repeat 1" in line]
    assert len(totals) == 2
    assert totals == sorted(totals, reverse=True)


def test_a_reference_of_zero_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiment", "score", str(tmp_path), "--reference", "0"]) == 2
    assert capsys.readouterr().err == "vllm-slo: --reference: 0 is not a throughput; write a number above 0\n"
