"""From the plan and the answer of one request to its record, judged by the SLO file as the sidecar would."""

from exporters.signals import Verdict
from exporters.slos import SloFile
from exporters.verdicts import Ending, Story, goodput, judge_story, nearest_rank
from loadgen.request_plan import Planned
from loadgen.request_record import Fate, Record
from loadgen.response import Answer


def recorded(
    planned: Planned,
    answer: Answer,
    slos: SloFile,
    *,
    request_id: str,
    start: float,
    sent: float | None,
    closed: float,
    fate: Fate,
    error: str | None,
) -> Record:
    """The record of a request that has ended; `start`, `sent`, `closed` and the answer are on one monotonic clock."""
    first = None if answer.first is None else answer.first - start
    chunks = len(answer.gaps) + (answer.first is not None)
    tokens = answer.completion_tokens
    if tokens is None and fate is not Fate.OK and chunks:
        tokens = chunks  # a stream without its end has no usage: a chunk is a token at least, as the sidecar counts
    ordered = sorted(answer.gaps)
    ended = closed - start
    verdicts = _verdicts(planned, answer, slos, fate, e2e=ended - planned.due, start=start, tokens=tokens)
    return Record(
        request_class=planned.request_class,
        phase=planned.phase,
        request_id=request_id,
        endpoint=planned.endpoint,
        stream=planned.stream,
        outcome=fate,
        due=_micro(planned.due),
        sent=None if sent is None else _micro(sent - start),
        first=None if first is None else _micro(first),
        last=None if answer.last is None else _micro(answer.last - start),
        closed=_micro(ended),
        send_lag=None if sent is None else _micro(sent - start - planned.due),
        ttft=None if first is None else _micro(first - planned.due),
        e2e=_micro(ended - planned.due),
        itl_p50=_micro(nearest_rank(ordered, 50)) if ordered else None,
        itl_p95=_micro(nearest_rank(ordered, 95)) if ordered else None,
        chunks=chunks,
        status=answer.http.status,
        finish_reason=answer.finish_reason,
        error=error,
        asked_prompt_tokens=planned.prompt_tokens,
        max_tokens=planned.max_tokens,
        prompt_tokens=answer.prompt_tokens,
        completion_tokens=tokens,
        cached_tokens=answer.cached_tokens,
        queue=answer.queue,
        prefill=answer.prefill,
        decode=answer.decode,
        slo=verdicts,
        good=goodput(verdicts.values()),
    )


def _verdicts(
    planned: Planned, answer: Answer, slos: SloFile, fate: Fate, *, e2e: float, start: float, tokens: int | None
) -> dict[str, Verdict]:
    outcome = fate.outcome
    if outcome is None:
        return {}  # never sent: no fault of the server
    zero = start + planned.due
    return judge_story(
        slos.slos_of(slos.classify(planned.request_class, planned.prompt_tokens, planned.max_tokens)),
        slos.first_token_timeout,
        Story(
            stream=planned.stream,
            max_tokens=planned.max_tokens,
            first_token=None if answer.first is None else answer.first - zero,
            gaps=answer.gaps,
            ending=Ending(
                at=e2e,
                outcome=outcome,
                last_chunk=None if answer.last is None else answer.last - zero,
                completion_tokens=tokens,
                queue=answer.queue,
                prefill=answer.prefill,
                decode=answer.decode,
            ),
        ),
    )


def _micro(seconds: float) -> float:
    return round(seconds, 6)
