"""Detection of repeated prompts, and the error of the estimate of distinct ones."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from exporters.records.messages import Batch, Judged
from exporters.requestlog.writer import RequestLog
from exporters.sidecar.ingest import prompt_repeats
from exporters.sidecar.ingest.prompt_repeats import ERROR, Distinct, Prompts
from exporters.sidecar.ingest.receiver import RecordReceiver
from exporters.sidecar.ingest.request_metrics import RequestMetrics
from exporters.vocabulary import signals
from tests.support.openmetrics import whole
from tests.support.sample_records import SLOS, finished


def digest(text: object) -> str:
    return hashlib.sha256(str(text).encode()).hexdigest()


def estimate(digests: Iterable[str]) -> float:
    distinct = Distinct()
    for each in digests:
        distinct.add(each)
    return distinct.estimate()


@pytest.mark.parametrize("count", [0, 1, 10, 300, 4_000, 10_000, 20_000, 60_000])
def test_an_estimate_is_within_three_standard_errors(count: int) -> None:
    """For small counts, large counts, and around 2.5 times the registers, where older estimators are biased."""
    assert estimate(map(digest, range(count))) == pytest.approx(count, rel=3 * ERROR)


def test_the_error_of_many_estimates_is_the_documented_one() -> None:
    off = [estimate(digest((seed, n)) for n in range(3_000)) / 3_000 - 1 for seed in range(24)]
    assert (sum(each**2 for each in off) / len(off)) ** 0.5 <= 1.4 * ERROR
    assert abs(sum(off) / len(off)) <= 3 * ERROR / len(off) ** 0.5


def test_a_repeat_does_not_change_the_estimate() -> None:
    once = [digest(n) for n in range(500)]
    assert estimate(once * 3) == estimate(once)


def test_a_prompt_repeats_from_its_second_time_on() -> None:
    prompts = Prompts()
    assert [prompts.repeats(digest(text)) for text in "aabab"] == [False, True, False, True, True]


def test_the_number_of_prompts_is_limited_and_the_oldest_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_repeats, "MAX_PROMPTS", 2)
    prompts = Prompts()
    assert [prompts.repeats(digest(text)) for text in "abcba"] == [False, False, False, True, False]


def test_repeats_of_bodies_and_of_prompts_are_counted_apart(tmp_path: Path) -> None:
    log, series = RequestLog(tmp_path / "log"), RequestMetrics(SLOS)
    series.add_model("tiny")
    records = [finished(prompt_sha256=digest("p"), body_sha256=digest(body)) for body in "abbp"]
    RecordReceiver(series, log, lambda: None).receive("one", Batch(1, [*records, finished()]))
    log.close()
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [line["prompt_repeat"] for line in lines] == [False, True, True, True, None]
    assert [line["body_repeat"] for line in lines] == [False, False, True, False, None]
    samples = {
        sample.name: sample.value
        for family in whole(series.collect(0.0))
        for sample in family.samples
        if (sample.labels.get("model"), sample.labels.get("class")) == ("tiny", "short")
    }
    assert (samples["llm_prompt_repeats_total"], samples["llm_body_repeats_total"]) == (3, 1)


def test_the_log_and_the_series_have_the_same_repeats(tmp_path: Path) -> None:
    """Also for a repeated batch and for a request without a prompt hash."""
    log, series = RequestLog(tmp_path / "log"), RequestMetrics(SLOS)
    series.add_model("tiny")
    receiver = RecordReceiver(series, log, lambda: None)
    texts = [digest("a"), digest("a"), None, digest("b"), digest("a")]
    judged = Judged("tiny", "short", "team-a", {}, goodput_lost=False)
    batch = Batch(1, [*(finished(prompt_sha256=text) for text in texts), judged])
    assert receiver.receive("one", batch) == 6
    assert receiver.receive("one", batch) == 6
    assert receiver.receive("another relay", Batch(1, [finished(prompt_sha256=digest("b"), model="unserved")])) == 1
    log.close()
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [line["prompt_repeat"] for line in lines] == [False, True, None, False, True, True]
    families = {family.name: family for family in whole(series.collect(0.0))}
    repeats = {
        (sample.labels["model"], sample.labels["class"]): sample.value
        for sample in families[signals.PROMPT_REPEATS.name.removesuffix("_total")].samples
        if sample.value
    }
    assert repeats == {("tiny", "short"): 2, ("other", "short"): 1}
    unique = {sample.labels["model"]: round(sample.value) for sample in families[signals.UNIQUE_PROMPTS.name].samples}
    assert unique == {"tiny": 2, "other": 1}
