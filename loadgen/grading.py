"""Builds the record of a request from its plan and its response, with verdicts as in the sidecar."""

from exporters.signals import Verdict
from exporters.slos import SloFile
from exporters.verdicts import EndedRequest, Ending, goodput, judge_request, nearest_rank
from loadgen.completion_response import CompletionResponse
from loadgen.request_plan import PlannedRequest
from loadgen.request_record import ClientOutcome, Record


def make_record(
    request: PlannedRequest,
    response: CompletionResponse,
    slos: SloFile,
    *,
    request_id: str,
    start: float,
    sent: float | None,
    closed: float,
    outcome: ClientOutcome,
    error: str | None,
) -> Record:
    """The record of a request that has ended; `start`, `sent`, `closed` and the response are on one monotonic clock."""
    first = None if response.first is None else response.first - start
    answer = None if response.answer is None else response.answer - start
    chunks = len(response.gaps) + (response.first is not None)
    tokens = response.completion_tokens
    if tokens is None and outcome is not ClientOutcome.OK and chunks:
        tokens = chunks  # a truncated stream has no usage: count one token per chunk, as the sidecar does
    ordered = sorted(response.gaps)
    ended = closed - start
    verdicts = _verdicts(request, response, slos, outcome, e2e=ended - request.due, start=start, tokens=tokens)
    return Record(
        request_class=request.request_class,
        phase=request.phase,
        number=request.number,
        turn=request.turn,
        turns_lost=0 if outcome is ClientOutcome.OK else len(request.later),
        request_id=request_id,
        endpoint=request.endpoint,
        stream=request.stream,
        outcome=outcome,
        due=_microseconds(request.due),
        sent=None if sent is None else _microseconds(sent - start),
        first=None if first is None else _microseconds(first),
        last=None if response.last is None else _microseconds(response.last - start),
        closed=_microseconds(ended),
        send_lag=None if sent is None else _microseconds(sent - start - request.due),
        ttft=None if first is None else _microseconds(first - request.due),
        ttft_answer=None if answer is None else _microseconds(answer - request.due),
        e2e=_microseconds(ended - request.due),
        itl_p50=_microseconds(nearest_rank(ordered, 50)) if ordered else None,
        itl_p95=_microseconds(nearest_rank(ordered, 95)) if ordered else None,
        chunks=chunks,
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
        slo=verdicts,
        good=goodput(verdicts.values()),
    )


def _verdicts(
    request: PlannedRequest,
    response: CompletionResponse,
    slos: SloFile,
    outcome: ClientOutcome,
    *,
    e2e: float,
    start: float,
    tokens: int | None,
) -> dict[str, Verdict]:
    sidecar_outcome = outcome.sidecar_outcome
    if sidecar_outcome is None:
        return {}  # not sent, so no SLO applies
    zero = start + request.due
    return judge_request(
        slos.slos_of(slos.classify(request.request_class, request.prompt_tokens, request.max_tokens, request.api)),
        slos.first_token_timeout,
        EndedRequest(
            stream=request.stream,
            max_tokens=request.max_tokens,
            first_token=None if response.first is None else response.first - zero,
            gaps=response.gaps,
            first_answer=None if response.answer is None else response.answer - zero,
            ending=Ending(
                at=e2e,
                outcome=sidecar_outcome,
                last_chunk=None if response.last is None else response.last - zero,
                completion_tokens=tokens,
                queue=response.queue,
                prefill=response.prefill,
                decode=response.decode,
            ),
        ),
    )


def _microseconds(seconds: float) -> float:
    return round(seconds, 6)
