"""bench.json: the keys of `vllm bench serve --save-result`, and what they mean."""

from typing import Any

import pytest

from exporters.vocabulary.signals import Verdict
from loadgen.client.chunk_totals import ChunkTotals
from loadgen.client.completion import CompletionResponse
from loadgen.report.bench_result import bench_result
from loadgen.results.record import ClientOutcome, Objective, Record
from loadgen.results.summary import summarise
from loadgen.schedule.phases import ClosedLoop, Law, Phase, Replay, Steady
from loadgen.schedule.requests import COMPLETIONS
from tests.loadgen.load_records import record, run

# Of a result that vllm bench serve wrote with --save-detailed and --percentile-metrics ttft,tpot,itl,e2el.
SETTINGS = "date endpoint_type backend label model_id tokenizer_id num_prompts request_rate burstiness max_concurrency"
COUNTS = "duration completed failed total_input_tokens total_output_tokens"
RATES = "request_throughput request_goodput output_throughput total_token_throughput"
PEAKS = "max_output_tokens_per_s max_concurrent_requests rtfx"
FIGURES = {
    f"{figure}_{signal}_ms"
    for figure in ("mean", "median", "std", "p50", "p95", "p99")
    for signal in ("ttft", "tpot", "itl", "e2el")
}
USUAL = {*f"{SETTINGS} {COUNTS} {RATES} {PEAKS} latencies queue_times".split(), *FIGURES, "vllm_slo"}
DETAILED = {"input_lens", "output_lens", "ttfts", "itls", "start_times", "generated_texts", "errors"}

TTFT, TPOT = Objective("ttft", "ttft", 1.0, 0.95), Objective("tpot", "tpot", 0.5, 0.95)


def stream(number: int, sent: float, ttft: float, gaps: list[float], **changes: Any) -> Record:
    """A stream of chunks with a choice at these gaps, one token each but for the first, an empty one with the role."""
    last = sent + ttft + sum(gaps)
    usual: dict[str, Any] = {
        "number": number,
        "due": sent - 0.5,
        "dispatched": sent - 0.25,
        "sent": sent,
        "first_choice": sent + ttft,
        "last_choice": last,
        "closed": last + 0.125,
        "completion_tokens": len(gaps),
        "prompt_tokens": 20,
        "tpot_vllm": sum(gaps) / (len(gaps) - 1) if len(gaps) > 1 else None,
        "slo": {"ttft": Verdict.GOOD, "tpot": Verdict.GOOD},
        "itls": gaps,
        "text": "x" * len(gaps),
    }
    return record(**(usual | changes))


RECORDS = [
    stream(0, 1.0, 0.5, [0.0, 0.25, 0.25], completion_tokens=3),
    stream(1, 1.5, 1.5, [0.5, 0.5], completion_tokens=2),
    stream(2, 4.0, 0.25, [0.0], completion_tokens=1),
    record(number=3, due=4.0, dispatched=4.0, sent=4.0, outcome=ClientOutcome.REJECTED, error="too many"),
    record(number=4, due=5.0, outcome=ClientOutcome.NOT_SENT, sent=None),
]


def result(*records: Record, detailed: bool = False, **changes: Any) -> dict[str, Any]:
    chunks = ChunkTotals()
    for each in records:
        if each.outcome is ClientOutcome.OK and each.first_choice is not None:
            chunks.add(each.first_choice, each.itls)
    made = run(seconds=10.0, start=1_700_000_000.0, slos=[TTFT, TPOT], **changes)
    return bench_result(made, summarise(made, records), records, chunks, detailed=detailed)


def test_it_has_every_key_of_vllm_and_one_of_its_own() -> None:
    assert result(*RECORDS).keys() == USUAL
    assert result(*RECORDS, detailed=True).keys() == USUAL | DETAILED
    assert result().keys() == USUAL  # also of a run without a request


def test_server_times_are_there_if_the_engine_reported_any() -> None:
    timed = stream(5, 6.0, 0.5, [0.0], queue=0.25, prefill=0.125)
    made = result(RECORDS[0], timed, detailed=True)
    assert (made["server_queue_times"], made["server_ttfts"]) == ([None, 0.25], [None, 0.125])


