"""Each line of a growing log is read once, whatever happens to its files, and whenever the reader is killed."""

import gzip
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from exporters.requestlog.files import MAX_LINE
from exporters.sidecar.follow.growing_log import BLOCK, ROTATED_SECONDS, GrowingLog
from exporters.sidecar.follow.log_parts import Position
from tests.exporters.sidecar.follow.growing_log_writer import Writer


class Reader:
    """A process that reads a log, saves its positions, and may be killed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[bytes] = []
        self.now = 0.0
        self._saved: tuple[bytes, int] = msgspec.msgpack.encode([]), 0
        self.log = GrowingLog(path)

    def step(self) -> bool:
        lines = self.log.read(self.now)
        self.lines += lines or ()
        return lines is not None

    def read(self) -> list[bytes]:
        while self.step():
            pass
        return self.lines

    def save(self) -> None:
        self._saved = msgspec.msgpack.encode(self.log.positions), len(self.lines)

    def die(self) -> None:
        """Lose everything since the last save."""
        self.log.close()
        encoded, count = self._saved
        self.log = GrowingLog(self.path, msgspec.msgpack.decode(encoded, type=list[Position]))
        del self.lines[count:]


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    return Writer(tmp_path / "requests.jsonl")


@pytest.fixture
def reader(writer: Writer) -> Iterator[Reader]:
    reader = Reader(writer.path)
    reader.read()
    reader.save()
    yield reader
    reader.log.close()


ROTATIONS = {
    "rename with date": Writer.rename_with_date,
    "rename with number": Writer.rename_with_number,
    "copytruncate": Writer.copy_and_truncate,
}


@pytest.mark.parametrize("rotation", ROTATIONS)
@pytest.mark.parametrize("seed", range(8))
def test_each_line_is_read_once_over_random_rotations_and_kills(
    seed: int, rotation: str, writer: Writer, reader: Reader
) -> None:
    chance = random.Random(seed)  # noqa: S311 - reproducible choices
    rotated: list[Path] = []
    for _ in range(120):
        match chance.choice("aaaaahhrrrgssssskktf"):
            case "a":
                writer.append(chance.randint(1, 30))
            case "h":
                writer.append_half()
            case "r" if writer.path.exists() and writer.path.stat().st_size:
                rotated = [ROTATIONS[rotation](writer)]
            case "g" if rotated:
                writer.compress(rotated.pop())
            case "s":
                for _ in range(chance.randint(1, 3)):
                    reader.step()
                if chance.random() < 0.5:
                    reader.save()
            case "k":
                reader.die()
            case "f":
                reader.log.find(reader.now)
                reader.save()
            case "t":
                reader.now += ROTATED_SECONDS
    writer.append()
    reader.now += ROTATED_SECONDS
    assert sorted(reader.read()) == sorted(writer.lines)


@pytest.mark.parametrize("rotation", ROTATIONS)
def test_several_rotations_while_nobody_reads_lose_no_line(rotation: str, writer: Writer, reader: Reader) -> None:
    writer.append(3)
    reader.step()
    reader.save()
    writer.append(2)
    for _ in range(3):
        writer.append(5)
        writer.compress(ROTATIONS[rotation](writer))
    writer.append(2)
    reader.die()
    assert reader.read() == writer.lines


def test_a_file_that_does_not_exist_yet_is_awaited(tmp_path: Path) -> None:
    log = GrowingLog(tmp_path / "absent.jsonl")
    assert log.read(0) is None
    assert log.problem == f"{tmp_path}/absent.jsonl does not exist"
    writer = Writer(tmp_path / "absent.jsonl")
    writer.append()
    assert log.read(1) == writer.lines
    assert log.problem is None
    log.close()


def test_a_fifo_or_folder_with_the_name_of_the_log_or_of_a_rotated_file_does_not_block_the_reader(
    writer: Writer, reader: Reader
) -> None:
    writer.append(2)
    reader.read()
    os.mkfifo(writer.path.with_name("requests.jsonl.1"))
    writer.rename_with_date()
    os.mkfifo(writer.path)
    assert reader.read() == writer.lines
    assert reader.log.problem == f"{writer.path} is not a regular file"
    writer.path.unlink()
    writer.path.mkdir()
    assert reader.read() == writer.lines
    assert reader.log.problem == f"{writer.path} is not a regular file"
    writer.path.rmdir()
    writer.append(2)
    assert reader.read() == writer.lines


def test_the_positions_are_kept_while_the_folder_is_not_mounted(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    writer = Writer(folder / "access.log")
    writer.append(3)
    reader = Reader(writer.path)
    reader.read()
    reader.save()
    reader.log.close()
    folder.rename(tmp_path / "away")
    reader.die()
    assert reader.read() == writer.lines
    reader.save()
    (tmp_path / "away").rename(folder)
    writer.append(2)
    assert reader.read() == writer.lines
    reader.log.close()


def test_the_first_start_does_not_read_rotated_files(writer: Writer) -> None:
    writer.append(3)
    writer.rename_with_number()
    writer.append(2)
    reader = Reader(writer.path)
    assert reader.read() == writer.lines[3:]
    reader.log.close()


def test_a_partial_last_line_waits_for_its_end(writer: Writer, reader: Reader) -> None:
    writer.append_half()
    assert reader.read() == []
    assert reader.log.unread > 0
    reader.save()
    reader.die()
    writer.append()
    assert reader.read() == writer.lines
    assert reader.log.unread == 0


def test_the_last_line_of_a_rotated_file_needs_no_line_break(writer: Writer, reader: Reader) -> None:
    with writer.path.open("ab") as file:
        file.write(b"a\nb")
    writer.path.rename(writer.path.with_name("requests.jsonl.1"))
    with writer.path.open("wb") as file:
        file.write(b"c\n")
    assert reader.read() == [b"a", b"c"]
    reader.now += ROTATED_SECONDS
    assert sorted(reader.read()) == [b"a", b"b", b"c"]


def test_lines_that_are_written_to_a_file_after_its_rotation_are_read(writer: Writer, reader: Reader) -> None:
    writer.append(2)
    reader.read()
    rotated = writer.rename_with_number()
    writer.append(1)
    reader.read()
    with rotated.open("ab") as file:  # nginx, until its workers have opened the new file
        file.write(b"late\n")
    reader.now += ROTATED_SECONDS - 1
    assert reader.read() == [*writer.lines, b"late"]


def test_a_rotated_file_is_closed_when_it_no_longer_grows(writer: Writer, reader: Reader) -> None:
    writer.append()
    reader.read()
    writer.rename_with_number()
    writer.append()
    reader.read()
    assert len(reader.log.positions) == 2
    reader.now += ROTATED_SECONDS
    reader.read()
    assert len(reader.log.positions) == 1


def test_a_truncated_log_is_read_from_its_start(
    writer: Writer, reader: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    writer.append(3)
    reader.read()
    os.truncate(writer.path, 0)
    writer.append(1)
    assert reader.read() == writer.lines
    size = sum(len(line) + 1 for line in writer.lines[:3])
    message = (
        f"was truncated or replaced, and no rotated file has the {size} bytes that were read; lines may be missing"
    )
    assert caplog.messages == [f"{writer.path}: {message}"]


def test_a_log_that_was_truncated_and_grew_beyond_the_position_is_read_from_its_start(
    writer: Writer, reader: Reader
) -> None:
    writer.append(3)
    reader.read()
    os.truncate(writer.path, 0)
    writer.append(30)
    assert reader.read() == writer.lines


def test_a_new_file_with_the_inode_of_the_old_one_is_read_from_its_start(writer: Writer, reader: Reader) -> None:
    writer.append(5)
    reader.read()
    reader.save()
    reader.log.close()
    inode = writer.path.stat().st_ino
    with writer.path.open("r+b") as file:  # the same inode with other content, as after a deletion
        file.truncate()
    writer.append(9)
    assert writer.path.stat().st_ino == inode
    reader.die()
    assert reader.read() == writer.lines


def test_a_copy_that_is_not_complete_is_not_read(writer: Writer, reader: Reader) -> None:
    """Logrotate copies the file before it truncates it."""
    writer.append(3)
    reader.read()
    writer.copy_and_truncate()  # the reader knows the copy, and nothing of the current file
    reader.read()
    reader.save()
    writer.append(40)
    shutil.copyfile(writer.path, writer.path.with_name("requests.jsonl.0"))
    os.truncate(writer.path.with_name("requests.jsonl.0"), 100)
    reader.die()
    assert reader.read() == writer.lines


def test_compressed_files_are_not_read_twice(writer: Writer, reader: Reader) -> None:
    writer.append(300)
    reader.read()
    rotated = writer.rename_with_number()
    writer.append(2)
    reader.read()
    reader.save()
    rotated.with_name("requests.jsonl.1.gz").write_bytes(gzip.compress(rotated.read_bytes()))  # with a new time
    reader.read()
    rotated.unlink()
    reader.die()
    writer.append(1)
    assert reader.read() == writer.lines


@pytest.mark.parametrize(
    "start, length, reason",
    [
        pytest.param(0, 14, "Compressed file ended before the end-of-stream marker was reached", id="cut"),
        pytest.param(1, 99, "Not a gzipped file (b'\\x8b\\x08')", id="no header"),
    ],
)
def test_a_damaged_compressed_file_does_not_stop_the_reader(
    start: int, length: int, reason: str, writer: Writer, reader: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    writer.append(2)
    reader.read()
    reader.save()
    writer.rename_with_number()
    writer.append(2)
    writer.compress(writer.rename_with_number())
    damaged = writer.path.with_name("requests.jsonl.1.gz")
    damaged.write_bytes(damaged.read_bytes()[start:length])
    writer.append(2)
    reader.die()
    reader.log.find(reader.now)
    reader.save()
    assert reader.read() == writer.lines[:2] + writer.lines[4:]
    assert caplog.messages == [f"{writer.path}: a compressed file is damaged: {reason}; lines may be missing"]


def test_a_long_line_is_one_line(writer: Writer, reader: Reader) -> None:
    line = b"x" * (2 * BLOCK)
    with writer.path.open("ab") as file:
        file.write(line + b"\n")
    writer.append()
    assert reader.read() == [line, *writer.lines]


def test_a_line_above_the_limit_is_cut_and_the_next_one_is_whole(writer: Writer, reader: Reader) -> None:
    with writer.path.open("ab") as file:
        file.write(b"x" * (3 * MAX_LINE))
    reader.read()
    reader.save()
    reader.die()
    with writer.path.open("ab") as file:
        file.write(b"x" * MAX_LINE + b"\n")
    writer.append()
    assert reader.read() == [b"x" * MAX_LINE, *writer.lines]


def test_files_of_other_names_are_not_parts_of_the_log(writer: Writer, reader: Reader) -> None:
    writer.append(2)
    reader.read()
    for suffix in (".state", "-old", "2", ".1.bak"):
        writer.path.with_name(f"requests.jsonl{suffix}").write_bytes(b"other\n")
    writer.rename_with_date()
    writer.append(2)
    assert reader.read() == writer.lines
