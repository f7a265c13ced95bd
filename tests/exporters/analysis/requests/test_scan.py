"""Scans of request logs: the same requests as a decoder of every line finds, although lines are skipped by bytes."""

import json
import operator
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporters.analysis.requests import conditions
from exporters.analysis.requests.conditions import Condition
from exporters.analysis.requests.scan import Scan
from exporters.requestlog import files
from exporters.requestlog.reader import BadLines

SMALLEST = {"time": "2026-01-31T12:00:10Z", "class": "siso", "stream": True, "outcome": "ok", "e2e_ms": 5000.0}


def encoded(**fields: Any) -> bytes:
    return json.dumps(SMALLEST | fields, separators=(",", ":")).encode()


def scanned(path: Path, content: bytes, *wanted: Condition, fields: tuple[str, ...] = ()) -> tuple[Scan, list[bytes]]:
    path.write_bytes(content)
    scan = Scan([path], wanted, fields)
    return scan, [line for _, line in scan]


NAMES = st.sampled_from(["siso", "liso", "s o", 'a"b', "a\\b", "é", "", "a\nb", "class", '"class":"siso"', "\x7f"])
TIMES = ["2026-01-31T12:00:10Z", "2026-01-31T13:30:00.5+02:00", "2027-01-01T00:00:00+00:00"]
ENTRIES = st.fixed_dictionaries(
    {
        "time": st.sampled_from(TIMES),
        "class": NAMES,
        "stream": st.booleans(),
        "outcome": st.sampled_from(["ok", "rejected"]),
        "e2e_ms": st.floats(0, 100),
    },
    optional={
        "model": NAMES | st.none(),
        "request_id": NAMES,
        "status": st.sampled_from([200, 429, 503, 5030, None]),
        "ttft_ms": st.floats(0, 100) | st.none(),
        "slo": st.dictionaries(NAMES, st.sampled_from(["good", "bad", "abandoned"]), max_size=3),
        "a_later_field": NAMES | st.dictionaries(NAMES, NAMES, max_size=2),
        "record": st.sampled_from(["run:1", "run:2"]),
    },
)


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    """A line as the sidecar or another program writes it, or a bad line."""
    entry = draw(ENTRIES)
    compact = draw(st.booleans())
    text = json.dumps(
        entry,
        separators=(",", ":") if compact else draw(st.sampled_from([(", ", ": "), (",\t", " :"), (",", ":\r")])),
        ensure_ascii=draw(st.booleans()),
    ).encode()
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return draw(st.sampled_from([b"", b"[]", b"nginx: 200", b"{}", text[: len(text) // 2], b"\xff" + text]))
    if kind == 1:
        return text.replace(b"siso", b"s\\u0069so")
    return text


Naive = tuple[Condition, Callable[[dict[str, Any]], bool]]


def _time(entry: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(entry["time"])


@st.composite
def wanted(draw: st.DrawFn) -> Naive:
    """A condition, and the same as a function of a decoded object."""
    names, slo, verdict = (
        draw(st.lists(NAMES, min_size=1, max_size=2)),
        draw(NAMES),
        draw(st.sampled_from(["good", "bad"])),
    )
    bound, at, truth = (
        draw(st.floats(0, 100)),
        datetime.fromisoformat(draw(st.sampled_from(TIMES))),
        draw(st.booleans()),
    )
    field = draw(st.sampled_from(["class", "model", "request_id"]))

    def good(entry: dict[str, Any]) -> bool:
        final = [each for each in entry.get("slo", {}).values() if each != "abandoned"]
        return bool(final) and (final.count("good") == len(final)) is truth

    choices: list[Naive] = [
        (
            conditions.one_of(field, names),
            lambda entry: entry.get(field, None if field == "model" else "") in names,
        ),
        (conditions.flag("stream", value=truth), lambda entry: entry["stream"] is truth),
        (conditions.verdict(slo, verdict), lambda entry: entry.get("slo", {}).get(slo) == verdict),
        (conditions.goodput(good=truth), good),
        (conditions.status(["503", "2xx"]), lambda entry: entry.get("status") in {503, 200}),
        (
            conditions.bounded("ttft_ms", operator.ge, bound),
            lambda entry: (entry.get("ttft_ms") or -1) >= bound or (bound == 0 and entry.get("ttft_ms") == 0),
        ),
        (conditions.bounded("e2e_ms", operator.le, bound), lambda entry: entry["e2e_ms"] <= bound),
        (conditions.bounded("time", operator.ge, at), lambda entry: _time(entry) >= at),
        (conditions.bounded("time", operator.lt, at), lambda entry: _time(entry) < at),
    ]
    return draw(st.sampled_from(choices))


def naive(line: bytes, tests: list[Callable[[dict[str, Any]], bool]]) -> bool:
    try:
        entry = json.loads(line)
    except ValueError:
        return False
    return isinstance(entry, dict) and SMALLEST.keys() <= entry.keys() and all(test(entry) for test in tests)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    content=st.lists(lines(), max_size=12),
    tests=st.lists(wanted(), max_size=3),
    ended=st.booleans(),
    block=st.integers(1, 2000),
)
def test_the_requests_are_those_that_decoding_every_line_finds(
    tmp_path_factory: pytest.TempPathFactory, content: list[bytes], tests: list[Naive], ended: bool, block: int
) -> None:
    path = tmp_path_factory.mktemp("logs") / "log"
    path.write_bytes(b"\n".join(content) + (b"\n" if ended and content else b""))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "BLOCK", block)
        scan = Scan([path], [condition for condition, _ in tests])
        found = [line for _, line in scan]
    assert found == [line for line in content if naive(line, [test for _, test in tests])]


def test_lines_that_no_condition_excludes_by_bytes_are_bad_with_their_number(tmp_path: Path) -> None:
    content = b"\n".join([encoded(), b"{}", encoded(e2e_ms="slow"), encoded(), b"", encoded(outcome="later"), b'{"ti'])
    scan, found = scanned(tmp_path / "log", content)
    assert found == [encoded(), encoded(), encoded(outcome="later")]
    assert scan.lines == 7
    assert scan.bad_lines == {str(tmp_path / "log"): BadLines(4, "line 2: Object missing required field `time`")}


def test_a_skipped_line_that_is_no_object_is_bad(tmp_path: Path) -> None:
    other = encoded(record="run:1", **{"class": "liso"})
    content = b"\n".join([other, other[:-20], other, encoded(record="run:1"), b"hello", b""])
    scan, found = scanned(tmp_path / "log", content, conditions.one_of("class", ["siso"]))
    assert len(found) == 1
    assert [(bad.count, bad.first) for bad in scan.bad_lines.values()] == [(2, "line 2: Input data was truncated")]


def test_lines_of_other_classes_are_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [SMALLEST | {"class": name, "record": "run:1"} for name in ("siso", "liso", "other", "siso", "lilo")]
    content = b"".join(json.dumps(entry, separators=(",", ":")).encode() + b"\n" for entry in entries)
    (tmp_path / "log").write_bytes(content)
    scan = Scan([tmp_path / "log"], [conditions.one_of("class", ["siso"])])
    decoded: list[bytes] = []
    decode = scan._decode

    def recorded(line: bytes) -> Any:
        decoded.append(line)
        return decode(line)

    monkeypatch.setattr(scan, "_decode", recorded)
    assert len(list(scan)) == 2
    assert [json.loads(line)["class"] for line in decoded] == ["siso", "siso"]


def test_a_corrupt_value_of_a_field_that_is_only_printed_makes_a_line_bad(tmp_path: Path) -> None:
    scan, found = scanned(tmp_path / "log", encoded(model="xy").replace(b"xy", b"\xff\xfe"))
    assert found == []
    assert [bad.count for bad in scan.bad_lines.values()] == [1]


def test_with_strict_every_field_of_every_line_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\n".join([encoded(ttft_ms="fast"), encoded(**{"class": "liso"}, status="x"), encoded()]))
    for strict, bad in ((False, 0), (True, 2)):
        scan = Scan([path], [conditions.one_of("class", ["siso"])], strict=strict)
        assert len(list(scan)) == 2 - strict
        assert scan.bad_lines[str(path)].count == bad
