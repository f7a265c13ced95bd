"""An experiment in virtual time gives the same bytes each time, and resumes where it stopped."""

import json
from pathlib import Path

import pytest

from compose.cli import main
from compose.experiments.setup.cell_store import CELL, StoredCell, read_experiment
from loadgen.results.record import RUN, SUMMARY, ClientOutcome, read_records, read_run
from loadgen.run.warm_up import WARM_UP
from tests.compose.experiments.toy_experiment import HEAD, LOAD, write_experiment

GOLDEN = Path(__file__).parents[1] / "golden"


def run(path: Path | str, out: Path, *flags: str) -> int:
    return main(["experiment", "run", str(path), "--virtual", "--out", str(out), *flags])


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def compact(cells: list[StoredCell]) -> str:
    """Goodput over the offered requests by class, completed requests, and output tokens/s of each cell."""
    lines = []
    for stored in cells:
        records, run = read_records(stored.folder), read_run(stored.folder)
        goodput = {
            name: round(sum(record.good is True for record in mine) / len(mine), 3)
            for name in run.classes
            if (mine := [record for record in records if record.request_class == name])
        }
        completed = [record for record in records if record.outcome is ClientOutcome.OK]
        tokens = sum(record.completion_tokens or 0 for record in completed) / run.seconds
        line = {
            "configuration": stored.cell.configuration,
            "offered": len(records),
            "completed": len(completed),
            "output_tokens_per_second": round(tokens, 1),
            "goodput": goodput,
            "preemptions": stored.cell.engine.preemptions,
        }
        lines.append(json.dumps(line))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(["--configurations", "base"], id="base", marks=pytest.mark.slow),
        pytest.param([], id="all", marks=pytest.mark.long),
    ],
)
def test_the_matrix_of_seed_000_is_as_committed(tmp_path: Path, flags: list[str]) -> None:
    assert run("seed-000", tmp_path / "out", *flags) == 0
    _, cells = read_experiment(tmp_path / "out")
    lines = (GOLDEN / "seed-000.jsonl").read_text().splitlines(keepends=True)
    assert compact(cells) == "".join(line for line in lines if not flags or '"base"' in line)


@pytest.mark.slow
def test_two_runs_have_the_same_bytes(tmp_path: Path) -> None:
    path = write_experiment(tmp_path, more="repeats: 2\nmax_concurrency: 8\n")
    for name in ("one", "two"):
        assert run(path, tmp_path / name) == 0
    one = contents(tmp_path / "one")
    assert one == contents(tmp_path / "two")
    assert {"experiment.json", "slos.yaml", f"cells/prefix/phases-2/{CELL}", f"cells/base/phases-1/{RUN}"} <= set(one)


def test_all_configurations_of_a_repeat_have_the_same_schedule(tmp_path: Path) -> None:
    run(write_experiment(tmp_path, more="repeats: 2\nrates: [10]\n"), tmp_path / "out")
    _, cells = read_experiment(tmp_path / "out")
    hashes = {(stored.cell.configuration, stored.cell.repeat): read_run(stored.folder).schedule for stored in cells}
    assert hashes["base", 1] == hashes["prefix", 1] != hashes["base", 2] == hashes["prefix", 2]


def test_an_interrupted_experiment_continues_and_keeps_its_cells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = write_experiment(tmp_path), tmp_path / "out"
    run(path, out)
    complete = contents(out)
    kept = out / "cells" / "base" / "phases-1"
    before = (kept / SUMMARY).stat().st_mtime_ns
    interrupted = out / "cells" / "prefix" / "phases-1"
    (interrupted / CELL).unlink()
    (interrupted / SUMMARY).write_text("incomplete")
    capsys.readouterr()
    assert run(path, out) == 0
    assert contents(out) == complete
    assert (kept / SUMMARY).stat().st_mtime_ns == before
    first, second = capsys.readouterr().out.splitlines()[1:]
    assert first == "1 of 2: base, repeat 1: done, kept from an earlier run"
    assert second.startswith("2 of 2: prefix, repeat 1: done in ")


def test_a_warm_up_fills_the_prefix_cache_and_is_not_part_of_the_figures(tmp_path: Path) -> None:
    head = HEAD.replace("true}}", "true}, warm_up: 2}")
    assert run(write_experiment(tmp_path, head=head), tmp_path / "warm") == 0
    run(write_experiment(tmp_path), tmp_path / "cold")
    warm, cold = (read_experiment(tmp_path / name)[1][1] for name in ("warm", "cold"))
    warm_records, cold_records = (read_records(each.folder) for each in (warm, cold))
    assert read_run(warm.folder).schedule == read_run(cold.folder).schedule
    assert [record.number for record in warm_records] == [record.number for record in cold_records]
    asked = sum(record.prompt_tokens or 0 for record in warm_records)
    assert warm.cell.engine.prefix_query_tokens == cold.cell.engine.prefix_query_tokens == asked
    first = next(record for record in cold_records if record.request_class == "long")
    assert not first.cached_tokens
    assert all((record.cached_tokens or 0) >= 784 for record in warm_records if record.request_class == "long")
    waves = json.loads((warm.folder / WARM_UP).read_text())
    assert [(wave["pass"], wave["size"]) for wave in waves[:4]] == [("cold", 1), ("cold", 2), ("warm", 1), ("warm", 2)]
    assert {wave["pass"] for wave in waves[4:]} == {"shared"}
    assert {record["outcome"] for wave in waves for record in wave["records"]} == {"ok"}
    assert not (cold.folder / WARM_UP).exists()


