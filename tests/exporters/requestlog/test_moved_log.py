"""Each line is in a file that can be opened, whatever other programs do to the log, its name and its folder."""

import os
import shutil
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from exporters.requestlog.writer import RequestLog, check_writable
from exporters.text.errors import UsageError
from tests.exporters.requestlog.log_records import ids, numbered


def remove(path: Path) -> None:
    path.unlink()


def remove_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


def rename(path: Path) -> None:
    path.rename(path.with_name("moved.jsonl"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "log"


@pytest.mark.parametrize("act", [remove, remove_folder, rename])
def test_the_path_is_opened_again_although_there_is_no_line_to_write(path: Path, act: Callable[[Path], None]) -> None:
    with closing(RequestLog(path)) as log:
        act(path)
        log.flush()
        assert path.exists()


@pytest.mark.parametrize("act", [remove, remove_folder])
def test_lines_that_are_written_to_a_removed_file_are_written_again(
    path: Path, act: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def removed_before_the_write(descriptor: int, data: bytes) -> int:
        monkeypatch.undo()
        act(path)
        return os.write(descriptor, data)

    with closing(RequestLog(path)) as log:
        log.write("run", numbered(1), None)
        monkeypatch.setattr(os, "write", removed_before_the_write)
        log.write("run", numbered(2, 3), None)
    assert ids(path) == ["r-2", "r-3"]


def test_on_a_file_system_that_counts_no_names_each_line_is_written_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fstat = os.fstat

    def without_names(descriptor: int) -> os.stat_result:
        state = list(fstat(descriptor))
        state[stat.ST_NLINK] = 0
        return os.stat_result(state)

    monkeypatch.setattr(os, "fstat", without_names)
    with closing(RequestLog(path)) as log:
        log.write("run", numbered(1, 2), None)
    assert ids(path) == ["r-1", "r-2"]


def test_a_write_that_fails_after_a_truncation_leaves_neither_an_incomplete_line_nor_zeros(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write

    def truncated_and_full(descriptor: int, data: bytes) -> int:
        if len(data) < 100:
            raise OSError(28, "No space left on device")
        os.truncate(path, 0)
        return write(descriptor, data[:-50])

    with closing(RequestLog(path)) as log:
        log.write("run", numbered(1, 2, 3), None)
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", truncated_and_full)
            with pytest.raises(OSError, match="No space left on device"):
                log.write("run", numbered(4), None)
        assert path.read_bytes() == b""
        log.write("run", numbered(4), None)
    assert ids(path) == ["r-4"]


def test_a_reopened_log_is_reported(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with closing(RequestLog(path)) as log:
        remove(path)
        log.write("run", numbered(1), None)
        log.write("run", numbered(2), None)
    assert caplog.messages == [f"request log: {path} was moved or removed; opening it again"]


def link(path: Path) -> None:
    path.symlink_to(path.with_name("target"))


def link_to_a_file(path: Path) -> None:
    path.with_name("target").touch()
    link(path)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def socket_file(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def file_for_reading(path: Path) -> None:
    path.touch(mode=0o400)


OTHER_TYPES = [
    pytest.param(link, "Is a symbolic link; use a regular file, or - for standard output", id="link to nothing"),
    pytest.param(link_to_a_file, "Is a symbolic link; use a regular file, or - for standard output", id="link"),
    pytest.param(Path.mkdir, "Is a directory", id="directory"),
    pytest.param(fifo, "Is a FIFO; use a regular file, or - for standard output", id="FIFO"),
    pytest.param(socket_file, "Is a socket; use a regular file, or - for standard output", id="socket"),
    pytest.param(file_for_reading, "Permission denied", id="read-only file"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory; root, for whom no file is read-only, becomes another user."""
    monkeypatch.chdir(tmp_path)
    if os.geteuid():
        yield Path()
        return
    os.chown(tmp_path, 65534, -1)
    os.seteuid(65534)
    yield Path()
    os.seteuid(0)


@pytest.mark.parametrize("create, reason", OTHER_TYPES)
def test_while_something_else_is_at_the_path_lines_wait_and_the_error_says_what_it_is(
    folder: Path, create: Callable[[Path], None], reason: str
) -> None:
    path = folder / "log"
    with closing(RequestLog(path)) as log:
        log.write("run", numbered(1), None)
        path.unlink()
        create(path)
        with pytest.raises(OSError) as failed:
            log.write("run", numbered(2, 3), None)
        assert (failed.value.strerror, failed.value.filename) == (reason, str(path))
        assert log.last_numbers == {"run": 1}
        path.rmdir() if reason == "Is a directory" else path.unlink()
        log.write("run", numbered(2, 3), None)
    assert ids(path) == ["r-2", "r-3"]
    target = folder / "target"
    assert not target.exists() or target.read_bytes() == b""


@pytest.mark.parametrize("create, reason", OTHER_TYPES)
def test_something_else_at_the_path_is_refused_at_the_start(
    folder: Path, create: Callable[[Path], None], reason: str
) -> None:
    path = folder / "log"
    create(path)
    with pytest.raises(UsageError) as refused:
        check_writable(path)
    assert str(refused.value) == f"--request-log: log cannot be written: {reason[0].lower()}{reason[1:].lower()}"


@pytest.mark.parametrize(
    "create, reason", [(link_to_a_file, "Too many levels of symbolic links"), (fifo, "Is a FIFO; use a regular file")]
)
def test_something_else_that_appears_while_the_path_is_opened_gets_no_line(
    path: Path, create: Callable[[Path], None], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(RequestLog(path)) as log:
        remove(path)
        create(path)
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        monkeypatch.setattr(Path, "lstat", lambda self: self.parent.stat())  # before it was created
        with pytest.raises(OSError, match=reason):
            log.write("run", numbered(1), None)
        assert os.read(reader, 1) == b""
        os.close(reader)


def test_a_terminal_whose_output_is_stopped_does_not_block_the_writer() -> None:
    controlling, terminal = os.openpty()
    with closing(RequestLog(Path(os.ttyname(terminal)))) as log, pytest.raises(BlockingIOError):
        log.write("run", numbered(*range(1, 1001)), None)
    os.close(controlling)
    os.close(terminal)


def test_while_the_folder_cannot_be_created_lines_wait(path: Path) -> None:
    with closing(RequestLog(path)) as log:
        remove_folder(path)
        path.parent.touch()
        with pytest.raises(NotADirectoryError):
            log.write("run", numbered(1, 2), None)
        with pytest.raises(NotADirectoryError):
            log.flush()
        assert log.last_numbers == {}
        path.parent.unlink()
        log.write("run", numbered(1, 2), None)
    assert ids(path) == ["r-1", "r-2"]


def test_a_file_that_was_removed_is_not_kept_open(path: Path) -> None:
    """Else its space on the disk would not be free."""
    with closing(RequestLog(path)) as log:
        log.write("run", numbered(1, 2, 3), None)
        remove_folder(path)
        path.parent.touch()
        with pytest.raises(NotADirectoryError):
            log.flush()
        targets = [os.readlink(each) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]  # noqa: PTH115
        assert not [target for target in targets if target.startswith(str(path))]
