"""What the client sees of a simulated response: the times of its tokens, its token counts and the engine's times."""

from compose.simulator.scheduler import Job
from loadgen.completion_response import CompletionResponse


def add_token(response: CompletionResponse, now: float) -> None:
    """A chunk of a stream."""
    if response.last is None:
        response.first = response.first_choice = response.answer = now
    else:
        response.gaps.append(now - response.last)
    response.last = response.last_choice = now


def add_all_tokens(response: CompletionResponse, count: int, now: float) -> None:
    """All chunks of a stream in one read."""
    response.first = response.first_choice = response.answer = response.last = response.last_choice = now
    response.coalesced = count - 1
    response.gaps.extend([0.0] * response.coalesced)


def complete(response: CompletionResponse, job: Job, now: float) -> None:
    """What the last event of a response, or a unary response, has."""
    response.http.status = 200
    response.finish_reason = job.finish.value
    if response.first_byte is None:
        response.first_byte = now
    response.prompt_tokens, response.completion_tokens, response.cached_tokens = (
        job.prompt_length,
        job.generated,
        job.cached,
    )
    if job.scheduled_at is not None and job.first_token_at is not None and job.last_token_at is not None:
        response.queue = job.scheduled_at - job.queued_at
        response.prefill = job.first_token_at - job.scheduled_at
        response.decode = job.last_token_at - job.first_token_at
