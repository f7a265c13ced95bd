"""Replayed records give the samples that a scrape at each step would have had."""

from collections.abc import Iterable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from compose.backfill import replay
from compose.backfill.replay import Schedule, scrapes, timestamp
from exporters.records.messages import Finished
from exporters.sidecar.ingest.request_metrics import RequestMetrics
from exporters.vocabulary.signals import Outcome
from tests.support.sample_records import SLOS, finished

STEP = 15_000
START = 1_800_000_000_000
SCHEDULE = Schedule(STEP, margin=2 * STEP)
PARSED = ("up{", "llm_requests_total{")
OK = {"model": "tiny", "class": "short", "outcome": "ok", "tenant": "team-a", "stream": "true"}


def replayed(records: Iterable[tuple[int, Finished]], *models: str, target: str = 'job="j"') -> dict[Any, Any]:
    """Values by time, by name and labels, of the series in `PARSED`."""
    metrics = RequestMetrics(SLOS)
    for model in models or ("tiny",):
        metrics.add_model(model)
    samples: dict[Any, Any] = {}
    for scrape in scrapes(metrics, records, SCHEDULE, target):
        for line in scrape.lines:
            if not line.startswith(PARSED):
                continue
            text, _, seconds = line.removesuffix("\n").rpartition(" ")
            ((sample,),) = (family.samples for family in text_string_to_metric_families(text + "\n"))
            at, key = round(float(seconds) * 1000), (sample.name, frozenset(sample.labels.items()))
            assert at > max(samples.setdefault(key, {}), default=0), f"{key} is not in order"
            samples[key][at] = sample.value
    return samples


def requests(samples: dict[Any, Any], route: str = "chat_completions", **labels: str) -> dict[int, float]:
    """The samples of one series of requests; times are steps since the start."""
    key = "llm_requests_total", frozenset((OK | {"route": route, "job": "j"} | labels).items())
    return {(at - START) // STEP: value for at, value in samples[key].items()}


def test_a_request_is_due_at_the_first_step_at_or_after_its_end() -> None:
    ends = [START / 1000 + seconds for seconds in (0, 0.0004, 0.001, 14.999, 15)]
    assert [(SCHEDULE.due(ended) - START) // STEP for ended in ends] == [0, 0, 1, 1, 1]
    assert [timestamp(each) for each in (START, START + 50)] == ["1800000000.000", "1800000000.050"]


def test_series_start_at_0_before_the_first_request_and_continue_after_the_last() -> None:
    samples = replayed([(START, finished()), (START, finished()), (START + 3 * STEP, finished())])
    assert requests(samples) == {-2: 0, -1: 0, 0: 2, 1: 2, 2: 2, 3: 3, 4: 3, 5: 3}
    assert requests(samples, outcome="client_abort") == dict.fromkeys(range(-2, 6), 0)
    up = samples["up", frozenset({("job", "j")})]
    assert [*up.values()] == [1] * 8


def test_a_series_that_begins_later_is_at_0_one_step_earlier() -> None:
    """Other endpoints have series since their first request."""
    later = {"api": "embeddings", "outcome": Outcome.OK}
    samples = replayed([(START, finished()), (START + 2 * STEP, finished(**later))])
    assert requests(samples, "embeddings") == {1: 0, 2: 1, 3: 1, 4: 1}


def test_series_continue_through_a_pause_but_not_through_a_long_one(monkeypatch: pytest.MonkeyPatch) -> None:
    pause = 8
    monkeypatch.setattr(replay, "LONGEST_PAUSE", pause * STEP)
    times = (0, pause, 2 * pause + 1)
    samples = replayed([(START + each * STEP, finished()) for each in times])
    present = [*range(-2, pause + 3), *range(2 * pause - 1, 2 * pause + 4)]
    assert [*requests(samples)] == present
    assert [*requests(samples).values()][-5:] == [2, 2, 3, 3, 3]


def test_what_a_log_does_not_have_is_absent() -> None:
    metrics = RequestMetrics(SLOS)
    lines = [line for scrape in scrapes(metrics, [(START, finished())], SCHEDULE, 'job="j"') for line in scrape.lines]
    absent = ("llm_requests_in_flight", "llm_inter_chunk", "llm_sidecar", "llm_engine", "llm_unique_prompts", "#")
    assert not [line for line in lines if line.startswith(absent)]
    assert [line for line in lines if line.startswith("llm_slo_events_total{")]


def test_labels_of_the_target_follow_any_label() -> None:
    hostile = 'a"} 1\\n{b="c'
    samples = replayed([(START, finished(model=hostile))], hostile)
    assert requests(samples, model=hostile)[0] == 1
