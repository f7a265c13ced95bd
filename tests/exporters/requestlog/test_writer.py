"""The request log has each request once, also after crashes and with a full disk."""

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporters.requestlog.field_docs import SCHEMA, json_schema
from exporters.requestlog.writer import RequestLog, check_writable
from exporters.text.errors import UsageError
from exporters.vocabulary.signals import Outcome, OutputKind, OutputResult, Verdict
from tests.exporters.requestlog.log_records import ids, numbered
from tests.support.sample_records import finished


@contextlib.contextmanager
def opened(path: Path) -> Iterator[RequestLog]:
    log = RequestLog(path)
    try:
        yield log
    finally:
        log.close()


@contextlib.contextmanager
def disk_full_at(size: int) -> Iterator[None]:
    """Files of this process cannot grow beyond `size` bytes: a write is partial, the next one fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


GOLDEN = (
    b'{"time":"2023-11-14T22:13:20.250000+00:00","request_id":"r-\xc3\xa9","trace_id":"4bf92f3577b34da6a3ce929d0e0e4736",'
    b'"model":"tiny","class":"short","tenant":"team-a","route":"/v1/chat/completions","stream":true,'
    b'"background":null,"status":200,"outcome":"ok","finish_reason":"stop","prompt_tokens":100,"completion_tokens":20,"reasoning_tokens":12,'
    b'"cached_tokens":64,'
    b'"cache_hit":true,"max_tokens":50,"temperature":0.5,"prompt_sha256":"ab","prompt_repeat":false,"upload_ms":1.0,'
    b'"ttft_ms":250.0,"ttft_answer_ms":500.0,"first_tool_call_ms":750.0,"tpot_ms":12.346,"itl_p50_ms":10.0,"itl_p95_ms":20.0,"e2e_ms":1500.0,'
    b'"frontend_ms":50.0,"queue_ms":100.0,"prefill_ms":50.0,"decode_ms":300.0,"wait_ms_at_least":125.0,"client_paused_ms":2000.0,'
    b'"slo":{"ttft":"good","availability":"abandoned"},"structured_kind":"json_schema","structured_result":"invalid",'
    b'"config_revision":"0123456789ab","record":"relay-0-abc:4","response_id":"chatcmpl-1",'
    b'"prompt":"{}","completion":"a","content_cut":true,"body_repeat":true,"prefix_hashes":["00000000000000ff",'
    b'"ffffffffffffffff"],"prefix_characters":5000,"shareable_tokens":40,"refused":"upload_stalled"}\n'
    b'{"time":"2023-11-14T22:13:20.000000+00:00","request_id":"r-1","trace_id":null,"model":null,"class":"short",'
    b'"tenant":"team-a","route":"/v1/chat/completions","stream":true,"background":null,"status":502,'
    b'"outcome":"upstream_unreachable","finish_reason":null,"prompt_tokens":null,"completion_tokens":null,"reasoning_tokens":null,"cached_tokens":null,"cache_hit":null,'
    b'"max_tokens":null,"temperature":null,"prompt_sha256":null,"prompt_repeat":null,"upload_ms":null,"ttft_ms":null,'
    b'"ttft_answer_ms":null,"first_tool_call_ms":null,"tpot_ms":null,"itl_p50_ms":null,"itl_p95_ms":null,"e2e_ms":1500.0,"frontend_ms":null,"queue_ms":null,'
    b'"prefill_ms":null,"decode_ms":null,"wait_ms_at_least":null,"client_paused_ms":null,"slo":{},'
    b'"structured_kind":null,"structured_result":null,"config_revision":null,"record":"relay-0-abc:5",'
    b'"response_id":null,"prompt":null,"completion":null,"content_cut":null,"body_repeat":null,"prefix_hashes":null,'
    b'"prefix_characters":null,"shareable_tokens":null,"refused":null}\n'
)


def test_lines_have_the_documented_format(tmp_path: Path) -> None:
    full = finished(
        request_id="r-\N{LATIN SMALL LETTER E WITH ACUTE}",
        trace_id="4bf92f3577b34da6a3ce929d0e0e4736",
        finish_reason="stop",
        prompt_tokens=100,
        completion_tokens=20,
        reasoning_tokens=12,
        cached_tokens=64,
        max_tokens=50,
        temperature=0.5,
        prompt_sha256="ab",
        prompt_repeat=False,
        upload=0.001,
        ttft=0.25,
        before_relay=0.05,
        ttft_answer=0.5,
        first_tool_call=0.75,
        tpot=0.0123456,
        itl_p50=0.01,
        itl_p95=0.02,
        queue=0.1,
        prefill=0.05,
        decode=0.3,
        wait_at_least=0.125,
        paused=2.0,
        slo={"ttft": Verdict.GOOD, "availability": Verdict.ABANDONED},
        structured_kind=OutputKind.JSON_SCHEMA,
        structured_result=OutputResult.INVALID,
        response_id="chatcmpl-1",
        prompt="{}",
        completion="a",
        content_cut=True,
        body_repeat=True,
        prefix_hashes=[255, 2**64 - 1],
        prefix_characters=5000,
        shareable_tokens=40,
        refused="upload_stalled",
    )
    sparse = finished(time=1_700_000_000.0, model="", outcome=Outcome.UPSTREAM_UNREACHABLE, status=502)
    with opened(tmp_path / "log") as log:
        log.write("relay-0-abc", [(4, full)], "0123456789ab")
        log.write("relay-0-abc", [(5, sparse)], None)
    assert (tmp_path / "log").read_bytes() == GOLDEN


def test_the_committed_schema_is_generated_from_the_fields() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == json_schema()


def test_a_number_that_was_written_is_not_logged_twice_also_after_a_restart(tmp_path: Path) -> None:
    with opened(tmp_path / "log") as log:
        for last in (2, 1, 2):  # sent again
            log.write("relay-0-a:b", numbered(*range(1, last + 1)), None)
        log.write("relay-1-c", numbered(9), None)
    with opened(tmp_path / "log") as log:
        assert log.last_numbers == {"relay-0-a:b": 2, "relay-1-c": 9}
        log.write("relay-0-a:b", numbered(1, 2, 3), None)
    assert ids(tmp_path / "log") == ["r-1", "r-2", "r-9", "r-3"]


@pytest.mark.parametrize("length", [1, 40, -2, -1])
def test_an_incomplete_last_line_is_removed_and_its_record_logged_when_sent_again(tmp_path: Path, length: int) -> None:
    path = tmp_path / "log"
    with opened(path) as log:
        log.write("life", numbered(1), None)
        whole = path.stat().st_size
        log.write("life", numbered(2), None)
    end = whole + length if length > 0 else path.stat().st_size + length
    os.truncate(path, end)
    with opened(path) as log:
        assert path.stat().st_size == whole
        assert log.last_numbers == {"life": 1}
        log.write("life", numbered(1, 2), None)
    assert ids(path) == ["r-1", "r-2"]


def test_lines_of_other_programs_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "log"
    others = 'a note\n{"record": 5}\n{"record": "no number:x"}\n{}\n\xff\n'.encode("latin-1")
    path.write_bytes(others)
    with opened(path) as log:
        assert log.last_numbers == {}
        log.write("life", numbered(1), None)
    assert path.read_bytes().startswith(others + b"{")


def test_the_last_numbers_are_read_from_the_end_of_a_long_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exporters.requestlog.writer.TAIL_BYTES", 2000)
    with opened(tmp_path / "log") as log:
        log.write("life", numbered(*range(1, 31)), None)
    whole = (tmp_path / "log").read_bytes()
    with opened(tmp_path / "log") as log:
        assert log.last_numbers == {"life": 30}
    assert (tmp_path / "log").read_bytes() == whole


def test_a_full_disk_leaves_no_incomplete_line_and_later_writes_succeed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with opened(path) as log:
        log.write("life", numbered(1), None)
        one = path.stat().st_size
        with disk_full_at(one * 2 + one // 2):
            with pytest.raises(OSError, match="File too large"):
                log.write("life", numbered(2, 3), None)
            assert path.stat().st_size == one
            assert log.last_numbers == {"life": 1}
            log.write("life", numbered(2), None)
        log.write("life", numbered(2, 3), None)
    assert ids(path) == ["r-1", "r-2", "r-3"]


def test_a_device_is_neither_read_nor_truncated_and_its_error_is_reported() -> None:
    with opened(Path("/dev/full")) as log:
        with pytest.raises(OSError, match="No space left on device"):
            log.write("life", numbered(1), None)
        assert log.last_numbers == {}


def test_a_log_that_cannot_be_opened_at_start_is_opened_by_a_later_write(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.mkdir()
    log = RequestLog(path)
    with pytest.raises(IsADirectoryError):
        log.write("life", numbered(1), None)
    path.rmdir()
    path.write_bytes(GOLDEN)
    log.write("relay-0-abc", numbered(5, 6), None)
    assert path.read_bytes().startswith(GOLDEN)
    assert ids(path)[2:] == ["r-6"]
    log.close()


def test_checking_a_log_changes_nothing_of_it(tmp_path: Path) -> None:
    """A process that still writes may be in the middle of a line."""
    (tmp_path / "log").write_bytes(b'{"half":')
    check_writable(tmp_path / "log")
    assert (tmp_path / "log").read_bytes() == b'{"half":'


def test_an_unwritable_path_is_rejected_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        check_writable(tmp_path)
    assert str(refused.value) == f"--request-log: {tmp_path} cannot be written: is a directory"
    (tmp_path / "file").touch()
    with pytest.raises(UsageError) as refused:
        check_writable(tmp_path / "file" / "log")
    assert str(refused.value) == f"--request-log: {tmp_path}/file/log cannot be written: not a directory"
