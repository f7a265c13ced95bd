"""The file of spans: what it finds, what it keeps, and that it does not grow."""

import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from exporters.analysis.traces.request_search import Search, parse_search
from exporters.analysis.traces.span_parser import Span, parse_spans
from exporters.analysis.traces.span_store import MAX_SPANS_OF_TRACE, SpanStore
from exporters.text.errors import UsageError
from exporters.vocabulary.signals import Outcome
from tests.support.sample_traces import NOW, bad_request, encoded, good_request, request_spans

HOUR, MIB = 3600.0, 1024 * 1024


def spans(*numbers: int) -> list[Span]:
    return parse_spans(encoded(*(span for number in numbers for span in bad_request(number))))


def numbered(store: SpanStore, now: float = NOW) -> list[int]:
    """The numbers of the stored requests."""
    found, count = store.requests(Search(limit=1000), now)
    assert len(found) == count
    return sorted(int(request.span_id, 16) for request in found)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "traces.db"


@pytest.fixture
def store(path: Path) -> Iterator[SpanStore]:
    store = SpanStore(path, keep=HOUR, max_bytes=64 * MIB)
    yield store
    store.close()


@pytest.mark.parametrize(
    "query, numbers",
    [
        pytest.param({}, [1, 2, 3, 4], id="no condition: newest first"),
        pytest.param({"sort": "slowest"}, [4, 2, 3, 1], id="slowest first"),
        pytest.param({"sort": "slowest", "limit": "2"}, [4, 2], id="the worst two"),
        pytest.param({"verdict": "bad"}, [2, 3, 4], id="bad"),
        pytest.param({"verdict": "good"}, [1], id="good"),
        pytest.param({"slo": "ttft"}, [1, 2, 4], id="judged by an SLO"),
        pytest.param({"slo": "ttft", "verdict": "bad"}, [2, 4], id="an SLO missed"),
        pytest.param({"slo": "tt", "verdict": "bad"}, [], id="no part of a name"),
        pytest.param({"class": "long"}, [4], id="class"),
        pytest.param({"model": "other"}, [3], id="model"),
        pytest.param({"tenant": "team-b"}, [4], id="tenant"),
        pytest.param({"route": "/v1/completions"}, [2], id="route"),
        pytest.param({"outcome": "upstream_error"}, [3], id="outcome"),
        pytest.param({"request_id": "r-2"}, [2], id="request id"),
        pytest.param({"min_duration": "6s"}, [2, 4], id="duration"),
        pytest.param({"since": "2s"}, [1, 2], id="since a time before now"),
        pytest.param({"until": "2s"}, [3, 4], id="until a time before now"),
        pytest.param({"class": "short", "verdict": "bad", "slo": "ttft", "since": "1m"}, [2], id="all conditions"),
        pytest.param({"class": "' OR 1=1 --"}, [], id="a value is never part of the SQL"),
    ],
)
def test_a_search_finds_exactly_the_requests_that_match(
    store: SpanStore, query: dict[str, str], numbers: list[int]
) -> None:
    records = (
        *good_request(1),
        *bad_request(2, route="/v1/completions"),
        *request_spans(3, outcome=Outcome.UPSTREAM_ERROR, model="other", e2e=3.0),
        *bad_request(4, request_class="long", tenant="team-b", e2e=9.0),
    )
    from_records = parse_spans(encoded(*records))
    store.add(from_records, NOW)
    found, count = store.requests(parse_search(query.items(), NOW), NOW)
    assert [int(request.span_id, 16) for request in found] == numbers
    assert count == (4 if query.get("limit") else len(numbers))


def test_a_trace_has_the_spans_of_all_messages_once(store: SpanStore) -> None:
    first = spans(1)
    store.add(first[2:], NOW)
    store.add(first[:3], NOW)
    assert store.trace(first[0].trace_id, NOW) == sorted(first, key=lambda span: span.start)
    assert store.trace("0" * 32, NOW) == []


def test_a_trace_of_many_spans_is_read_up_to_a_limit(store: SpanStore) -> None:
    (span, *_) = spans(1)
    many = [Span(**{**{name: getattr(span, name) for name in span.__struct_fields__}, "span_id": f"{number:016x}"})
            for number in range(MAX_SPANS_OF_TRACE + 1)]  # fmt: skip
    store.add(many, NOW)
    assert len(store.trace(span.trace_id, NOW)) == MAX_SPANS_OF_TRACE


def test_spans_are_deleted_by_the_age_of_their_arrival(store: SpanStore) -> None:
    store.add(spans(1), NOW)
    store.add(spans(2), NOW + 10)
    assert numbered(store, NOW + HOUR) == [1, 2]
    assert numbered(store, NOW + HOUR + 1) == [2]
    assert store.trace(spans(1)[0].trace_id, NOW + HOUR + 1) == []
    store.delete_old(NOW + HOUR + 1)
    assert numbered(store, NOW) == [2]


