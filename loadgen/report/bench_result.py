"""The result of a run with the keys of `vllm bench serve --save-result` 0.33, and our own figures under `vllm_slo`."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import groupby
from math import floor
from statistics import fmean, pstdev
from typing import Any

from exporters.vocabulary.slo_file import Measure
from loadgen.client.chunk_totals import ChunkTotals
from loadgen.results.goodput_definitions import VLLM, vllm_values
from loadgen.results.record import ClientOutcome, Record, Run
from loadgen.results.summary import Summary, slot_wait
from loadgen.schedule.phases import AtOnce, ClosedLoop, Law, OpenLoop
from loadgen.schedule.requests import CHAT

PERCENTILES = (50, 95, 99)


def bench_result(
    run: Run, summary: Summary, records: Iterable[Record], chunks: ChunkTotals, *, detailed: bool
) -> dict[str, Any]:
    """All keys that 0.33 always writes; with `detailed`, those of --save-detailed too.

    Completed are the requests that ended ok. Lists are in the order of the due times; a request without a value has 0
    there, as in vLLM, and a unary response has no TTFT, TPOT or ITL.
    """
    ordered = sorted(records, key=lambda record: (record.due, record.number))
    completed = [record for record in ordered if record.outcome is ClientOutcome.OK]
    ttfts = [value for record in completed if (value := vllm_values(record)[Measure.TTFT]) is not None]
    tpots = [record.tpot_vllm for record in completed if record.tpot_vllm is not None]
    latencies = list(map(_latency, completed))
    prompt_tokens, output_tokens = sum(map(_prompt_tokens, completed)), sum(map(_output_tokens, completed))
    gaps = chunks.gaps
    seconds = run.seconds or float("inf")
    return {
        "date": datetime.fromtimestamp(run.start, UTC).strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": (backend := _backend(ordered)),
        "backend": backend,
        "label": None,
        "model_id": run.model,
        "tokenizer_id": run.model,
        "num_prompts": len(ordered),
        "request_rate": _request_rate(run, len(ordered)),
        "burstiness": _burstiness(run),
        "max_concurrency": run.max_concurrency,
        "duration": run.seconds,
        "completed": len(completed),
        "failed": len(ordered) - len(completed),
        "total_input_tokens": prompt_tokens,
        "total_output_tokens": output_tokens,
        "request_throughput": len(completed) / seconds,
        "request_goodput": _goodput(run, summary),
        "output_throughput": output_tokens / seconds,
        "total_token_throughput": (prompt_tokens + output_tokens) / seconds,
        **(_details(ordered) if detailed else {}),
        "latencies": list(map(_latency, ordered)),
        "queue_times": [slot_wait(record) or 0.0 for record in ordered],
        "max_output_tokens_per_s": float(max(chunks.seconds.values(), default=0)),
        "max_concurrent_requests": _most_at_once(completed),
        "rtfx": 0.0,
        **_figures("ttft", ttfts),
        **_figures("tpot", tpots),
        "mean_itl_ms": gaps.mean * 1000,
        "median_itl_ms": gaps.percentile(50) * 1000,
        "std_itl_ms": gaps.deviation * 1000,
        **{f"p{percent}_itl_ms": gaps.percentile(percent) * 1000 for percent in PERCENTILES},
        **_figures("e2el", latencies),
        "vllm_slo": {"run": run, "summary": summary, "itl_histogram": gaps.to_json()},
    }


def _details(ordered: Sequence[Record]) -> dict[str, list[Any]]:
    lists: dict[str, list[Any]] = {
        "input_lens": list(map(_prompt_tokens, ordered)),
        "output_lens": [_output_tokens(record) if record.outcome is ClientOutcome.OK else 0 for record in ordered],
        "ttfts": [vllm_values(record)[Measure.TTFT] or 0.0 for record in ordered],
        "itls": [record.itls for record in ordered],
        "start_times": [record.sent or 0.0 for record in ordered],
        "generated_texts": [record.text or "" for record in ordered],
        "errors": ["" if record.outcome is ClientOutcome.OK else record.error or record.outcome for record in ordered],
    }
    if any(record.queue is not None or record.prefill is not None for record in ordered):
        lists["server_queue_times"] = [record.queue for record in ordered]
        lists["server_ttfts"] = [record.prefill for record in ordered]
    return lists


def _latency(record: Record) -> float:
    """Time from sending to the last chunk with a choice, or to the end of a unary response; 0 for a failed request."""
    if record.outcome is not ClientOutcome.OK:
        return 0.0
    return (vllm_values(record)[Measure.E2E] if record.stream else record.e2e_sent) or 0.0


def _prompt_tokens(record: Record) -> int:
    return record.asked_prompt_tokens if record.prompt_tokens is None else record.prompt_tokens


def _output_tokens(record: Record) -> int:
    return record.completion_tokens or record.chunks


def _backend(records: Sequence[Record]) -> str:
    """The client's name in vLLM; both names if both were used."""
    return ",".join(sorted({"openai-chat" if record.endpoint == CHAT else "openai" for record in records}))


def _request_rate(run: Run, offered: int) -> float | str:
    """The mean planned rate; "inf" if all requests were sent at once or by users."""
    if all(isinstance(phase, AtOnce | ClosedLoop) for phase in run.phases):
        return "inf"
    planned = [piece for phase in run.phases for piece in phase.pieces]
    if not planned:  # a replay
        return offered / sum(phase.duration for phase in run.phases)
    return sum(piece.events for piece in planned) / sum(piece.seconds for piece in planned)


def _burstiness(run: Run) -> float | None:
    """None if the phases differ, and for constant gaps, which vLLM does not have."""
    rates = [phase for phase in run.phases if isinstance(phase, OpenLoop)]
    shapes = {None if phase.arrivals is Law.CONSTANT else phase.burstiness for phase in rates}
    shapes |= {1.0} if len(rates) < len(run.phases) else set()
    return shapes.pop() if len(shapes) == 1 else None


def _goodput(run: Run, summary: Summary) -> float | None:
    """None without an SLO on TTFT, TPOT or E2E, as without --goodput."""
    if not any(slo.signal in {Measure.TTFT, Measure.TPOT, Measure.E2E} for slo in run.slos):
        return None
    return next(row.per_second for row in summary.goodput if row.tool == VLLM)


def _most_at_once(completed: Sequence[Record]) -> int:
    """Requests that were open in the same second of the run, also if one ended before another began."""
    changes = [
        (second, change)
        for record in completed
        if record.sent is not None
        for second, change in ((floor(record.sent), 1), (floor(record.sent + _latency(record)) + 1, -1))
    ]
    most = current = 0
    for _, together in groupby(sorted(changes), key=lambda change: change[0]):
        current += sum(change for _, change in together)
        most = max(most, current)
    return most


def _figures(name: str, seconds: Sequence[float]) -> dict[str, float]:
    """Statistics in milliseconds; 0 without a value."""
    ordered = sorted(value * 1000 for value in seconds) or [0.0]
    return {
        f"mean_{name}_ms": fmean(ordered),
        f"median_{name}_ms": _percentile(ordered, 50),
        f"std_{name}_ms": pstdev(ordered),
        **{f"p{percent}_{name}_ms": _percentile(ordered, percent) for percent in PERCENTILES},
    }


def _percentile(ordered: Sequence[float], percent: int) -> float:
    """Interpolated linearly, as by numpy, which vLLM uses."""
    index, rest = divmod((len(ordered) - 1) * percent, 100)
    above = ordered[min(index + 1, len(ordered) - 1)]
    return ordered[index] + (above - ordered[index]) * rest / 100
