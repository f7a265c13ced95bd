"""Builds the record of a request from its plan and its response, with verdicts as in the sidecar."""

from exporters.vocabulary.slo_file import SloFile
from exporters.vocabulary.verdicts import nearest_rank
from loadgen.client.completion import CompletionResponse
from loadgen.results.record import ClientOutcome, Record
from loadgen.results.regrading import judged
from loadgen.schedule.requests import PlannedRequest


def make_record(
    request: PlannedRequest,
    response: CompletionResponse,
    slos: SloFile,
    *,
    request_id: str,
    start: float,
    dispatched: float | None,
    sent: float | None,
    closed: float,
    outcome: ClientOutcome,
    error: str | None,
    detailed: bool = False,
) -> Record:
    """The record of a request that has ended; all times and the response are on one monotonic clock.

    With `detailed`, it has the text of the answer and the gaps between chunks.
    """
    zero = start + request.due
    chunks = len(response.gaps) + (response.first is not None)
    tokens = response.completion_tokens
    if tokens is None and outcome is not ClientOutcome.OK and chunks:
        tokens = chunks  # a truncated stream has no usage: count one token per chunk, as the sidecar does
    ordered = sorted(response.gaps)
    record = Record(
        request_class=request.request_class,
        phase=request.phase,
        number=request.number,
        turn=request.turn,
        tenant=request.tenant or "",
        turns_lost=0 if outcome is ClientOutcome.OK else len(request.later),
        request_id=request_id,
        endpoint=request.endpoint,
        stream=request.stream,
        outcome=outcome,
        due=_microseconds(request.due),
        dispatched=_between(start, dispatched),
        sent=_between(start, sent),
        first_byte=_between(start, response.first_byte),
        first_choice=_between(start, response.first_choice),
        first=_between(start, response.first),
        answer=_between(start, response.answer),
        last=_between(start, response.last),
        last_choice=_between(start, response.last_choice),
        closed=_microseconds(closed - start),
        send_lag=_between(zero, dispatched),
        ttft=_between(zero, response.first),
        ttft_answer=_between(zero, response.answer),
        e2e=_microseconds(closed - zero),
        ttft_sent=_between(sent, response.first),
        ttft_answer_sent=_between(sent, response.answer),
        e2e_sent=_between(sent, closed),
        tpot=_between(response.first, response.last, tokens - 1) if tokens and tokens > 1 else None,
        tpot_vllm=_between(response.first_choice, response.last_choice, tokens - 1) if tokens and tokens > 1 else None,
        tpot_guidellm=_between(sent, response.last, tokens) if tokens else None,
        itl_p50=_microseconds(nearest_rank(ordered, 50)) if ordered else None,
        itl_p95=_microseconds(nearest_rank(ordered, 95)) if ordered else None,
        chunks=chunks,
        coalesced=response.coalesced,
        status=response.http.status,
        finish_reason=response.finish_reason,
        error=error,
        asked_prompt_tokens=request.prompt_tokens,
        max_tokens=request.max_tokens,
        prompt_tokens=response.prompt_tokens,
        completion_tokens=tokens,
        cached_tokens=response.cached_tokens,
        queue=response.queue,
        prefill=response.prefill,
        decode=response.decode,
        prompt_hash=request.prompt_hash,
        answer_hash=response.answer_hash if response.size else None,
        output_bytes=response.output_bytes if response.size else None,
        silent=len(response.silent),
        json_result=response.json_result if request.json_output and outcome is ClientOutcome.OK else None,
        text="".join(response.text) if detailed else None,
        itls=[_microseconds(gap) for gap in response.choice_gaps] if detailed else [],
    )
    return judged(record, slos, response.gaps)


def _between(begin: float | None, end: float | None, parts: int = 1) -> float | None:
    """The time between in seconds, divided by `parts`."""
    return None if begin is None or end is None else _microseconds((end - begin) / parts)


def _microseconds(seconds: float) -> float:
    return round(seconds, 6)
