"""The reader of request logs: entries, bad lines and bounded memory."""

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from exporters.requestlog import files, reader
from exporters.requestlog.reader import BadLineError, BadLines, LogReader, parse_line
from exporters.requestlog.writer import RequestLog
from exporters.text.errors import UsageError
from exporters.vocabulary.signals import Outcome, Verdict
from tests.support.sample_records import finished

SMALLEST = {"time": "2026-01-31T12:00:10Z", "class": "siso", "stream": True, "outcome": "ok", "e2e_ms": 5000.0}


def encoded(**fields: Any) -> bytes:
    return json.dumps(SMALLEST | fields).encode()


def test_the_reader_reads_lines_of_the_writer(tmp_path: Path) -> None:
    log = RequestLog(tmp_path / "log")
    log.write("run", [(7, finished(ttft=0.25, slo={"ttft": Verdict.GOOD}))], "0123456789ab")
    log.close()
    (entry,) = LogReader([tmp_path / "log"])
    assert (entry.arrived, entry.ended, entry.ttft_ms) == (1_700_000_000.25, 1_700_000_001.75, 250.0)
    assert (entry.request_class, entry.outcome, entry.slo) == ("short", Outcome.OK, {"ttft": Verdict.GOOD})
    assert (entry.config_revision, entry.record) == ("0123456789ab", "run:7")


def test_the_endpoint_in_a_log_of_an_earlier_release_is_the_route(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(encoded(endpoint="/tokenize").replace(b": ", b":") + b"\n")
    assert [entry.route for entry in LogReader([log])] == ["/tokenize"]


def test_absent_fields_have_defaults_and_unknown_ones_are_ignored() -> None:
    entry = parse_line(encoded(a_later_field=[1]))
    assert (entry.request_class, entry.ttft_ms, entry.slo, entry.record) == ("siso", None, {}, "")


@pytest.mark.parametrize(
    "line, reason",
    [
        pytest.param(b'{"time": "2026', "Input data was truncated", id="incomplete"),
        pytest.param(b"nginx: 200", "JSON is malformed: invalid character (byte 4)", id="another program"),
        pytest.param(b"\n", "Input data was truncated", id="an empty line"),
        pytest.param(b"[]", "Expected `object`, got `array`", id="not an object"),
        pytest.param(b"{}", "Object missing required field `time`", id="no fields"),
        pytest.param(
            encoded(time="2026-01-31T12:00:10"),
            "Expected `datetime` with a timezone component - at `$.time`",
            id="zone",
        ),
        pytest.param(encoded(outcome="unknown"), "Invalid enum value 'unknown' - at `$.outcome`", id="outcome"),
        pytest.param(encoded(e2e_ms=-1), "Expected `float` >= 0.0 - at `$.e2e_ms`", id="negative duration"),
        pytest.param(
            b'{"deep":' + b"[" * 100_000, "maximum recursion depth exceeded while deserializing an object", id="depth"
        ),
    ],
)
def test_a_bad_line_has_a_reason(line: bytes, reason: str) -> None:
    with pytest.raises(BadLineError) as bad:
        parse_line(line)
    assert str(bad.value) == reason


def test_bad_lines_are_skipped_and_counted_by_file(tmp_path: Path) -> None:
    one, other, clean = (tmp_path / name for name in ("one", "other", "clean"))
    one.write_bytes(b"\n".join([encoded(), b"{}", b"[]", encoded(), b'{"ti']))
    other.write_bytes(b"[]\n" + encoded())  # the last line has no line break
    clean.write_bytes(encoded() + b"\n")
    entries = LogReader([one, other, clean])
    for _ in range(2):  # a second pass counts from zero
        assert len(list(entries)) == 4
        assert {path.name: (bad.count, bad.first) for path, bad in entries.bad_lines.items()} == {
            "one": (3, "line 2: Object missing required field `time`"),
            "other": (1, "line 1: Expected `object`, got `array`"),
            "clean": (0, ""),
        }


def test_a_compressed_log_that_ends_early_has_one_bad_line_more(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(encoded() + b"\n{}\n")[:-8])
    entries = LogReader([path])
    assert len(list(entries)) == 1
    assert entries.bad_lines[path] == BadLines(2, "line 2: Object missing required field `time`")


def test_a_line_that_is_too_long_is_one_bad_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BLOCK", 500)
    for module in (files, reader):
        monkeypatch.setattr(module, "MAX_LINE", 1000)
    path = tmp_path / "log"
    longest = encoded(model="m" * (999 - len(encoded(model=""))))
    path.write_bytes(b"\n".join([longest, encoded(model="m" * 3000), encoded(model="m" * 960), encoded(), b""]))
    entries = LogReader([path])
    assert [len(entry.model or "") for entry in entries] == [999 - len(encoded(model="")), 0]
    assert entries.bad_lines[path] == BadLines(2, "line 2: Input data was truncated")


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes((encoded(request_id="r" * 500) + b"\n") * 2_000 + b"x" * (16 << 20))
    tracemalloc.start()
    try:
        assert sum(1 for _ in LogReader([path])) == 2_000
        assert tracemalloc.get_traced_memory()[1] < 8 << 20  # of 17 MB
    finally:
        tracemalloc.stop()


def test_a_file_that_cannot_be_read_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        list(LogReader([tmp_path / "none"]))
    assert str(refused.value) == f"{tmp_path / 'none'}: cannot be read: no such file or directory"
