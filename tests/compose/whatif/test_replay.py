"""A replay without clients and tokens gives each request what a load in virtual time gives it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

import pytest

from compose.experiments.cells.virtual_fleet import VirtualFleet
from compose.experiments.cells.virtual_run import VirtualLoad, VirtualRun
from compose.experiments.setup.pools import Pool, Routing
from compose.simulator.presets.preset import PRESETS
from compose.whatif.combinations import Base, Combination, combinations
from compose.whatif.recorded_traffic import RecordedRequest, RecordedTraffic
from compose.whatif.replay import replay
from exporters.vocabulary.slo_file import SloFile
from exporters.vocabulary.verdicts import EndedRequest
from loadgen.results.record import Record
from loadgen.schedule.phases import Replay
from loadgen.schedule.traces import PHASE, TraceRequest, TraceSchedule

UNGRADED = SloFile(version=1, period=1.0, classes=(), slos=())
TIMEOUT = 6.0
CHARACTERS_PER_TOKEN = 4.0  # so that a block of the log has the tokens of one of a trace


def traffic(rate: float) -> list[RecordedRequest]:
    """Requests of any length, some not streamed, whose prompts begin like others for up to 1,024 tokens."""
    random, time = Random(0), 0.0  # noqa: S311 - repeatable, not secret
    requests = []
    for number in range(200):
        time += random.expovariate(rate)
        lengths = random.randint(10, 3000), random.randint(1, 300)
        prefix = tuple(f"{random.randint(0, 3)}.{block}" for block in range(random.randint(0, 1)))
        prefix += tuple(f"{each}.1" for each in prefix if random.random() < 0.5)
        requests.append(RecordedRequest(number, time, *lengths, "chat", random.random() < 0.8, prefix=prefix))
    return requests


@dataclass(frozen=True)
class Got:
    """`times`: the end, TTFT, the last chunk, and the queue."""

    ended: str
    tokens: int | None
    times: list[float | None]


def of_replay(combination: Combination, requests: Sequence[RecordedRequest]) -> dict[int, Got]:
    found: dict[int, Got] = {}

    def keep(request: RecordedRequest, ended: EndedRequest) -> None:
        end = ended.ending
        times = [end.at, ended.first_token, end.last_chunk, end.queue]
        found[request.number] = Got(end.outcome, end.completion_tokens, times)

    recorded = RecordedTraffic(requests, {}, {}, 0, CHARACTERS_PER_TOKEN, TIMEOUT, 1)
    replay(combination, recorded, TIMEOUT, keep)
    return found


def of_load(combination: Combination, requests: Sequence[RecordedRequest]) -> dict[int, Got]:
    trace = [
        TraceRequest(each.time, each.prompt_tokens, each.output_tokens, "chat", each.stream, blocks=tuple(each.prefix))
        for each in requests
    ]
    schedule = TraceSchedule(trace, seed=0)
    load = VirtualLoad(
        schedule=schedule,
        phases=(Replay(PHASE, schedule.seconds),),
        slos=UNGRADED,
        timeout=TIMEOUT,
        timeouts={},
        max_concurrency=None,
    )
    records: list[Record] = []
    fleet = VirtualFleet(combination.flags, combination.preset, (combination.pool,))
    VirtualRun(fleet, load, lambda record, _: records.append(record), lambda *_: None).run()
    return {
        each.number: Got(
            each.outcome.sidecar_outcome or "",
            each.completion_tokens,
            [each.closed - each.due, each.ttft, None if each.last is None else each.last - each.due, each.queue],
        )
        for each in records
    }


@pytest.mark.parametrize(
    "rate, changes, pool, delay",
    [
        pytest.param(10, {}, Pool(), 0.0, id="one engine"),
        pytest.param(20, {"num_gpu_blocks": ["900"]}, Pool(), 0.05, id="a full cache, requests that time out"),
        pytest.param(
            20, {"num_gpu_blocks": ["700"], "enable_prefix_caching": ["false"]}, Pool(), 0.0, id="no prefix cache"
        ),
        pytest.param(30, {}, Pool(3, Routing.PREFIX), 0.0, id="routed by prefix"),
        pytest.param(30, {"max_num_seqs": ["8"]}, Pool(3, Routing.LEAST_REQUESTS), 0.0, id="by open requests"),
    ],
)
def test_each_request_gets_what_a_load_in_virtual_time_gives_it(
    rate: float, changes: dict[str, list[str]], pool: Pool, delay: float
) -> None:
    (found,) = combinations(Base(PRESETS["h200-llama-70b-fp8"]), {"max_model_len": ["8192"], **changes}, {})
    combination = replace(found, pool=pool, preset=replace(found.preset, request_seconds=delay))
    requests = traffic(rate)
    expected, got = of_load(combination, requests), of_replay(combination, requests)
    assert got.keys() == expected.keys()
    for number, each in expected.items():
        assert (got[number].ended, got[number].tokens) == (each.ended, each.tokens)
        assert got[number].times == pytest.approx(each.times, abs=3e-6)


def test_a_prefix_is_found_as_far_as_its_characters_reach() -> None:
    """Two blocks of 2,048 characters at 5 a token have 819 tokens: 51 blocks of the cache."""
    (combination,) = combinations(Base(PRESETS["h200-llama-70b-fp8"]), {"max_num_batched_tokens": ["1024"]}, {})
    requests = [RecordedRequest(number, 60.0 * number, 1024, 1, "chat", prefix=("a", "b")) for number in range(2)]
    found: list[float] = []

    def keep(_: RecordedRequest, ended: EndedRequest) -> None:
        found.append(ended.ending.prefill or 0.0)

    replay(combination, RecordedTraffic(requests, {}, {}, 0, 5.0, 60.0, 1), 60.0, keep)
    whole, rest = (
        combination.preset.step_seconds(tokens=tokens, context=1024, sequences=1, pairs=tokens * (1024 - tokens / 2))
        for tokens in (1024, 1024 - 51 * 16)
    )
    assert found == [pytest.approx(whole), pytest.approx(rest)]


def test_a_prefix_that_is_the_whole_prompt_has_all_its_tokens() -> None:
    """656 tokens in seven blocks of 2,048 characters, whose number is not whole in floating point."""
    (combination,) = combinations(Base(PRESETS["h200-llama-70b-fp8"]), {}, {})
    prefix = tuple("abcdefg")
    requests = [RecordedRequest(number, 60.0 * number, 656, 1, "chat", prefix=prefix) for number in range(2)]
    found: list[float] = []

    def keep(_: RecordedRequest, ended: EndedRequest) -> None:
        found.append(ended.ending.prefill or 0.0)

    replay(combination, RecordedTraffic(requests, {}, {}, 0, 7 * 2048 / 656, 60.0, 1), 60.0, keep)
    last = combination.preset.step_seconds(tokens=16, context=656, sequences=1, pairs=16 * (656 - 16 / 2))
    assert found[1] == pytest.approx(last)