def test_the_figures_count_from_sending_and_completed_requests_only() -> None:
    made = result(*RECORDS)
    assert {key: made[key] for key in (*COUNTS.split(), *RATES.split(), "num_prompts")} == {
        "num_prompts": 5,
        "duration": 10.0,
        "completed": 3,
        "failed": 2,
        "total_input_tokens": 60,
        "total_output_tokens": 6,
        "request_throughput": 0.3,
        "output_throughput": 0.6,
        "total_token_throughput": 6.6,
        # one is late, one is slow; the TPOT of a single token counts as met
        "request_goodput": 0.2,
    }
    # TTFT 0.5, 1.5 and 0.25 s; percentiles are interpolated
    assert made["mean_ttft_ms"] == 750
    assert made["median_ttft_ms"] == made["p50_ttft_ms"] == 500
    assert made["p95_ttft_ms"] == pytest.approx(1400)
    assert made["std_ttft_ms"] == pytest.approx(540.06, abs=0.01)
    # TPOT 0.5 / 2 and 1 / 1; none for a single token
    assert (made["mean_tpot_ms"], made["median_tpot_ms"], made["p99_tpot_ms"]) == (625, 625, pytest.approx(992.5))
    # ITL over all gaps of all requests: 0, 0, 0.25, 0.25, 0.5, 0.5
    assert made["mean_itl_ms"] == 250
    assert made["median_itl_ms"] == pytest.approx(250, rel=0.01)
    assert made["p99_itl_ms"] == pytest.approx(500, rel=0.01)
    # from sending to the last chunk: 1, 2.5 and 0.25 s
    assert (made["median_e2el_ms"], made["latencies"]) == (1000, [1.0, 2.5, 0.25, 0.0, 0.0])
    assert made["queue_times"] == [0.25, 0.25, 0.25, 0.0, 0.0]


def test_peaks_are_of_whole_seconds() -> None:
    made = result(*RECORDS)
    # chunks at 1.5, 1.5, 1.75, 2.0; 3.0, 3.5, 4.0; 4.25, 4.25
    assert made["max_output_tokens_per_s"] == 3
    # open from 1 to 2, from 1.5 to 4 and from 4 to 4.25
    assert made["max_concurrent_requests"] == 2


def test_the_lists_of_each_request_are_in_the_order_of_the_due_times() -> None:
    made = result(*reversed(RECORDS), detailed=True)
    assert {key: made[key] for key in DETAILED} == {
        "input_lens": [20, 20, 20, 10, 10],
        "output_lens": [3, 2, 1, 0, 0],
        "ttfts": [0.5, 1.5, 0.25, 0.0, 0.0],
        "itls": [[0.0, 0.25, 0.25], [0.5, 0.5], [0.0], [], []],
        "start_times": [1.0, 1.5, 4.0, 4.0, 0.0],
        "generated_texts": ["xxx", "xx", "x", "", ""],
        "errors": ["", "", "", "too many", "not_sent"],
    }


def test_a_unary_response_has_an_end_to_end_latency_only() -> None:
    unary = record(stream=False, endpoint=COMPLETIONS, e2e_sent=2.0, completion_tokens=5, slo={})
    made = result(unary)
    assert (made["median_e2el_ms"], made["mean_ttft_ms"], made["completed"], made["backend"]) == (2000, 0, 1, "openai")
    assert result(unary, RECORDS[0])["backend"] == "openai,openai-chat"


@pytest.mark.parametrize(
    "phases, rate, burstiness",
    [
        pytest.param([Steady("a", 10, 2), Steady("b", 30, 4)], 3.5, 1.0, id="mean rate"),
        pytest.param([Steady("a", 10, 2, arrivals=Law.GAMMA, burstiness=0.5)], 2, 0.5, id="gamma"),
        pytest.param([Steady("a", 10, 2, arrivals=Law.CONSTANT)], 2, None, id="constant"),
        pytest.param([ClosedLoop("a", 10, users=4)], "inf", 1.0, id="users"),
        pytest.param([Replay("a", 10)], 0.5, 1.0, id="replay"),
    ],
)
def test_the_rate_is_the_planned_one(phases: list[Phase], rate: float | str, burstiness: float | None) -> None:
    made = result(*RECORDS, phases=phases, max_concurrency=8)
    assert (made["request_rate"], made["burstiness"], made["max_concurrency"]) == (rate, burstiness, 8)


def test_gaps_between_choices_include_chunks_without_output() -> None:
    response = CompletionResponse()
    response.silent = [1.0, 2.5, 4.0]  # the role, an incomplete character, the finish reason
    response.first, response.last = 2.0, 3.0
    response.gaps.append(1.0)
    assert list(response.choice_gaps) == [1.0, 0.5, 0.5, 1.0]
    response.silent = []
    assert list(response.choice_gaps) == [1.0]
