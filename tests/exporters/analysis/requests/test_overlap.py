"""The load around one request: which requests overlap with it, and their phases at its moments."""

from pathlib import Path

import pytest

from exporters.analysis.requests import overlap
from exporters.analysis.requests.overlap import Surroundings
from exporters.analysis.requests.scan import Scan
from exporters.records.messages import Finished
from exporters.requestlog.writer import RequestLog
from tests.support.sample_records import finished


def request(name: str, start: float, end: float, first_token: float | None = None, *, stream: bool = True) -> Finished:
    ttft = None if first_token is None else first_token - start
    return finished(request_id=name, time=1_700_000_000 + start, e2e=end - start, ttft=ttft, stream=stream)


def around(folder: Path, *others: Finished, limit: int = 50) -> tuple[Surroundings, list[str]]:
    """The surroundings of a request from 10 s to 20 s with its first token at 14 s, and the ids of its lines."""
    log = RequestLog(folder / "log")
    log.write("run", list(enumerate([request("this", 10, 20, 14), *others], 1)), None)
    log.close()
    row, line = overlap.only_one(Scan([folder / "log"], [overlap.named("this")], overlap.FIELDS), "this")
    target = overlap.span(row)
    result = overlap.surroundings(target, line, Scan([folder / "log"], [overlap.overlaps(target)]), limit)
    return result, [line.split(b'"request_id":"')[1].split(b'"')[0].decode() for line in result.lines]


def phases(result: Surroundings) -> dict[str, tuple[int, int, int]]:
    return {load.moment: (load.waiting, load.streaming, load.unary) for load in result.loads}


def test_other_requests_are_counted_by_their_phase_at_arrival_first_token_and_end(tmp_path: Path) -> None:
    result, ids = around(
        tmp_path,
        request("before", 1, 9, 2),
        request("streams", 5, 15, 6),
        request("waits until 12", 6, 25, 12),
        request("without a token", 11, 16),
        request("unary", 13, 22, stream=False),
        request("after", 21, 30, 22),
    )
    assert ids == ["streams", "waits until 12", "this", "without a token", "unary"]
    assert result.others == 4
    assert phases(result) == {"arrival": (1, 1, 0), "first token": (1, 2, 1), "end": (0, 1, 1)}
    assert [load.in_flight for load in result.loads] == [2, 4, 2]


@pytest.mark.parametrize("limit", [1, 2, 3, 9])
def test_the_longest_overlaps_are_kept_and_all_are_counted(tmp_path: Path, limit: int) -> None:
    others = [request(f"o{number}", 10 + number, 20, 19.5) for number in range(1, 9)]
    result, ids = around(tmp_path, *others, limit=limit)
    assert ids == ["this", *(f"o{number}" for number in range(1, limit))]
    assert result.others == 8
    assert phases(result)["first token"] == (4, 0, 0)


def test_a_request_without_a_first_token_has_no_load_at_it(tmp_path: Path) -> None:
    log = RequestLog(tmp_path / "log")
    log.write("run", [(1, request("this", 0, 1, stream=False))], None)
    log.close()
    ((row, line),) = Scan([tmp_path / "log"], [overlap.named("run:1")], overlap.FIELDS)
    result = overlap.surroundings(overlap.span(row), line, [], 5)
    assert [load.moment for load in result.loads] == ["arrival", "end"]
    assert result.lines == (line,)
