"""A load against the simulator's scheduler in virtual time: no process, no clock, the same records each time."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial
from heapq import heappop, heappush
from itertools import count

from msgspec import structs

from compose.experiments.cells.virtual_engine import Answer, VirtualEngine
from compose.experiments.cells.virtual_fleet import VirtualFleet
from compose.simulator.api.response_cache import HIT_SECONDS
from compose.simulator.engine.job import Job
from compose.simulator.engine.request import RequestError
from compose.simulator.engine.scheduler import Scheduler, Step
from exporters.vocabulary.slo_file import SloFile
from exporters.vocabulary.verdicts import outcome_of_status
from loadgen.client.completion import CompletionResponse
from loadgen.client.grading import make_record
from loadgen.results.record import ClientOutcome, Record
from loadgen.schedule.phases import ClosedLoop, Phase, timeline
from loadgen.schedule.requests import USER_PAUSE, PlannedRequest, Schedule

MAX_OPEN = 5000
"""Open requests above which requests are not sent, as by default in the load generator."""
UNREACHABLE = 502
"""The status of the sidecar's response when it cannot reach the engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualLoad:
    """What is sent and how it is judged; `timeout` in seconds from the due time of a request; `timeouts` by class.

    `outage` has begin and end of an outage of all engines, in seconds since the start.
    """

    schedule: Schedule
    phases: Sequence[Phase]
    slos: SloFile
    timeout: float
    timeouts: Mapping[str, float]
    max_concurrency: int | None
    outage: tuple[float, float] | None = None


@dataclass(slots=True, eq=False)
class _Exchange:
    """An open request; `ended` continues its user."""

    request: PlannedRequest
    response: CompletionResponse
    ended: Callable[[ClientOutcome], None]
    has_slot: bool = False
    sent: float | None = None
    engine: VirtualEngine | None = None
    answer: Answer | None = None


class _Order(IntEnum):
    """The order of events at the same time."""

    STEP_ENDS = 0
    EVENT = 1
    STEP_BEGINS = 2


