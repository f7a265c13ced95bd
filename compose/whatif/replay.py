"""Replays recorded traffic against the engines of a combination in virtual time: no client, no HTTP, no tokens."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from math import ceil, inf

from compose.experiments.cells.virtual_engine import VirtualEngine
from compose.experiments.cells.virtual_fleet import Router
from compose.simulator.engine.job import FinishReason, Job
from compose.simulator.engine.request import RequestError
from compose.simulator.engine.scheduler import Step
from compose.whatif.combinations import Combination
from compose.whatif.recorded_traffic import RecordedRequest, RecordedTraffic
from exporters.records.messages import PREFIX_BLOCK
from exporters.vocabulary.signals import Outcome
from exporters.vocabulary.verdicts import EndedRequest, Ending
from loadgen.results.record import elapsed

OnEnd = Callable[[RecordedRequest, EndedRequest], None]
"""Gets a request and what it got; `completion_tokens` without end are the chunks that have arrived."""


@dataclass(slots=True, eq=False)
class _Open:
    """A request at an engine; `due` is the time at which the client sends it, in seconds since the first."""

    request: RecordedRequest
    due: float
    engine: VirtualEngine
    job: Job


class _Replay:
    def __init__(self, combination: Combination, traffic: RecordedTraffic, timeout: float, on_end: OnEnd) -> None:
        pool, flags, preset = combination.pool, combination.flags, combination.preset
        self._router = Router(pool, flags, preset)
        self._flags = flags
        self._traffic = traffic
        self._delay = preset.request_seconds
        self._timeout = timeout
        self._on_end = on_end
        self._arrivals = self._all_arrivals()
        self._jobs: dict[Job, _Open] = {}
        self._timeouts: deque[_Open] = deque()  # in their order, also of requests that have ended
        # Time, whether a step begins, number, engine, the step that ends; arrivals and timeouts come between the two.
        self._steps: list[tuple[float, bool, int, VirtualEngine, Step | None]] = []
        self._numbers = count()
        self._own_blocks = 0  # hashes of blocks that no other request has are negative numbers

    def run(self) -> float:
        """Run until all requests have ended; returns the time of the last event in seconds."""
        steps, now = self._steps, 0.0
        arrival = next(self._arrivals, None)
        while True:
            while self._timeouts and self._timeouts[0].job not in self._jobs:
                self._timeouts.popleft()
            reaches = arrival[0] if arrival else inf
            times_out = self._timeouts[0].due + self._timeout if self._timeouts else inf
            event = min(reaches, times_out)
            if steps and (steps[0][0] < event or (steps[0][0] == event and not steps[0][1])):
                now, _, _, engine, step = heappop(steps)
                if step is not None:
                    self._end_step(step, now)
                if step is not None and now == event:
                    self._at(now, engine, None)
                else:
                    self._begin_step(engine, now, event)
            elif arrival and reaches <= times_out:
                now = reaches
                self._submit(*arrival)
                arrival = next(self._arrivals, None)
            elif self._timeouts:
                now = times_out
                late = self._timeouts.popleft()
                late.engine.scheduler.abort(late.job)
                self._end(late, now, Outcome.CLIENT_ABORT)
            else:
                return now

    def _at(self, time: float, engine: VirtualEngine, step: Step | None) -> None:
        heappush(self._steps, (time, step is None, next(self._numbers), engine, step))

    def _all_arrivals(self) -> Iterator[tuple[float, RecordedRequest]]:
        start = self._traffic.requests[0].time
        for request in self._traffic.requests:
            yield request.time - start + self._delay, request

    def _submit(self, now: float, request: RecordedRequest) -> None:
        try:
            output = self._router.engines[0].check(request.prompt_tokens, request.output_tokens)
        except RequestError:
            refused = Ending(at=self._delay, outcome=Outcome.CLIENT_ERROR)
            self._on_end(request, EndedRequest(request.stream, refused, max_tokens=request.output_tokens))
            return
        prompt, flags = request.prompt_tokens, self._flags
        shared = self._shared_blocks(request) if flags.enable_prefix_caching else []
        own = (prompt + output) // flags.block_size - len(shared) if flags.enable_prefix_caching else 0
        self._own_blocks -= own
        hashes = [*shared, *range(self._own_blocks, self._own_blocks + own)]
        engine = self._router.route(prompt, lambda: shared)
        job = Job([], prompt, output, FinishReason.LENGTH, None, hashes=hashes, shared=len(shared))
        self._jobs[job] = opened = _Open(request, now - self._delay, engine, job)
        self._timeouts.append(opened)
        engine.open += 1
        engine.scheduler.submit(job, now)
        if not engine.busy:
            engine.busy = True
            self._at(now, engine, None)

    def _shared_blocks(self, request: RecordedRequest) -> list[int]:
        """The hashes of the first blocks of a prompt, equal for equal prefixes."""
        size, characters = self._flags.block_size, self._traffic.characters_per_token
        whole = len(request.prefix)
        known = min(request.prompt_tokens, int(whole * PREFIX_BLOCK / characters))
        ends = range(size, known + 1, size)
        # The last end may round up to a block that there is not.
        return [hash((request.prefix[min(whole, ceil(end * characters / PREFIX_BLOCK)) - 1], end)) for end in ends]

    def _begin_step(self, engine: VirtualEngine, now: float, until: float) -> None:
        step = engine.scheduler.step(engine.scheduler.skip(now, until))
        engine.busy = step is not None
        if step is not None:
            self._at(step.ends_at, engine, step)

    def _end_step(self, step: Step, now: float) -> None:
        for token in step.tokens:
            opened = None if token.finish is None else self._jobs.get(token.job)
            if opened is not None:  # else it timed out during the step
                self._end(opened, now, Outcome.OK)

    def _end(self, opened: _Open, now: float, outcome: Outcome) -> None:
        request, due, job = opened.request, opened.due, opened.job
        del self._jobs[job]
        opened.engine.open -= 1
        first, last, gaps = job.sent_until(now) if request.stream else (None, None, ())
        complete = outcome is Outcome.OK
        first_token = None if first is None else first - due
        self._on_end(
            request,
            EndedRequest(
                request.stream,
                Ending(
                    at=now - due,
                    outcome=outcome,
                    last_chunk=None if last is None else last - due,
                    completion_tokens=job.generated if complete else (first is not None) + len(gaps) or None,
                    queue=elapsed(job.queued_at, job.scheduled_at) if complete else None,
                    prefill=elapsed(job.scheduled_at, job.first_token_at) if complete else None,
                    decode=elapsed(job.first_token_at, job.last_token_at) if complete else None,
                ),
                max_tokens=request.output_tokens,
                first_token=first_token,
                gaps=gaps,
                first_answer=first_token,
            ),
        )


def replay(combination: Combination, traffic: RecordedTraffic, timeout: float, on_end: OnEnd) -> float:
    """Give each request that ends to `on_end`; clients give up after `timeout` seconds.

    Returns the seconds until the last has ended.
    """
    return max(_Replay(combination, traffic, timeout, on_end).run(), traffic.seconds)
