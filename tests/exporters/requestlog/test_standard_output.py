"""Lines on standard output are whole and in order, and a slow reader does not stop the exporter."""

import fcntl
import json
import os
from collections.abc import Iterator

import pytest

from exporters.records.messages import Batch, Finished
from exporters.requestlog.standard_output import PIPE_SIZE, StandardOutputLog
from exporters.sidecar.ingest import receiver as receiver_module
from exporters.sidecar.ingest.receiver import RecordReceiver
from exporters.sidecar.ingest.request_metrics import RequestMetrics
from tests.support.sample_records import SLOS, finished

LONG = "x" * 10_000
"""Longer than one write to a pipe."""


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    yield reading, writing
    for descriptor in (reading, writing):
        os.close(descriptor)


def numbered(*numbers: int) -> list[tuple[int, Finished]]:
    return [(number, finished(request_id=f"r-{number}", route=LONG)) for number in numbers]


def everything(reading: int) -> bytes:
    """All bytes in the pipe."""
    read = b""
    while True:
        try:
            read += os.read(reading, 1 << 20)
        except BlockingIOError:
            return read


def ids(text: bytes) -> list[str]:
    assert text.endswith(b"\n")
    return [json.loads(line)["request_id"] for line in text.splitlines()]


def test_a_record_is_written_once(pipe: tuple[int, int]) -> None:
    log = StandardOutputLog(pipe[1])
    log.write("run", numbered(1, 2), None)
    log.write("run", numbered(1, 2, 3), None)
    log.write("next run", numbered(1), None)
    assert ids(everything(pipe[0])) == ["r-1", "r-2", "r-3", "r-1"]


def test_a_full_pipe_is_not_waited_for_and_lines_remain_whole_and_in_order(pipe: tuple[int, int]) -> None:
    log, count = StandardOutputLog(pipe[1]), 2 * PIPE_SIZE // len(LONG)
    records, read = numbered(*range(1, count + 1)), b""
    with pytest.raises(BlockingIOError):
        log.write("run", records, None)
    assert 0 < log.last_numbers["run"] < count
    while log.last_numbers["run"] < count:
        read += everything(pipe[0])
        try:
            log.write("run", records, None)
        except BlockingIOError:
            assert log.last_numbers["run"] < count
    read += everything(pipe[0])
    assert ids(read) == [f"r-{n}" for n in range(1, count + 1)]
    assert not fcntl.fcntl(pipe[1], fcntl.F_GETFL) & os.O_NONBLOCK


def test_lines_for_a_slow_reader_are_dropped_over_the_limit_and_counted_without_an_error(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(receiver_module, "MAX_PENDING_RECORDS", 20)
    log, series = StandardOutputLog(pipe[1]), RequestMetrics(SLOS)
    receiver = RecordReceiver(series, log, lambda: None)
    count, read = 2 * PIPE_SIZE // len(LONG), b""
    for first in range(1, count, 10):
        receiver.receive("run", Batch(first, [record for _, record in numbered(*range(first, first + 10))]))
    received = first + 9
    dropped = receiver.ledger.dropped_lines()["slow_reader"]
    assert dropped > 0
    assert dropped == sum(receiver.ledger.dropped_lines().values())
    read += everything(pipe[0])
    receiver.check_timeouts()
    read += everything(pipe[0])
    assert len(set(ids(read))) == len(ids(read)) == received - dropped
    assert (receiver.log_errors, caplog.messages) == (0, [])


def test_an_incomplete_line_is_completed_without_another_record(pipe: tuple[int, int]) -> None:
    log, read = StandardOutputLog(pipe[1]), b""
    receiver = RecordReceiver(RequestMetrics(SLOS), log, lambda: None)
    receiver.receive("run", Batch(1, [record for _, record in numbered(*range(1, 2 * PIPE_SIZE // len(LONG)))]))
    for _ in range(3):
        read += everything(pipe[0])
        receiver.check_timeouts()
    assert ids(read)[-1] == f"r-{log.last_numbers['run']}"


def test_a_closed_reader_is_an_error() -> None:
    reading, writing = os.pipe()
    log = StandardOutputLog(writing)
    os.close(reading)
    with pytest.raises(BrokenPipeError):
        log.write("run", numbered(1), None)
    os.close(writing)
