"""Records of any order and of several files are returned once each, by time."""

import random
import tracemalloc
from pathlib import Path

import pytest

from compose.backfill import record_store
from compose.backfill.record_store import SLICE, RecordStore
from tests.support.sample_records import finished


@pytest.mark.parametrize("buffered", [1, 7, 1000])
def test_records_are_returned_by_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, buffered: int) -> None:
    monkeypatch.setattr(record_store, "BUFFERED", buffered)
    store = RecordStore(tmp_path)
    times = [*range(0, 5 * SLICE, 15_000)]
    for due in random.Random(1).sample(times, len(times)):  # noqa: S311 - no secret
        store.add(due, f"run:{due}", finished(e2e=due))
    for _ in range(2):
        assert [(due, record.e2e) for due, record in store] == [(due, due) for due in times]
    assert (store.count, store.repeated) == (len(times), 0)


def test_a_line_that_is_in_two_files_counts_once_and_lines_without_a_name_count_each(tmp_path: Path) -> None:
    store = RecordStore(tmp_path)
    for name in ("a:1", "a:2", "a:1", "", ""):
        store.add(15_000, name, finished())
    assert len(list(store)) == 4
    assert store.repeated == 1


def test_models_are_known_by_their_successful_requests(tmp_path: Path) -> None:
    store = RecordStore(tmp_path)
    for model, status in (("a", 200), ("b", 404), ("a", 500), ("c", None)):
        store.add(0, "", finished(model=model, status=status))
    assert store.served == {"a": 1}


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_store, "BUFFERED", 1000)
    store = RecordStore(tmp_path)
    tracemalloc.start()
    try:
        for number in range(15_000):
            store.add(number * SLICE // 500, f"run:{number}", finished(e2e=number))
        assert sum(1 for _ in store) == 15_000
        assert tracemalloc.get_traced_memory()[1] < 8 << 20  # of about 20 MB
    finally:
        tracemalloc.stop()
