"""The request log is rotated by size and age, and its files together stay within the total."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from exporters.requestlog.rotation import RotationLimits, rotated_files
from exporters.requestlog.writer import RequestLog
from tests.exporters.requestlog.log_records import ids, numbered
from tests.support.sample_records import finished

START = 1_700_000_000.25
"""The time of the sample record."""


@dataclass
class Clock:
    """A clock that tests set."""

    now: float = START

    def __call__(self) -> float:
        return self.now


def files(path: Path) -> list[list[str]]:
    """The request ids in each file, the oldest first."""
    return [ids(file) for file in (*rotated_files(path), path)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def line_size(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "one"
    log = RequestLog(path)
    log.write("run", numbered(1), None)
    log.close()
    yield path.stat().st_size
    path.unlink(missing_ok=True)


def test_no_file_exceeds_its_size_and_lines_remain_whole_and_in_order(path: Path, line_size: int) -> None:
    log = RequestLog(path, limits=RotationLimits(size=3 * line_size), now=Clock())
    log.write("run", numbered(1, 2), None)
    log.write("run", numbered(3, 4, 5, 6, 7), None)
    assert files(path) == [["r-1", "r-2", "r-3"], ["r-4", "r-5", "r-6"], ["r-7"]]
    assert [file.name for file in rotated_files(path)] == [
        "log.20231114T221320.250000Z",
        "log.20231114T221320.250001Z",
    ]
    log.close()


def test_a_line_that_is_larger_than_a_file_has_its_own_file(path: Path) -> None:
    log = RequestLog(path, limits=RotationLimits(size=1), now=Clock())
    log.write("run", numbered(1, 2), None)
    assert files(path) == [["r-1"], ["r-2"]]
    log.close()


def test_a_file_is_rotated_by_the_age_of_its_first_line_also_after_a_restart(path: Path) -> None:
    clock, limits = Clock(), RotationLimits(age=3600)
    log = RequestLog(path, limits=limits, now=clock, monotonic=clock)
    log.write("run", numbered(1), None)
    clock.now = START + 1800
    log.close()
    log = RequestLog(path, limits=limits, now=clock, monotonic=clock)
    clock.now = START + 3599
    log.write("run", numbered(2), None)
    clock.now = START + 3600
    log.write("run", numbered(3), None)
    clock.now = START + 7199
    log.write("run", numbered(4), None)
    assert files(path) == [["r-1", "r-2"], ["r-3", "r-4"]]
    log.close()


def test_files_of_other_programs_are_not_deleted(path: Path, line_size: int) -> None:
    others = [path.with_name(name) for name in ("log.1", "log.2.gz", "log.20231114T221320.250000Z.gz", "logs")]
    for other in others:
        other.write_bytes(b"x" * 100_000)
    log = RequestLog(path, limits=RotationLimits(size=line_size, total=2 * line_size), now=Clock())
    log.write("run", numbered(1, 2, 3), None)
    assert files(path) == [["r-2"], ["r-3"]]
    assert all(other.exists() for other in others)
    log.close()


def test_a_failed_rotation_is_retried_by_the_next_write(
    path: Path, line_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    log = RequestLog(path, limits=RotationLimits(size=2 * line_size), now=Clock())
    with monkeypatch.context() as patch:
        patch.setattr("exporters.requestlog.writer._append_to", full)
        with pytest.raises(OSError, match="No space left on device"):
            log.write("run", numbered(1, 2, 3), None)
        assert log.last_numbers == {"run": 2}
    log.write("run", numbered(1, 2, 3), None)
    assert files(path) == [["r-1", "r-2"], ["r-3"]]
    log.close()


YEAR_2100 = 4_102_444_800.0


@pytest.mark.parametrize("jump", [1e18, -1e18])
def test_an_impossible_time_of_the_clock_overwrites_no_file(path: Path, jump: float) -> None:
    log = RequestLog(path, limits=RotationLimits(size=1), now=Clock(jump))
    log.write("run", numbered(1, 2, 3), None)
    assert files(path) == [["r-1"], ["r-2"], ["r-3"]]
    log.close()


@pytest.mark.parametrize("jump", [0.0, YEAR_2100])
def test_a_jump_of_the_clock_neither_rotates_nor_prevents_the_rotation_by_age(path: Path, jump: float) -> None:
    clock, monotonic = Clock(), Clock(50.0)
    log = RequestLog(path, limits=RotationLimits(age=3600), now=clock, monotonic=monotonic)
    log.write("run", numbered(1), None)
    clock.now, monotonic.now = jump, 50.0 + 3599
    log.write("run", numbered(2), None)
    monotonic.now = 50.0 + 3600
    log.write("run", numbered(3), None)
    clock.now = START
    log.write("run", numbered(4), None)
    assert files(path) == [["r-1", "r-2"], ["r-3", "r-4"]]
    log.close()


@pytest.mark.parametrize(
    "times, lines",
    [
        pytest.param([START, 0.0, 0.0, START, START], [5], id="back"),
        pytest.param([START, YEAR_2100, YEAR_2100, START, START], [1, 4], id="ahead"),
        pytest.param([0.0, START, START, START], [1, 3], id="wrong at first, in the past"),
        pytest.param([YEAR_2100, START, START, START], [4], id="wrong at first, in the future"),
    ],
)
def test_a_restart_while_the_clock_is_wrong_rotates_at_most_once(
    path: Path, times: list[float], lines: list[int]
) -> None:
    """After a restart, the age of a file is known only from the clock; it cannot be negative."""
    for number, at in enumerate(times, 1):
        log = RequestLog(path, limits=RotationLimits(age=3600), now=Clock(at), monotonic=Clock(50.0))
        log.write("run", [(number, finished(time=at, request_id=f"r-{number}"))], None)
        log.close()
    assert [len(names) for names in files(path)] == lines


def test_a_file_that_seems_to_begin_in_the_future_is_rotated_by_the_time_since_the_restart(path: Path) -> None:
    log = RequestLog(path)
    log.write("run", [(1, finished(time=YEAR_2100))], None)
    log.close()
    monotonic = Clock(50.0)
    log = RequestLog(path, limits=RotationLimits(age=3600), now=Clock(), monotonic=monotonic)
    monotonic.now = 50.0 + 3599
    log.write("run", numbered(2), None)
    monotonic.now = 50.0 + 3600
    log.write("run", numbered(3), None)
    assert [len(names) for names in files(path)] == [2, 1]
    log.close()


def test_a_rotated_file_that_another_program_deletes_at_the_same_time_does_not_stop_the_rotation(
    path: Path, line_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = RequestLog(path, limits=RotationLimits(size=line_size, total=3 * line_size), now=Clock())
    log.write("run", numbered(1, 2, 3), None)

    def listed_and_deleted(path: Path) -> list[Path]:
        files = rotated_files(path)
        files[0].unlink()
        return files

    monkeypatch.setattr("exporters.requestlog.rotation.rotated_files", listed_and_deleted)
    log.write("run", numbered(4), None)
    assert files(path) == [["r-2"], ["r-3"], ["r-4"]]
    log.close()


def test_a_device_is_not_rotated() -> None:
    log = RequestLog(Path("/dev/null"), limits=RotationLimits(size=1, age=0.001), now=Clock())
    log.write("run", numbered(1, 2), None)
    assert log.last_numbers == {"run": 2}
    assert Path("/dev/null").is_char_device()
    log.close()


def test_every_file_of_a_private_log_is_readable_by_its_user_only(path: Path, line_size: int) -> None:
    log = RequestLog(path, limits=RotationLimits(size=line_size), private=True, now=Clock())
    log.write("run", numbered(1, 2), None)
    path.unlink()
    log.write("run", numbered(3, 4), None)
    log.close()
    assert {file.stat().st_mode & 0o777 for file in (*rotated_files(path), path)} == {0o600}
    assert len(rotated_files(path)) == 2
