"""Request logs from known distributions, written as the sidecar writes them."""

import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from exporters.records.messages import Finished
from exporters.requestlog.writer import RequestLog
from exporters.vocabulary import slo_file
from exporters.vocabulary.signals import Outcome, Verdict
from tests.support.sample_records import finished

SPEC = slo_file.load(slo_file.SHIPPED)
CHANGE = 1_800_000_000.0
"""Unix seconds: 2027-01-15 08:00:00 UTC."""

WINDOW = 600.0
SETTLE = 30.0


def seeded(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - a simulation, no secret


@dataclass(frozen=True, slots=True)
class Truth:
    """The distributions of one class: means of exponential times (seconds), shares of bad requests and cache hits."""

    rate: float = 1.0
    wait: float = 0.4
    tpot: float = 0.03
    bad: float = 0.05
    hits: float = 0.0


def traffic(
    rng: random.Random, since: float, seconds: float, truth: Truth = Truth(), name: str = "siso"
) -> Iterator[Finished]:
    """Poisson arrivals with latencies and verdicts from the distributions of `truth`."""
    at = since + rng.expovariate(truth.rate)
    while at < since + seconds:
        wait, tpot = rng.expovariate(1 / truth.wait), rng.expovariate(1 / truth.tpot)
        prompt = rng.randint(100, 1000)
        yield request(
            time=at,
            request_class=name,
            e2e=wait + tpot * 20,
            ttft=wait,
            tpot=tpot,
            queue=wait / 2,
            prompt_tokens=prompt,
            completion_tokens=21,
            cached_tokens=prompt if rng.random() < truth.hits else 0,
            slo={"ttft": Verdict.BAD if rng.random() < truth.bad else Verdict.GOOD},
        )
        at += rng.expovariate(truth.rate)


def around_change(rng: random.Random, before: Truth, after: Truth, name: str = "siso") -> Iterator[Finished]:
    """Requests of two windows, of the time between them, and of a minute before and after."""
    yield from traffic(rng, CHANGE - WINDOW - 60, WINDOW + 60, before, name)
    yield from traffic(rng, CHANGE, SETTLE + WINDOW + 60, after, name)


@dataclass(frozen=True, slots=True)
class Queue:
    """An engine that begins at most `capacity` requests per second, in the order of their arrival."""

    offered: float
    capacity: float
    hits: float = 0.0
    """Share of each prompt that is cached."""
    tpot: float = 0.015


def queued(
    rng: random.Random, since: float, until: float, queue: Queue, killed_at: float = math.inf
) -> Iterator[Finished]:
    """Poisson arrivals at an empty engine; requests that are open at `killed_at` fail."""
    at = begin = since
    while (at := at + rng.expovariate(queue.offered)) < until:
        begin = max(at, begin + 1 / queue.capacity)
        prompt, tokens = rng.randint(100, 1000), rng.randint(100, 300)
        ttft, e2e = begin + 0.1 - at, begin + 0.1 + tokens * queue.tpot - at
        late = at + ttft >= killed_at
        fields: dict[str, Any] = {"prompt_tokens": prompt, "cached_tokens": int(prompt * queue.hits)}
        if at + e2e >= killed_at:
            made = 0 if late else int((killed_at - at - ttft) / queue.tpot)
            failed = {"outcome": Outcome.TRUNCATED, "completion_tokens": made, "slo": {"ttft": Verdict.BAD}}
            yield request(time=at, e2e=killed_at - at, ttft=None if late else ttft, **(fields | failed))
        else:
            verdict = Verdict.GOOD if ttft <= 5 else Verdict.BAD
            done = {"completion_tokens": tokens, "tpot": queue.tpot, "slo": {"ttft": verdict}}
            yield request(time=at, e2e=e2e, ttft=ttft, **(fields | done))


def request(**fields: Any) -> Finished:
    """A successful stream at the config change, except for `fields`."""
    return finished(**({"time": CHANGE, "request_class": "siso", "e2e": 1.0} | fields))


def write(path: Path, records: Iterable[Finished], changed_at: float | None = CHANGE) -> Path:
    """In order of their ends; requests that ended after the config change have the revision `bbb...`."""
    log = RequestLog(path)
    numbered = enumerate(sorted(records, key=_ended), 1)
    for changed, these in groupby(numbered, lambda each: changed_at is not None and _ended(each[1]) >= changed_at):
        log.write("life", list(these), ("b" if changed else "a") * 12)
    log.close()
    return path


def _ended(record: Finished) -> float:
    return record.time + record.e2e
