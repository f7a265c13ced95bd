"""The files of a request log: rotated, compressed, rotated while they are read, and with long lines."""

import gzip
import io
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import pytest

from exporters.requestlog import files
from exporters.requestlog.files import IncompleteError, blocks, find_logs
from exporters.text.errors import UsageError

OLD, NEW = "20261122T101112.000001Z", "20261122T101112.000002Z"


def content(*names: str | Path) -> list[tuple[str, bytes]]:
    return [(Path(name).name, b"".join(parts)) for name, parts in blocks(find_logs(map(str, names)))]


def test_a_log_is_read_after_its_rotated_files_also_if_they_are_compressed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"5\n")
    (tmp_path / f"log.{NEW}").write_bytes(b"3\n4\n")
    (tmp_path / f"log.{OLD}.gz").write_bytes(gzip.compress(b"1\n") + gzip.compress(b"2\n"))
    (tmp_path / f"log.{NEW}.gz").write_bytes(b"gzip has not finished")
    for name in ("log.1", "log.copy", f"other.{OLD}"):
        (tmp_path / name).write_bytes(b"another program\n")
    rotated = [(f"log.{OLD}.gz", b"1\n2\n"), (f"log.{NEW}", b"3\n4\n")]
    assert content(log) == [*rotated, ("log", b"5\n")]
    log.unlink()
    assert content(log) == rotated


def test_a_file_that_several_names_and_patterns_stand_for_is_read_once(tmp_path: Path) -> None:
    for name in ("log", f"log.{OLD}", "z.log"):
        (tmp_path / name).write_bytes(name.encode() + b"\n")
    names = [name for name, _ in content(tmp_path / "log", tmp_path / "*log*", tmp_path / f"log.{OLD}")]
    assert names == [f"log.{OLD}", "log", "z.log"]


@pytest.mark.parametrize("compressed", [False, True])
def test_a_rotation_during_the_reading_loses_and_repeats_no_line(tmp_path: Path, compressed: bool) -> None:
    log, first = tmp_path / "log", tmp_path / f"log.{OLD}"
    first.write_bytes(b"1\n")
    log.write_bytes(b"2\n")
    read: list[bytes] = []
    for _, parts in blocks([log]):
        read += parts
        if read == [b"1\n", b""]:
            log.rename(tmp_path / f"log.{NEW}")
            log.write_bytes(b"3\n")
            if compressed:
                (tmp_path / f"log.{OLD}.gz").write_bytes(gzip.compress(first.read_bytes()))
                first.unlink()
    assert b"".join(read) == b"1\n2\n3\n"


def test_a_rotated_file_that_is_deleted_during_the_reading_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"3\n")
    for name in (OLD, NEW):
        (tmp_path / f"log.{name}").write_bytes(b"1\n")
    names = []
    for name, _ in blocks([tmp_path / "log"]):
        names.append(Path(name).name)
        (tmp_path / f"log.{NEW}").unlink(missing_ok=True)
    assert names == [f"log.{OLD}", "log"]


@pytest.mark.parametrize("zipped", [False, True])
def test_standard_input_is_read_also_if_it_is_compressed(monkeypatch: pytest.MonkeyPatch, zipped: bool) -> None:
    data = gzip.compress(b"1\n2") if zipped else b"1\n2"
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(data))))
    assert content("-") == [("standard input", b"1\n2")]


def test_a_compressed_file_that_ends_early_is_read_up_to_its_last_whole_line(tmp_path: Path) -> None:
    log = tmp_path / "log.gz"
    log.write_bytes(gzip.compress(b"1\n2\n3")[:-8])
    read: list[bytes] = []
    for _, parts in blocks([log]):
        with pytest.raises(IncompleteError, match="ended before the end-of-stream marker"):
            read.extend(parts)
    assert read == [b"1\n2\n"]


@pytest.mark.parametrize("block", [1, 7, 64, 1000])
def test_blocks_have_whole_lines_and_long_lines_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(files, "BLOCK", block)
    monkeypatch.setattr(files, "MAX_LINE", 1000)
    (tmp_path / "log").write_bytes(b"\n".join([b"a" * 999, b"b" * 5000, b"", b"c" * 20, b"d" * 3000]))
    read = [part for _, parts in blocks([tmp_path / "log"]) for part in parts]
    assert all(part.endswith(b"\n") for part in read[:-1] if part)
    lines = b"".join(read).split(b"\n")
    assert lines == [b"a" * 999, b"b" * 1000, b"", b"c" * 20, b"d" * 1000]


def test_memory_does_not_grow_with_the_file_or_its_compression(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    with gzip.open(path, "wb") as file:
        for _ in range(20):
            file.write(b"x" * (1 << 20))
        file.write(b"\nlast\n")
    tracemalloc.start()
    try:
        assert sum(len(part) for _, parts in blocks([path]) for part in parts) < 2 << 20
        assert tracemalloc.get_traced_memory()[1] < 8 << 20  # of 20 MiB
    finally:
        tracemalloc.stop()


def test_files_that_cannot_be_read_are_usage_errors(tmp_path: Path) -> None:
    for name, reason in (
        ("none", "no such file, and no rotated file of that name"),
        ("folder/none", "no such file, and no rotated file of that name"),
        ("*.jsonl", "no such file, and no rotated file of that name"),
        (".", "cannot be read: is a directory"),
    ):
        with pytest.raises(UsageError) as refused:
            content(tmp_path / name)
        assert str(refused.value) == f"{tmp_path / name}: {reason}"
