"""The largest rate of each configuration of an experiment is searched; each probe is a cell that is measured once."""

import json
import shutil
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from compose.cli import main
from compose.experiments.cells import cell_run, search_run
from compose.experiments.cells.cell_run import CellPlan
from compose.experiments.report.found_rates import found_rates
from compose.experiments.report.groups import read_groups
from compose.experiments.setup import experiment_file
from compose.experiments.setup.cell_store import CELL, Cell, CellStatus, read_experiment
from compose.experiments.setup.rate_judgement import answer_text, judgement
from exporters.vocabulary import slo_file
from exporters.vocabulary.signals import Verdict
from loadgen.results.record import SUMMARY, ClientOutcome
from loadgen.search.attainment import Attainment
from loadgen.search.rate_search import Answer, Finding
from tests.compose.experiments.toy_experiment import mistakes, write_experiment
from tests.compose.golden_texts import assert_golden
from tests.loadgen.load_records import record

SLOS = """\
slos:
  version: 1
  period: 30d
  classes: [{name: short}, {name: long}]
  slos:
    - {name: ttft, classes: [short, long], signal: ttft, threshold: 300ms, objective: 80%}
    - {name: tpot, classes: [short, long], signal: tpot, threshold: 60ms, objective: 80%}
"""
SEARCH = "find_max: {lowest: 1, highest: 64, requests: 100, resolution: 0.5}\n" + SLOS
NOBODY = SEARCH.replace("{name: short}, {name: long}", '{name: tiny, prompt_tokens: "<2"}').replace(
    "short, long", "tiny"
)
UNDECIDED = "undecided: 22.63 requests/s is met, 45.25 is missed; more requests are needed to decide 32"
ABOVE = "at or above the highest rate: 64 requests/s is met"


