"""Each acknowledged line is in exactly one file, over random writes, rotations, removals, moves and clock jumps."""

import gzip
import json
import os
import shutil
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from exporters.requestlog.files import blocks
from exporters.requestlog.rotation import RotationLimits, rotated_files
from exporters.requestlog.writer import RequestLog
from exporters.sidecar.follow.growing_log import GrowingLog
from tests.support.sample_records import finished

START = 1_700_000_000.0
CLOCKS = {"1970": 0.0, "2023": START, "an hour later": START + 3600, "2100": 4_102_444_800.0}
LINE = 1000
"""More than the size of a line."""


def numbers(data: bytes) -> list[int]:
    return [int(json.loads(line)["record"].rpartition(":")[2]) for line in data.splitlines()]


def contents(file: Path) -> list[int]:
    data = file.read_bytes()
    return numbers(gzip.decompress(data) if file.suffix == ".gz" else data)


class World:
    """A log with its writer, its follower, and the programs that act on its files."""

    def __init__(self, root: Path, limits: RotationLimits) -> None:
        self.root = root
        self.path = root / "folder" / "log"
        self.limits = limits
        self.clock, self.uptime = START, 0.0
        self.sent = 0
        self.missing: set[int] = set()
        """Lines of removed files, and of files that were deleted above the total."""
        self.places: list[Path] = []
        self.log = self._opened()
        self.follower = GrowingLog(self.path)
        self.followed: list[int] = []
        self.read()

    def _opened(self) -> RequestLog:
        return RequestLog(self.path, limits=self.limits, now=lambda: self.clock, monotonic=lambda: self.uptime)

    @property
    def acknowledged(self) -> int:
        return self.log.last_numbers.get("run", 0)

    def in_folder(self) -> list[int]:
        """The lines of the log and its rotated files, as `vllm-slo requests` reads them."""
        if not self.path.parent.is_dir():
            return []
        return numbers(b"".join(block for _, parts in blocks([self.path]) for block in parts))

    def rotated(self) -> list[Path]:
        return rotated_files(self.path) if self.path.parent.is_dir() else []

    def moved(self) -> list[int]:
        files = [file for place in self.places for file in ([place] if place.is_file() else place.iterdir())]
        return [number for file in files for number in contents(file)]

    def read(self) -> None:
        while (lines := self.follower.read(self.uptime)) is not None:
            self.followed += numbers(b"\n".join(lines))

    def check(self) -> None:
        acknowledged = {*range(1, self.acknowledged + 1)}
        assert sorted(self.moved() + self.in_folder()) == sorted(acknowledged - self.missing)
        if self.limits.total is None:  # else files may be deleted before the follower has read them
            self.read()
            assert sorted(self.followed) == sorted(acknowledged)

    def check_total(self) -> None:
        """The writer has kept the files within the total, apart from compressed ones, which it does not delete."""
        if self.limits.total is not None:
            files = [file for file in (*self.rotated(), self.path) if file.suffix != ".gz"]
            most = self.limits.total + max(0, LINE - self.limits.file_size)  # a file has at least one line
            assert sum(file.stat().st_size for file in files) <= most

    def close(self) -> None:
        self.log.close()
        self.follower.close()

    def write(self, count: int = 1) -> None:
        """Send all records that are not acknowledged, as the receiver does."""
        self.sent += count
        before = {*self.in_folder(), *range(self.acknowledged + 1, self.sent + 1)}
        with suppress(OSError):
            self.log.write("run", [(n, finished(time=self.clock)) for n in range(1, self.sent + 1)], None)
        self._note_deletions({number for number in before if number <= self.acknowledged})
        self.check_total()

    def _note_deletions(self, before: set[int]) -> None:
        """Only the oldest lines are deleted, and only above the total; the sidecar deletes no compressed files."""
        in_folder = self.in_folder()
        assert in_folder == sorted(in_folder)
        deleted = before.difference(in_folder)
        if deleted:
            assert self.limits.total is not None
            assert max(deleted) < min(number for file in (*self.rotated(), self.path) for number in contents(file))
            used = sum(file.stat().st_size for file in self.rotated())
            assert used > self.limits.total - self.limits.file_size - max(self.limits.file_size, LINE)
        self.missing |= deleted

    def restart(self) -> None:
        """The relay sends again what is not acknowledged; the log knows the lines that it has."""
        self.log.close()
        acknowledged, before = self.acknowledged, {*self.in_folder()}
        newest = [*self.rotated()[-1:], *([self.path] if self.path.exists() else [])]
        self.log = self._opened()
        if any(acknowledged in contents(file) for file in newest if file.exists()):
            assert self.acknowledged == acknowledged
        self.log.last_numbers["run"] = acknowledged
        self._note_deletions(before)

    def kill_during_a_write(self) -> None:
        if self.path.exists():
            with self.path.open("ab") as file:
                file.write(b'{"time":"20')
        self.log.close()
        acknowledged, self.log = self.acknowledged, self._opened()
        self.log.last_numbers["run"] = acknowledged

    def pass_time(self) -> None:
        self.uptime += 1800

    def remove(self) -> None:
        if self.path.exists():
            self.missing.update(contents(self.path))
            self.path.unlink()

    def remove_rotated(self) -> None:
        for file in self.rotated()[:1]:
            self.missing.update(contents(file))
            file.unlink()

    def remove_folder(self) -> None:
        if self.path.parent.exists():
            self.missing.update(self.in_folder())
            shutil.rmtree(self.path.parent)

    def _place(self) -> Path:
        self.places.append(self.root / f"moved-{len(self.places)}")
        return self.places[-1]

    def rename(self) -> None:
        if self.path.exists():
            self.path.rename(self._place())

    def rename_and_create(self) -> None:
        if self.path.exists():
            self.path.rename(self._place())
            self.path.touch()

    def move_folder(self) -> None:
        if self.path.parent.exists():
            self.path.parent.rename(self._place())

    def copy_and_truncate(self) -> None:
        if self.path.exists():
            shutil.copyfile(self.path, self._place())
            os.truncate(self.path, 0)

    def compress(self) -> None:
        for file in self.rotated()[:1]:
            file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
            file.unlink()

    def block(self, create: Callable[[Path], None]) -> None:
        """Something else is at the path during one write."""
        self.remove()
        self.path.parent.mkdir(exist_ok=True)
        create(self.path)
        acknowledged = self.acknowledged
        self.sent += 1
        with pytest.raises(OSError, match=r"Is a (FIFO|directory|symbolic link)"):
            self.log.write("run", [(self.sent, finished())], None)
        assert self.acknowledged == acknowledged
        self.path.rmdir() if self.path.is_dir() else self.path.unlink()


