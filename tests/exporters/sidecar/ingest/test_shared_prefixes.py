"""Tokens that a prefix cache could share: prefixes seen within the last hour, in bounded memory."""

import json
import random
from array import array
from pathlib import Path

from exporters.records.messages import PREFIX_BLOCK, Batch, Finished
from exporters.requestlog.writer import RequestLog
from exporters.sidecar.ingest.receiver import RecordReceiver
from exporters.sidecar.ingest.request_metrics import RequestMetrics
from exporters.sidecar.ingest.shared_prefixes import WAYS, WINDOW, SharedPrefixes
from tests.support.openmetrics import whole
from tests.support.sample_records import SLOS, finished

CHARACTERS = 4 * PREFIX_BLOCK
MANY = 1 << 14


def test_the_share_ends_before_the_first_new_block() -> None:
    prefixes = SharedPrefixes()
    prompts = [[1, 2, 3], [1, 2, 3], [1, 2, 8], [7, 2, 3], [1, 2, 8, 9]]
    assert [prefixes.share(prompt, CHARACTERS, 0) for prompt in prompts] == [0, 0.75, 0.5, 0, 0.75]


def test_a_prompt_without_a_whole_block_has_no_share() -> None:
    assert SharedPrefixes().share([], 0, 0) == 0


def test_a_hash_is_remembered_for_an_hour_after_its_last_request() -> None:
    times = [0, WINDOW, 2 * WINDOW, 3 * WINDOW + 1, 3 * WINDOW + 2]
    seen = SharedPrefixes()
    assert [seen.add(5, now) for now in times] == [False, True, True, False, True]


def test_the_smallest_hash_is_not_taken_for_an_unused_place() -> None:
    seen = SharedPrefixes(WAYS)
    assert [seen.add(0, now) for now in (0, 0)] == [False, True]


def test_a_full_set_drops_its_oldest_hash() -> None:
    seen = SharedPrefixes(WAYS)
    for value in range(WAYS):
        assert not seen.add(value, value)
    assert seen.add(0, WAYS)
    assert not seen.add(WAYS, WAYS + 1)
    assert [value for value in range(WAYS + 1) if value not in seen._hashes] == [1]


def test_half_as_many_hashes_as_fit_are_kept_and_memory_does_not_grow() -> None:
    seen = SharedPrefixes(MANY)
    numbers = random.Random(1)  # noqa: S311 - no secret
    recent = [numbers.getrandbits(64) for _ in range(MANY // 2)]
    before = size(seen)
    for value in recent:
        seen.add(value, 0)
    kept = sum(seen.add(value, 1) for value in recent)
    assert kept >= 0.99 * len(recent)
    assert size(seen) == before == 12 * MANY


def size(seen: SharedPrefixes) -> int:
    return sum(len(part) * part.itemsize for part in vars(seen).values() if isinstance(part, array))


def counted(series: RequestMetrics) -> dict[tuple[str, str], float]:
    return {
        (sample.labels["model"], sample.labels["tenant"]): sample.value
        for family in whole(series.collect(0.0))
        for sample in family.samples
        if sample.name == "llm_shareable_prompt_tokens_total" and sample.labels["class"] == "short"
    }


def hashed(*hashes: int, **fields: object) -> Finished:
    return finished(**{"prefix_hashes": list(hashes), "prefix_characters": CHARACTERS, "prompt_tokens": 1000, **fields})


def test_the_log_and_the_series_have_the_same_tokens(tmp_path: Path) -> None:
    """Also for a repeated batch, an unserved model, a rejected and an aborted request."""
    now = 0.0
    log, series = RequestLog(tmp_path / "log"), RequestMetrics(SLOS)
    series.add_model("tiny")
    receiver = RecordReceiver(series, log, lambda: None, now=lambda: now)
    records = [
        hashed(1, 2, 3),
        hashed(1, 2, 4),
        hashed(9, status=429),
        hashed(9),
        hashed(1, 2, prompt_tokens=None),
        hashed(5, model="unserved"),
        hashed(5, model="unserved"),
        finished(prompt_tokens=1000),
    ]
    batch = Batch(1, [*records])
    receiver.receive("one", batch)
    receiver.receive("one", batch)
    now = WINDOW + 1.0
    receiver.receive("one", Batch(9, [hashed(1, 2), hashed(1, 2)]))
    log.close()
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [line["shareable_tokens"] for line in lines] == [0, 500, None, 0, None, 0, 250, None, 0, 500]
    assert lines[0]["prefix_hashes"] == ["0000000000000001", "0000000000000002", "0000000000000003"]
    assert counted(series) == {
        ("tiny", "team-a"): 1000,
        ("other", "team-a"): 250,
    }
