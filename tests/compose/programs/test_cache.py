"""The folder for unpacked programs: one process at a time, and complete or absent."""

import threading
from pathlib import Path

import pytest

from compose.programs.cache import locked, unpacking
from exporters.text.errors import UsageError
from tests.support.waiting import HANG


def test_a_second_process_reports_that_it_waits_and_then_continues(tmp_path: Path) -> None:
    lines: list[str] = []
    reported = threading.Event()

    def report(line: str) -> None:
        lines.append(line)
        reported.set()

    def wait_for_lock() -> None:
        with locked(tmp_path, report):
            lines.append("locked")

    second = threading.Thread(target=wait_for_lock)
    with locked(tmp_path, lines.append):
        second.start()
        assert reported.wait(HANG)
        assert lines == [f"waiting for another process that installs programs in {tmp_path}"]
    second.join(HANG)
    assert lines[1:] == ["locked"]


def test_a_cache_that_cannot_be_created_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"file/cache: cannot be written: not a directory"):
        locked(tmp_path / "file/cache", print).__enter__()


def test_a_folder_is_complete_or_absent(tmp_path: Path) -> None:
    target = tmp_path / "programs"

    def unpack(*, fail: bool) -> None:
        with unpacking(target) as work:
            (work / "root/program").touch()
            assert not target.exists()
            if fail:
                raise UsageError("x")

    (tmp_path / "unpacking-killed/root").mkdir(parents=True)
    with pytest.raises(UsageError):
        unpack(fail=True)
    assert list(tmp_path.iterdir()) == []
    unpack(fail=False)
    assert [file.relative_to(tmp_path).as_posix() for file in tmp_path.rglob("*")] == ["programs", "programs/program"]