def run(path: Path | str, out: Path, *flags: str) -> int:
    return main(["experiment", "run", str(path), "--virtual", "--out", str(out), *flags])


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def answers(printed: str) -> list[str]:
    return [line.partition("largest rate: ")[2] for line in printed.splitlines() if "largest rate: " in line]


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of an experiment whose two configurations have been searched, and what was printed."""
    folder, printed = tmp_path_factory.mktemp("search"), StringIO()
    with redirect_stdout(printed):
        assert run(write_experiment(folder, more=SEARCH), folder / "out") == 0
    return folder, printed.getvalue()


@pytest.mark.slow
def test_each_configuration_has_its_largest_rate(searched: tuple[Path, str]) -> None:
    folder, printed = searched
    assert printed.splitlines()[:3] == [
        "small: 2 searches from 1 to 64 requests/s, with about 3 probes of 100 requests each",
        "search 1 of 2: base at 8/s, repeat 1: done in 13s",
        "    met",
    ]
    assert answers(printed) == [UNDECIDED, ABOVE]
    rates: dict[str, list[float | None]] = {}
    for stored in read_experiment(folder / "out")[1]:
        rates.setdefault(stored.cell.configuration, []).append(stored.cell.rate)
    assert rates == {"base": [8, 16, 22.63, 32, 45.25, 64], "prefix": [8, 16, 32, 64]}


@pytest.mark.slow
def test_an_interrupted_search_measures_no_rate_twice(
    searched: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = searched[0] / "small.yaml", tmp_path / "out"
    shutil.copytree(searched[0] / "out", out)
    complete = contents(out)
    kept = out / "cells" / "base" / "8-1" / SUMMARY
    before = kept.stat().st_mtime_ns
    (out / "cells" / "base" / "32-1" / CELL).unlink()
    assert run(path, out, "--configurations", "base") == 0
    assert contents(out) == complete
    assert kept.stat().st_mtime_ns == before
    printed = capsys.readouterr().out
    assert printed.count("kept from an earlier run") == 5
    assert answers(printed) == [UNDECIDED]
    assert run(path, out) == 0
    assert answers(capsys.readouterr().out) == [UNDECIDED, ABOVE]


@pytest.mark.slow
def test_the_report_names_the_largest_rate_and_the_slo_that_limits_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    run(write_experiment(tmp_path, more="repeats: 2\n" + SEARCH), out, "--configurations", "base")
    capsys.readouterr()
    assert main(["experiment", "report", str(out), "--format", "json", "--html", str(tmp_path / "page.html")]) == 0
    report = json.loads(capsys.readouterr().out)
    first, second, *others = report["largest_rates"]
    assert first == {
        "configuration": "base",
        "repeat": 1,
        "finding": "undecided",
        "low": 22.63,
        "high": 45.25,
        "undecided": [32],
        "limited_by": [{"class": "long", "slo": "ttft"}, {"class": "short", "slo": "ttft"}],
        "text": UNDECIDED,
        "stopped": [],
    }
    assert (second["configuration"], second["repeat"]) == ("base", 2)
    assert second["low"] < second["high"]
    not_run = "undecided: no rate is met, none is missed; the search has not ended"
    assert [(each["configuration"], each["text"]) for each in others] == [("prefix", not_run)] * 2
    assert main(["experiment", "report", str(out), "--format", "markdown"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rates = "searched from 1/s to 64/s, until both ends of the answer differ by at most 0.5; about 100 requests a probe"
    assert f"- load: {rates}" in lines
    (row,) = (line for line in lines if line.startswith("| base | 1 | undecided"))
    assert row == (
        f"| base | 1 | {UNDECIDED} | ttft of long, ttft of short | "
        "long misses ttft, good: 37.78 % of 45 \\[25.11 %, 52.37 %\\], objective 80 %; "
        "short misses ttft, good: 55.36 % of 56 \\[42.41 %, 67.61 %\\], objective 80 % |"
    )
    assert any(line.startswith("| base | 1 | 32 | ") and "| undecided | ttft of long |" in line for line in lines)
    assert "Largest rate" in (tmp_path / "page.html").read_text()


@pytest.mark.slow
def test_another_rule_judges_the_stored_probes_again(searched: tuple[Path, str], tmp_path: Path) -> None:
    rule = tmp_path / "rule.yaml"
    lines = SLOS.replace("300ms", "10s").replace("60ms", "10s").splitlines()[1:]
    rule.write_text("\n".join(line.removeprefix("  ") for line in lines))
    found, _ = found_rates(read_groups(searched[0] / "out", rule))
    assert found.text == ABOVE


def test_a_cell_without_a_valid_measurement_ends_its_search(tmp_path: Path) -> None:
    experiment = experiment_file.load(write_experiment(tmp_path, more=SEARCH))
    assert experiment.limits is not None

    def measure(plan: CellPlan) -> Cell:
        return Cell(
            configuration=plan.configuration,
            rate=plan.level.rate,
            repeat=plan.repeat,
            status=CellStatus.INVALID,
            reason="the load generator was too slow",
            seconds=1.0,
        )

    said: list[str] = []
    out = tmp_path / "out"
    searches = cell_run.plans(experiment, out)
    record = cell_run.described(experiment, virtual=False, engine="vllm")
    cells = search_run.run(experiment, experiment.limits, searches, record, out, measure, said.append)
    assert [cell.configuration for cell in cells] == ["base", "prefix"]
    assert said[:2] == [
        "search 1 of 2: base at 8/s, repeat 1: invalid in 1s: the load generator was too slow",
        ("search 1 of 2: base, repeat 1: largest rate: the search has stopped at a cell without a valid measurement"),
    ]
    found = [*found_rates(read_groups(out, None))]
    assert [(each.text, each.reasons) for each in found] == [
        ("undecided: no rate is met, none is missed; the search has not ended", ["INVALID at 8/s"])
    ] * 2


@pytest.mark.parametrize(
    "bad, abandoned, unsent, expected",
    [
        pytest.param(0, 0, 0, Attainment.MET, id="none is bad"),
        pytest.param(20, 0, 0, Attainment.UNDECIDED, id="not beyond doubt"),
        pytest.param(40, 0, 0, Attainment.MISSED, id="missed"),
        pytest.param(0, 40, 0, Attainment.MISSED, id="given up by the client"),
        pytest.param(0, 0, 95, Attainment.UNDECIDED, id="too few were sent"),
    ],
)
def test_a_probe_is_decided_on_all_of_its_requests(
    tmp_path: Path, bad: int, abandoned: int, unsent: int, expected: Attainment
) -> None:
    experiment = experiment_file.load(write_experiment(tmp_path, more=SEARCH))
    judged_by = judgement(experiment.load.scenario, slo_file.loads(experiment.slos))
    verdicts = [Verdict.BAD] * bad + [Verdict.ABANDONED] * abandoned
    verdicts += [Verdict.GOOD] * (100 - len(verdicts))
    records = [
        record(
            request_class=name,
            due=number / 10,
            slo={"ttft": verdict, "tpot": Verdict.GOOD},
            outcome=ClientOutcome.NOT_SENT if number < unsent else ClientOutcome.OK,
        )
        for name in ("short", "long")
        for number, verdict in enumerate(verdicts)
    ]
    assert judged_by.verdicts(records, 10.0).attainment is expected
    assert judged_by.verdicts([], 10.0).attainment is Attainment.UNDECIDED


def test_an_answer_says_what_is_known() -> None:
    answers = {
        "between": Answer(Finding.BETWEEN, 2, 2.1, ()),
        "none": Answer(Finding.NONE, None, 0.5, ()),
        "above": Answer(Finding.ABOVE_CAP, 8, None, ()),
        "beaten": Answer(Finding.BEATEN, None, 4, ()),
        "undecided": Answer(Finding.UNDECIDED, None, 4, (1, 2)),
        "not ended": Answer(Finding.UNDECIDED, 4, None, ()),
    }
    assert_golden(__file__, "answers", {name: answer_text(each) for name, each in answers.items()})


def test_a_search_that_cannot_end_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = {}
    for flags in ("--rates 2", "--requests 0", "--requests 20", ""):
        path = write_experiment(tmp_path, more=SEARCH if flags else NOBODY)
        assert run(path, tmp_path / "out", *flags.split()) == 2
        found[flags or "no SLO for a class"] = capsys.readouterr().err.strip()
    assert not (tmp_path / "out").exists()
    assert_golden(__file__, "refusals", found)


def test_mistakes_of_a_search_are_reported_at_once(tmp_path: Path) -> None:
    many = """\
rates: [2]
find_max: {lowest: 4, highest: 2, requests: 0, resolution: 2, confidence: 0.9}
predictions: [{configuration: prefix, metric: ttft_p50, baseline: base, direction: lower}]
expected: []
"""
    cases = {"many": many, "the highest rate is not above the lowest": many.splitlines()[1].partition(", req")[0]}
    cases["the highest rate is not above the lowest"] += ", requests: 100}\n"
    found = {name: "\n".join(mistakes(write_experiment(tmp_path, more=more))) for name, more in cases.items()}
    assert_golden(__file__, "mistakes of a search", found)