def test_other_settings_than_those_of_the_folder_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    run(write_experiment(tmp_path), out)
    before = contents(out)
    assert run(write_experiment(tmp_path, more="repeats: 2\n"), out) == 2
    assert capsys.readouterr().err == (
        f"vllm-slo: --out {out}: contains an experiment with other settings (file_sha256, repeats); choose another "
        "folder, or delete it\n"
    )
    assert contents(out) == before


def test_a_folder_with_other_files_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    assert run(write_experiment(tmp_path), out) == 2
    assert capsys.readouterr().err == (
        f"vllm-slo: --out {out}: contains notes.txt, but no experiment.json; choose an empty or a new folder\n"
    )


def test_virtual_time_runs_the_simulator_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["experiment", "run", "seed-000", "--virtual", "--engine", "vllm-cpu", "--out", str(tmp_path)]
    assert main(arguments) == 2
    assert capsys.readouterr().err == "vllm-slo: --virtual: runs the simulator only; remove --engine vllm-cpu\n"


@pytest.mark.slow
def test_the_list_has_every_built_in_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiment", "list"]) == 0
    listed = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert "seed-000" in listed
    assert "seed-004" in listed


RATES = "rates: [2, 4]\nrequests: 20\n"


def cells_of(folder: Path) -> set[str]:
    return {f"{each.cell.configuration} {each.cell.rate:g}" for each in read_experiment(folder)[1]}


@pytest.mark.slow
def test_an_experiment_can_be_measured_in_parts(tmp_path: Path) -> None:
    path, whole, parts = write_experiment(tmp_path, more=RATES), tmp_path / "whole", tmp_path / "parts"
    assert run(path, whole) == 0
    assert run(path, parts, "--configurations", "prefix", "--rates", "2") == 0
    assert cells_of(parts) == {"prefix 2"}
    assert run(path, parts, "--rates", "4.0") == 0
    assert cells_of(parts) == {"prefix 2", "prefix 4", "base 4"}
    assert run(path, parts) == 0
    assert contents(parts) == contents(whole)


@pytest.mark.slow
def test_an_experiment_is_measured_with_several_numbers_of_users(tmp_path: Path) -> None:
    load = LOAD.replace("5s, rate: 10}]", "1s, users: 1}]")
    path = write_experiment(tmp_path, load=load, more="concurrencies: [2, 5]\n")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert run(path, whole) == 0
    assert run(path, parts, "--concurrencies", "5") == 0
    assert sorted(each.name for each in (parts / "cells" / "prefix").iterdir()) == ["5-users-1"]
    assert run(path, parts) == 0
    assert contents(parts) == contents(whole)
    for stored in read_experiment(whole)[1]:
        assert stored.cell.engine.running_max == stored.cell.concurrency
        assert stored.folder.name == f"{stored.cell.concurrency}-users-1"


def test_the_number_of_requests_belongs_to_the_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = write_experiment(tmp_path, more=RATES), tmp_path / "out"
    assert run(path, out, "--requests", "40", "--rates", "4", "--configurations", "base") == 0
    (cell,) = read_experiment(out)[1]
    assert sum(phase.duration for phase in read_run(cell.folder).phases) == 10.0
    capsys.readouterr()
    assert run(path, out) == 2
    assert capsys.readouterr().err == (
        f"vllm-slo: --out {out}: contains an experiment with other settings (requests); "
        "choose another folder, or delete it\n"
    )


@pytest.mark.parametrize(
    "more, flags, message",
    [
        (RATES, ["--configurations", "prefx"], "--configurations: 'prefx' is not in small; did you mean 'prefix'?"),
        (RATES, ["--rates", "2,3"], "--rates: '3' is not in small; known: 2, 4"),
        (RATES, ["--requests", "0"], "--requests: 0 is not a number of requests; write 1 or more"),
        ("", ["--rates", "2"], "--rates: small has no rates; remove the flag"),
        ("", ["--concurrencies", "2"], "--concurrencies: small has no concurrencies; remove the flag"),
        ("", ["--requests", "9"], "--requests: small has no rates, and its phases set the number of requests"),
    ],
)  # fmt: skip
def test_an_unknown_part_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str, flags: list[str], message: str
) -> None:
    assert run(write_experiment(tmp_path, more=more), tmp_path / "out", *flags) == 2
    assert capsys.readouterr().err == f"vllm-slo: {message}\n"
