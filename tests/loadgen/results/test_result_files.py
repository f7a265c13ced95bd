"""The files of a real run against the scripted server."""

import json
from pathlib import Path

import pytest

from loadgen.results.record import ClientOutcome, read_records
from tests.loadgen.load_process import run_load, scripted_server, write_scenario

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("detailed", [False, True], ids=["usual", "detailed"])
def test_the_gaps_of_all_chunks_are_in_the_result(tmp_path: Path, detailed: bool) -> None:
    path, out = write_scenario(tmp_path, "siso", "refuse", rate=60, duration="500ms"), tmp_path / "out"
    path.write_text(path.read_text() + "chat_share: 1\nstream_share: 1\n")
    with scripted_server() as target:
        process = run_load(path, target, out, *(["--save-detailed"] if detailed else []))
    assert (process.returncode, process.stderr) == (0, "")
    records = sorted(read_records(out), key=lambda record: record.due)
    ended = [record for record in records if record.outcome is ClientOutcome.OK]
    result = json.loads((out / "bench.json").read_text())
    assert (result["completed"], result["failed"]) == (len(ended), len(records) - len(ended))
    histogram = result["vllm_slo"]["itl_histogram"]
    # a chunk with the role, and one for each token
    assert histogram["zeros"] + sum(histogram["counts"].values()) == sum(record.chunks for record in ended)
    assert histogram["sum"] == pytest.approx(
        sum((record.last_choice or 0) - (record.first_choice or 0) for record in ended), abs=1e-3
    )
    assert ("itls" in result) == detailed
    if detailed:
        assert [len(gaps) for gaps in result["itls"]] == [record.chunks for record in records]
        assert [text.count(" the") for text in result["generated_texts"]] == [record.chunks for record in records]
        assert result["errors"] == ["" if record in ended else "too many" for record in records]