@pytest.mark.slow
def test_the_file_does_not_grow_beyond_its_size_and_the_oldest_spans_are_deleted_first(path: Path) -> None:
    store = SpanStore(path, keep=HOUR, max_bytes=MIB)
    sizes = []
    for batch in range(30):
        store.add(spans(*range(batch * 50, batch * 50 + 50)), NOW)
        sizes.append(sum(each.stat().st_size for each in path.parent.iterdir()))
    kept = numbered(store)
    store.close()
    assert kept == list(range(kept[0], 1500))
    assert 50 < len(kept) < 1000
    assert path.stat().st_size < 1.3 * MIB
    assert max(sizes[15:]) <= max(sizes[:15]) + 0.5 * MIB


def test_a_smaller_size_shrinks_the_file_of_an_earlier_run(path: Path) -> None:
    store = SpanStore(path, keep=HOUR, max_bytes=64 * MIB)
    for batch in range(10):
        store.add(spans(*range(batch * 50, batch * 50 + 50)), NOW)
    store.close()
    before = path.stat().st_size
    store = SpanStore(path, keep=HOUR, max_bytes=MIB // 2)
    store.delete_old(NOW)
    store.shrink()
    store.close()
    assert before > 1.5 * MIB
    assert path.stat().st_size < 0.6 * MIB


def test_reading_and_writing_at_the_same_time_lose_nothing(store: SpanStore) -> None:
    done = threading.Event()
    counts: list[int] = []
    errors: list[Exception] = []

    def read() -> None:
        try:
            while not done.is_set():
                counts.append(len(numbered(store)))
                store.values()
        except Exception as error:  # noqa: BLE001 - reported below
            errors.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for number in range(100):
            store.add(spans(number), NOW)
    finally:
        done.set()
        for reader in readers:
            reader.join()
    assert errors == []
    assert numbered(store) == list(range(100))
    assert max(counts, default=0) <= 100


def test_a_write_that_fails_stores_nothing_of_its_message(store: SpanStore) -> None:
    full = "SELECT RAISE(ABORT, 'disk is full') WHERE (SELECT count(*) FROM spans) > 1"
    store._writer.execute(f"CREATE TRIGGER full BEFORE INSERT ON spans BEGIN {full}; END")
    with pytest.raises(sqlite3.Error, match="disk is full"):
        store.add(spans(1), NOW)
    assert store.trace(spans(1)[0].trace_id, NOW) == []
    store._writer.execute("DROP TRIGGER full")
    store.add(spans(1), NOW)
    assert numbered(store) == [1]


def remove_files(path: Path) -> None:
    for file in path.parent.iterdir():
        file.unlink()


def remove_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


@pytest.mark.parametrize("remove", [remove_files, remove_folder])
def test_after_the_file_is_removed_later_spans_are_stored_in_another_one(
    tmp_path: Path, remove: Callable[[Path], None]
) -> None:
    path = tmp_path / "folder" / "traces.db"
    path.parent.mkdir()
    with closing(SpanStore(path, keep=HOUR, max_bytes=64 * MIB)) as store:
        store.add(spans(1), NOW)
        remove(path)
        store.add(spans(2), NOW)
        assert numbered(store) == [2]
    with closing(SpanStore(path, keep=HOUR, max_bytes=64 * MIB)) as store:
        assert numbered(store) == [2]


def test_while_the_file_cannot_be_created_again_spans_are_refused_and_later_ones_are_stored(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with closing(SpanStore(folder / "traces.db", keep=HOUR, max_bytes=64 * MIB)) as store:
        shutil.rmtree(folder)
        folder.touch()
        for _ in range(2):
            with pytest.raises(sqlite3.OperationalError, match="not a directory"):
                store.add(spans(1), NOW)
        folder.unlink()
        store.add(spans(2), NOW)
        assert numbered(store) == [2]


def test_the_values_of_filters_are_those_of_stored_requests(store: SpanStore) -> None:
    store.add(parse_spans(encoded(*good_request(1), *bad_request(2, request_class="long", model=""))), NOW)
    assert store.values() == {
        "class": ["long", "short"],
        "tenant": ["team-a"],
        "model": ["tiny"],
        "route": ["/v1/chat/completions"],
        "outcome": ["ok"],
    }


def test_a_file_that_cannot_be_used_is_refused_unchanged(tmp_path: Path) -> None:
    text, database = tmp_path / "notes.txt", tmp_path / "other.db"
    text.write_text("not a database " * 100)
    other = sqlite3.connect(database)
    other.execute("CREATE TABLE mine (x)")
    other.close()
    before = database.read_bytes()
    for path, message in {
        tmp_path: f"--trace-file: {tmp_path} cannot be written: is a directory",
        tmp_path / "no" / "t.db": f"--trace-file: {tmp_path}/no/t.db cannot be written: no such file or directory",
        text: f"--trace-file: {text} cannot be used: file is not a database; choose another file",
        database: (
            f"--trace-file: {database} cannot be used: file is not a trace store of this version; choose another file"
        ),
    }.items():
        with pytest.raises(UsageError) as caught:
            SpanStore(path, keep=HOUR, max_bytes=64 * MIB)
        assert str(caught.value) == message
    assert text.read_text().startswith("not a database")
    assert database.read_bytes() == before
