"""The evidence that request logs give: each figure of a small log, and laws of its parts."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporters.analysis.diagnose.evidence import ClassEvidence
from exporters.analysis.diagnose.request_log_evidence import PrefixReuse, RequestLogEvidence, concurrency
from exporters.records.messages import PREFIX_BLOCK, Finished
from exporters.requestlog.entry import LogEntry
from exporters.text.errors import UsageError
from exporters.vocabulary import slo_file
from exporters.vocabulary.signals import Outcome, Verdict
from exporters.vocabulary.verdicts import nearest_rank
from tests.exporters.analysis.compare.sample_logs import request
from tests.exporters.analysis.diagnose.workload_logs import START, log, stream

SPEC = slo_file.load(slo_file.SHIPPED)


def evidence(folder: Path, requests: list[Finished], name: str = "siso") -> ClassEvidence:
    classes = {of.name: of for of in RequestLogEvidence([Path(log(folder, requests))], SPEC).classes()}
    return classes[name]


FIGURES = {
    "requests": 4,
    "goodput": 0.5,
    "first_token_burn": 10.0,  # half of the events are bad, the objective is 95 %
    "other_burn": 0.0,
    "rejected": 0.25,
    "failed": 0.0,
    "client_errors": 0.0,
    "aborted": 0.0,
    "no_first_token": 0.25,
    "client_paused": 0.0,
    "engine_times": 0.5,
    "ttft": 2.0,
    "queue": 1.0,
    "prefill": 0.5,
    "frontend": 0.5,
    "queue_share": 0.8,  # 8 of 10 seconds
    "prefill_share": 0.1,
    "frontend_share": 0.1,
    "e2e": 4.0,
    "decode": 2.0,
    "decode_share": 0.2857,  # 4 of 14 seconds
    "tpot": 0.02,
    "stall_ratio": 1.5,
    "prompt_p50": 100,
    "prompt_p95": 300,
    "output_p50": 101,
    "output_p95": 101,
    "reasoning": 0.3960,
    "cached_p50": 0,
    "cached_p95": 64,
    "longest": 401,
    "repeated_prompts": 0.5,
    "repeated_bodies": 0.5,
    "cached_answers": 0.0,
    "actual_hits": 0.16,
}
"""Those of the log in the test below."""


def test_the_figures_of_a_small_log(tmp_path: Path) -> None:
    found = evidence(
        tmp_path,
        [
            stream(
                0,
                queue=1,
                prefill=0.5,
                frontend=0.5,
                output=101,
                tpot=0.02,
                prompt_tokens=100,
                cached_tokens=64,
                reasoning_tokens=40,
                slo={"ttft": Verdict.GOOD, "availability": Verdict.GOOD},
            ),
            stream(
                1,
                queue=7,
                prefill=0.5,
                frontend=0.5,
                output=101,
                tpot=0.02,
                prompt_tokens=300,
                cached_tokens=0,
                prompt_repeat=True,
                body_repeat=True,
                slo={"ttft": Verdict.BAD, "availability": Verdict.GOOD},
            ),
            request(time=START, outcome=Outcome.REJECTED, e2e=0.1, prompt_repeat=False, body_repeat=False),
            request(time=START, outcome=Outcome.CLIENT_ABORT, e2e=9.0, wait_at_least=9.0),
            request(time=START, request_class="warm-up", prompt_tokens=5000),
        ],
    )
    values = {name: round(fact.value, 4) for name, _, _, fact in found.shown() if fact.value is not None}
    assert values == FIGURES


def test_what_a_log_does_not_have_is_unknown_and_says_what_gives_it(tmp_path: Path) -> None:
    found = evidence(tmp_path, [request(time=START)])
    unknown = {name: fact.origin for name, _, _, fact in found.shown() if fact.value is None}
    assert unknown["queue"] == (
        "no times of the engine: vllm serve --enable-per-request-metrics, or sidecar --engine-spans"
    )
    assert unknown["actual_hits"] == "the engine does not report it: vllm serve --enable-prompt-tokens-details"
    assert unknown["possible_hits"] == "no prefix hashes: sidecar --log-prefix-hashes"
    assert unknown["invalid_output"] == "not checked: sidecar --check-structured-output"


def repeats(count: int, **times: float) -> list[Finished]:
    """A request that an engine generated, and `count` repeated bodies with other times."""
    usual = {"queue": 0.0, "prefill": 0.5}
    first = stream(0, output=64, body_repeat=False, **usual)
    return [first, *(stream(n + 1, output=64, body_repeat=True, **(usual | times)) for n in range(count))]


def test_repeated_bodies_in_less_time_than_any_decode_look_cached(tmp_path: Path) -> None:
    found = evidence(tmp_path, repeats(9, prefill=0.0, frontend=0.002, tpot=0.0)).cached_answers
    assert (found.value, found.origin) == (
        1.0,
        "e2e_ms / completion_tokens below 4 ms, of 9 with body_repeat",
    )


@pytest.mark.parametrize(
    "times",
    [
        pytest.param({"prefill": 0.0, "frontend": 0.001}, id="a prefix cache saves no decode"),
        pytest.param({"prefill": 0.0, "frontend": 0.001, "tpot": 0.005}, id="a smaller batch, or more accepted drafts"),
    ],
)
def test_repeated_bodies_that_were_decoded_do_not(tmp_path: Path, times: dict[str, float]) -> None:
    assert evidence(tmp_path, repeats(9, **times)).cached_answers.value == 0.0


def test_short_answers_do_not_look_cached(tmp_path: Path) -> None:
    requests = [stream(n, queue=0, prefill=0, frontend=0.001, output=2, tpot=0.0, body_repeat=True) for n in range(9)]
    assert evidence(tmp_path, requests).cached_answers.value is None


def test_parts_of_ttft_are_those_of_the_requests_that_missed_it(tmp_path: Path) -> None:
    """Half of the requests, which do not wait, would hide the wait of the others in a median."""
    requests = [stream(each, queue=0, prefill=1, frontend=0, output=10) for each in range(40)]
    requests += [
        stream(each, queue=30, prefill=0.1, frontend=0, output=10, slo={"ttft": Verdict.BAD}) for each in range(20)
    ]
    found = evidence(tmp_path, requests)
    assert found.queue.value == 0
    assert found.queue_share.value == pytest.approx(30 / 30.1)
    assert found.queue_share.origin == "queue_ms, sum of 20 requests that missed an SLO on TTFT"


def test_a_response_cache_repeats_times_that_are_not_those_of_the_request(tmp_path: Path) -> None:
    requests = [stream(0, queue=1, prefill=1, frontend=0, output=101)]
    requests += [stream(each, queue=1, prefill=1, output=101, ttft=0.004, e2e=0.005) for each in range(1, 4)]
    found = evidence(tmp_path, requests)
    assert found.decode_share.value == pytest.approx(2.003 / 4.015)
    assert found.queue.origin == "queue_ms of 1 requests"
    assert found.queue_share.origin == "queue_ms, sum of 1 requests with engine times"
    assert found.engine_times.value == 0.25


def test_requests_that_a_restart_ends_do_not_show_a_slow_first_token(tmp_path: Path) -> None:
    requests = [request(time=START + each, ttft=0.1, slo={"ttft": Verdict.GOOD}) for each in range(60)]
    bad = {"ttft": Verdict.BAD, "availability": Verdict.BAD}
    requests += [request(time=START + 39, outcome=Outcome.UPSTREAM_ERROR, slo=bad) for _ in range(40)]
    found = evidence(tmp_path, requests)
    assert (found.first_token_burn.value, found.first_token_burn.origin) == (
        0.0,
        "SLO ttft: 0 of 60 bad, without failed requests",
    )
    assert found.other_burn.value == pytest.approx(1 / 0.005)
    assert found.failed_time.value == 0
    assert found.failed.origin == (
        "outcome of 100 requests; 95 % of them failed from 2027-01-15 08:00:40 to 2027-01-15 08:00:40 UTC"
    )


def test_a_stream_is_late_from_the_first_token_timeout_on(tmp_path: Path) -> None:
    requests = [stream(0, queue=wait, prefill=0, frontend=0, output=2) for wait in (59.0, 60.0, 61.0, 90.0)]
    assert evidence(tmp_path, requests).no_first_token.value == 0.5


def test_figures_are_those_of_the_chosen_time(tmp_path: Path) -> None:
    path = Path(log(tmp_path, [request(time=START + each) for each in range(10)]))
    since, until = (datetime.fromtimestamp(START + each, UTC) for each in (2, 5))
    (found,) = RequestLogEvidence([path], SPEC, since, until).classes()
    assert found.requests.value == 3
    with pytest.raises(UsageError) as refused:
        RequestLogEvidence([path], SPEC, datetime.fromtimestamp(START + 60, UTC))
    assert str(refused.value) == (
        f"--request-log: {path}: no request between --since and --until; 10 requests at other times"
    )


def test_a_file_without_requests_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text("no\nlog\n")
    with pytest.raises(UsageError) as refused:
        RequestLogEvidence([path], SPEC)
    assert str(refused.value) == (
        f"--request-log: {path}: no request in 2 lines; give files that `vllm-slo sidecar --request-log FILE` has "
        "written"
    )


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20)), min_size=1))
def test_the_concurrency_is_that_of_each_second(requests: list[tuple[int, int]]) -> None:
    levels = [
        sum(start <= at < start + length for start, length in requests)
        for at in range(min(start for start, _ in requests), max(start + length for start, length in requests))
    ]
    found = concurrency([(float(start), float(start + length)) for start, length in requests])
    assert found is not None
    assert found.mean == pytest.approx(sum(levels) / len(levels))
    assert [found.p50, found.p95] == [nearest_rank(sorted(levels), percent) for percent in (50, 95)]


def test_no_requests_have_no_concurrency() -> None:
    assert concurrency([]) is None
    assert concurrency([(1.0, 1.0)]) is None


def entry(blocks: list[int], tokens: int, **fields: Any) -> LogEntry:
    plain = {
        "time": datetime.now(UTC),
        "class": "siso",
        "stream": True,
        "outcome": "ok",
        "e2e_ms": 1.0,
        "prompt_tokens": tokens,
        "prefix_hashes": [f"{each:016x}" for each in blocks],
        "prefix_characters": len(blocks) * PREFIX_BLOCK,
    }
    return msgspec.convert({**plain, **fields}, LogEntry)


def chain(path: list[int]) -> list[int]:
    """The hashes of a prompt: each covers all blocks before it."""
    return [hash(tuple(path[: length + 1])) & (2**64 - 1) for length in range(len(path))]


@settings(max_examples=40)
@given(st.lists(st.lists(st.integers(0, 2), max_size=6), max_size=12), st.randoms())
def test_the_possible_hits_of_all_requests_do_not_depend_on_their_order(prompts: list[list[int]], random: Any) -> None:
    def total(order: list[list[int]]) -> float:
        reuse = PrefixReuse()
        return sum(reuse.tokens(entry(chain(path), 512 * len(path))) or 0.0 for path in order)

    shuffled = random.sample(prompts, len(prompts))
    distinct = {each for path in prompts for each in chain(path)}
    assert total(prompts) == pytest.approx(512 * (sum(map(len, prompts)) - len(distinct)))
    assert total(shuffled) == pytest.approx(total(prompts))


@pytest.mark.parametrize(
    "fields, tokens",
    [
        pytest.param({}, 512.0, id="one of two blocks"),
        pytest.param({"prompt_repeat": True}, 1024.0, id="the whole prompt, also what is in no whole block"),
        pytest.param({"prefix_characters": 4 * PREFIX_BLOCK}, 256.0, id="a prompt that is longer than its hashes"),
        pytest.param({"prefix_hashes": None}, None, id="no hashes"),
        pytest.param({"prompt_tokens": None}, None, id="no tokens"),
    ],
)
def test_the_reused_tokens_of_a_request(fields: dict[str, Any], tokens: float | None) -> None:
    reuse = PrefixReuse()
    assert reuse.tokens(entry([1, 2], 1024)) == 0
    assert reuse.tokens(entry([1, 3], 1024, **fields)) == tokens