class VirtualRun:
    """Runs one load; `on_step` is called with each step and the scheduler of its engine after it."""

    def __init__(
        self,
        fleet: VirtualFleet,
        load: VirtualLoad,
        on_record: Callable[[Record, CompletionResponse], None],
        on_step: Callable[[Step, Scheduler], None],
    ) -> None:
        self.now = 0.0
        self._fleet = fleet
        self._down = False
        self._load = load
        self._on_record = on_record
        self._on_step = on_step
        self._until = sum(phase.duration for phase in load.phases)
        self._events: list[tuple[float, _Order, int, Callable[[], None]]] = []
        self._numbers = count()
        self._open: set[_Exchange] = set()
        self._jobs: dict[Job, _Exchange] = {}
        self._slots = load.max_concurrency
        self._waiting: deque[_Exchange] = deque()  # for a slot
        self._ended = 0.0

    def run(self) -> float:
        """Send everything and wait until all requests have ended; returns the length of the run in seconds."""
        if self._load.outage is not None:
            begin, end = self._load.outage
            self._at(begin, self._stop_engine)
            self._at(end, self._start_engine)
        for phase, start, end in timeline(self._load.phases):
            if not isinstance(phase, ClosedLoop):
                continue
            users = self._load.schedule.users(phase)
            for _ in range(phase.users):
                self._at(start, partial(self._next_of_user, users, phase, end))
        self._next_arrival(iter(self._load.schedule))
        while self._events:
            time, _, _, action = heappop(self._events)
            self.now = max(self.now, time)
            action()
        return max(self._ended, self._until)  # the last events may be timeouts of requests that have ended

    def _at(self, time: float, action: Callable[[], None], order: _Order = _Order.EVENT) -> None:
        heappush(self._events, (time, order, next(self._numbers), action))

    def _begin_step(self, engine: VirtualEngine) -> None:
        step = engine.scheduler.step(self.now)
        engine.busy = step is not None
        if step is not None:
            self._at(step.ends_at, partial(self._end_step, engine, step), _Order.STEP_ENDS)

    def _end_step(self, engine: VirtualEngine, step: Step) -> None:
        self._deliver(step)
        self._on_step(step, engine.scheduler)
        self._at(self.now, partial(self._begin_step, engine), _Order.STEP_BEGINS)

    def _next_arrival(self, requests: Iterator[PlannedRequest]) -> None:
        request = next(requests, None)
        if request is not None:

            def arrive() -> None:
                self._next_arrival(requests)
                self._send(request, lambda _: None)

            self._at(request.due, arrive)

    def _next_of_user(self, requests: Iterator[PlannedRequest], phase: ClosedLoop, end: float) -> None:
        """A user of a closed loop: the next request is due when the response of the last one has ended."""
        if self.now >= end:
            return

        def ended(outcome: ClientOutcome) -> None:
            pause = phase.think_time if outcome is ClientOutcome.OK else max(phase.think_time, USER_PAUSE)
            self._at(self.now + pause, partial(self._next_of_user, requests, phase, end))

        self._send(structs.replace(next(requests), due=self.now), ended)

    def _send(self, request: PlannedRequest, ended: Callable[[ClientOutcome], None]) -> None:
        exchange = _Exchange(request, CompletionResponse(), ended)
        if len(self._open) >= MAX_OPEN:
            self._end(exchange, ClientOutcome.NOT_SENT, f"{MAX_OPEN} requests are open")
            return
        self._open.add(exchange)
        timeout = self._load.timeouts.get(request.request_class, self._load.timeout)
        self._at(request.due + timeout, partial(self._time_out, exchange))
        if self._slots == 0:
            self._waiting.append(exchange)
            return
        if self._slots is not None:
            self._slots -= 1
        exchange.has_slot = True
        self._submit(exchange)

    def _submit(self, exchange: _Exchange) -> None:
        """Give a request that has a slot of the concurrency limit to an engine."""
        if exchange not in self._open:  # timed out at the time at which it got its slot
            return
        exchange.sent = self.now
        if delay := self._fleet.request_seconds:
            self._at(self.now + delay, partial(self._reach_engine, exchange))
        else:
            self._reach_engine(exchange)

    def _reach_engine(self, exchange: _Exchange) -> None:
        if exchange not in self._open:  # timed out on the way
            return
        if self._down:
            self._fail(exchange)
            return
        exchange.engine = engine = self._fleet.route(exchange.request)
        engine.open += 1
        answer = engine.cached(exchange.request)
        if answer is not None:
            self._at(self.now + HIT_SECONDS, partial(self._replay, exchange, answer))
            return
        try:
            exchange.answer = answer = engine.submit(exchange.request, self.now)
        except RequestError as error:
            exchange.response.http.status = error.code
            self._end(exchange, ClientOutcome(outcome_of_status(error.code)), str(error))
            return
        if exchange.request.stream:
            exchange.response.http.status = 200
            exchange.response.first_byte = self.now
        self._jobs[answer.job] = exchange
        if not engine.busy:
            engine.busy = True
            self._at(self.now, partial(self._begin_step, engine), _Order.STEP_BEGINS)

    def _replay(self, exchange: _Exchange, answer: Answer) -> None:
        """The whole response of an earlier request at once, with the token counts and engine times of then."""
        if exchange not in self._open:
            return
        exchange.answer, response = answer, exchange.response
        if exchange.request.stream:
            _add_all_tokens(response, answer.chunks, self.now)
        _complete(response, answer.job, self.now)
        self._end(exchange, ClientOutcome.OK, None)

    def _stop_engine(self) -> None:
        self._down = True
        for exchange in [*self._jobs.values()]:
            self._fail(exchange)

    def _start_engine(self) -> None:
        self._down = False
        for engine in self._fleet.engines:
            engine.start()

    def _fail(self, exchange: _Exchange) -> None:
        """The engine is down: a stream ends without its end, other requests get an error of the sidecar."""
        self._abort(exchange)
        if exchange.response.http.status is not None:
            self._end(exchange, ClientOutcome.TRUNCATED, "the response is incomplete")
            return
        exchange.response.http.status = UNREACHABLE
        self._end(exchange, ClientOutcome(outcome_of_status(UNREACHABLE)), f"status {UNREACHABLE}")

    def _deliver(self, step: Step) -> None:
        """End the requests whose last token is of this step."""
        for token in step.tokens:
            exchange = None if token.finish is None else self._jobs.get(token.job)
            if exchange is None or exchange.answer is None or exchange.engine is None:  # timed out during the step
                continue
            _complete(exchange.response, token.job, self.now)
            exchange.engine.keep(exchange.request, replace(exchange.answer, chunks=token.job.chunks))
            self._end(exchange, ClientOutcome.OK, None)

    def _time_out(self, exchange: _Exchange) -> None:
        if exchange not in self._open:
            return
        if exchange.sent is None:
            if not exchange.has_slot:
                self._waiting.remove(exchange)
            error = f"no slot of max_concurrency {self._load.max_concurrency} in time"
            self._end(exchange, ClientOutcome.NOT_SENT, error)
            return
        self._abort(exchange)
        self._end(exchange, ClientOutcome.TIMEOUT, None)

    def _abort(self, exchange: _Exchange) -> None:
        if exchange.answer is not None and exchange.engine is not None:
            exchange.engine.scheduler.abort(exchange.answer.job)

    def _end(self, exchange: _Exchange, outcome: ClientOutcome, error: str | None) -> None:
        """Record a request, give its slot to the next one, and continue its conversation or its user."""
        request, response = exchange.request, exchange.response
        self._ended = self.now
        opened = exchange in self._open
        self._open.discard(exchange)
        if exchange.engine is not None:
            exchange.engine.open -= 1
        # An answer of the response cache has no job in the engine.
        if exchange.answer is not None and self._jobs.pop(exchange.answer.job, None) is not None and request.stream:
            _add_tokens(response, exchange.answer.job, self.now)
        record = make_record(
            request,
            response,
            self._load.slos,
            request_id=f"load-{next(self._fleet.request_ids):024x}",
            start=0.0,
            dispatched=request.due if opened else None,
            sent=exchange.sent,
            closed=self.now,
            outcome=outcome,
            error=error,
        )
        self._on_record(record, response)
        if exchange.has_slot and self._slots is not None:
            if self._waiting:
                successor = self._waiting.popleft()
                successor.has_slot = True
                self._at(self.now, partial(self._submit, successor))
            else:
                self._slots += 1
        following = None
        if outcome is ClientOutcome.OK and exchange.answer is not None and request.later:
            completion = exchange.answer.completion
            following = request.next_turn(completion.text(completion.length), completion.length, self.now)
        if following is not None and following.due < self._until:
            self._at(following.due, partial(self._send, following, exchange.ended))
        else:
            exchange.ended(outcome)


def _add_tokens(response: CompletionResponse, job: Job, now: float) -> None:
    """The chunks of a stream that have arrived."""
    first, last, response.gaps = job.sent_until(now)
    response.first = response.first_choice = response.answer = first
    response.last = response.last_choice = last


def _add_all_tokens(response: CompletionResponse, count: int, now: float) -> None:
    """All chunks of a stream in one read."""
    response.first = response.first_choice = response.answer = response.last = response.last_choice = now
    response.coalesced = count - 1
    response.gaps.extend([0.0] * response.coalesced)


def _complete(response: CompletionResponse, job: Job, now: float) -> None:
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