ACTS: dict[str, Callable[[World], None]] = {
    "restart": World.restart,
    "kill during a write": World.kill_during_a_write,
    "pass time": World.pass_time,
    "remove": World.remove,
    "remove a rotated file": World.remove_rotated,
    "remove the folder": World.remove_folder,
    "rename": World.rename,
    "rename and create": World.rename_and_create,
    "move the folder": World.move_folder,
    "copytruncate": World.copy_and_truncate,
    "compress": World.compress,
    "FIFO": lambda world: world.block(os.mkfifo),
    "directory": lambda world: world.block(Path.mkdir),
    "link": lambda world: world.block(lambda path: path.symlink_to("/dev/null")),
}


MOVES = ("remove", "remove the folder", "rename", "rename and create", "move the folder", "copytruncate")
EVERY_MOVE: list[str | int] = [3, *(step for act in MOVES for step in (act, 1, 6))]
"""Several lines before and after each act of another program."""


@pytest.mark.slow
@settings(max_examples=60)
@example(acts=EVERY_MOVE, size=None, age=None, total=None)
@example(acts=EVERY_MOVE, size=5 * LINE, age=None, total=None)
@example(acts=[3, "2100", 2, "2023", 2], size=1, age=None, total=4 * LINE)
@example(acts=[2, "compress", "1970", 1, "2100", 2, "2023", 2], size=1, age=None, total=None)
@example(acts=[2, "restart", 1, 2, "restart", "kill during a write", 2], size=2 * LINE, age=None, total=None)
@given(
    acts=st.lists(st.sampled_from([*ACTS, *CLOCKS]) | st.integers(1, 12), max_size=30),
    size=st.integers(1, 5 * LINE) | st.none(),
    age=st.sampled_from([3600.0, None]),
    total=st.integers(2 * LINE, 9 * LINE) | st.none(),
)
def test_each_acknowledged_line_is_in_exactly_one_file_unless_it_was_removed_or_exceeds_the_total(
    tmp_path_factory: pytest.TempPathFactory, acts: list[str | int], size: int | None, age: float | None, total: int
) -> None:
    limits = RotationLimits(size=size, age=age, total=total)
    with closing(World(tmp_path_factory.mktemp("world"), limits)) as world:
        for act in acts:
            if isinstance(act, int):
                world.write(act)
            elif act in CLOCKS:
                world.clock = CLOCKS[act]
            else:
                ACTS[act](world)
            world.check()
        world.write()
        assert world.acknowledged == world.sent  # whatever happened, the log can be written afterwards
        assert world.in_folder()[-1] == world.sent
        world.check()
