"""A run whose files cannot be written stops, reports what it has in memory, and says which file is incomplete."""

import shutil
from pathlib import Path

import pytest

from loadgen.results.record import read_records, read_run
from tests.loadgen.load_process import load, received, release, running_load, scripted_server, write_scenario
from tests.support.waiting import HANG, wait_until

pytestmark = pytest.mark.slow

LIMITED = """
import atexit, resource
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
atexit.register(resource.setrlimit, resource.RLIMIT_FSIZE, (most, most))
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, most))  # bytes of a file
"""


def test_a_full_disk_stops_the_run_and_keeps_what_was_written(tmp_path: Path) -> None:
    path, out = write_scenario(tmp_path, "siso", rate=20, duration="1h"), tmp_path / "out"
    flags = ("--log-level", "warning", "--allow-invalid")
    with scripted_server() as target:
        files = ("--scenario", str(path), "--target", target, "--out", str(out))
        process = load("run", *files, *flags, before=LIMITED)
    names = ("requests.jsonl", "summary.json", "bench.json", "report.html")
    lost = [f"{out / name}: cannot be written: file too large" for name in names]
    messages = [line.partition(" ERROR load: ")[2] for line in process.stderr.splitlines()]
    assert messages == [f"{lost[0]}; the run stops", *lost]
    assert process.returncode == 1
    assert "scripted: stopped after" in process.stdout

    # what was written before remains, without a part of a file
    assert {file.name for file in out.iterdir()} == {"run.json", "requests.jsonl"}
    assert read_run(out).ended == "stopped"
    records = read_records(out)
    assert len(records) == (out / "requests.jsonl").read_bytes().count(b"\n") > 0
    shown = load("report", str(out))
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "scripted: stopped after" in shown.stdout


def test_a_folder_that_is_deleted_during_the_run_is_written_again(tmp_path: Path) -> None:
    path, out = write_scenario(tmp_path, "siso", rate=40, duration="200ms"), tmp_path / "out"
    with scripted_server("--hold") as target, running_load(path, target, out) as process:
        assert wait_until(lambda: len(received(target)) > 2)
        shutil.rmtree(out)
        release(target)
        _, errors = process.communicate(timeout=HANG)
        requests = received(target)
    assert (process.returncode, errors) == (0, "")
    assert read_run(out).ended == "completed"
    assert len(read_records(out)) == len(requests)
    assert (out / "summary.json").exists()


def test_a_folder_that_cannot_be_written_again_is_reported(tmp_path: Path) -> None:
    path, out = write_scenario(tmp_path, "siso", rate=40, duration="200ms"), tmp_path / "out"
    with scripted_server("--hold") as target, running_load(path, target, out) as process:
        assert wait_until(lambda: len(received(target)) > 2)
        shutil.rmtree(out)
        out.touch()
        release(target)
        shown, errors = process.communicate(timeout=HANG)
    messages = [line.partition(" ERROR load: ")[2] for line in errors.splitlines()]
    assert messages == [
        f"{out}: cannot be written: file exists",
        *(
            f"{out / name}: cannot be written: not a directory"
            for name in ("run.json", "summary.json", "bench.json", "report.html")
        ),
    ]
    assert process.returncode == 1
    assert "scripted: completed after" in shown
