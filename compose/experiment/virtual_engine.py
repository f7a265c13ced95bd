"""A load against the simulator's scheduler in virtual time: no process, no clock, the same records each time."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random

from msgspec import structs

from compose.simulator.completion import Completion, draw_completion
from compose.simulator.engine_flags import EngineFlags
from compose.simulator.engine_request import RequestError, ServedModel
from compose.simulator.presets import Preset
from compose.simulator.scheduler import Job, Scheduler, Step
from compose.simulator.tokenizer import encode, encode_chat
from exporters.slos import SloFile
from exporters.verdicts import outcome_of_status
from loadgen.arrivals import Phase, timeline
from loadgen.completion_response import CompletionResponse
from loadgen.grading import make_record
from loadgen.request_plan import CHAT, USER_PAUSE, PlannedRequest, Schedule
from loadgen.request_record import ClientOutcome, Record

MAX_OPEN = 5000
"""Open requests above which requests are not sent, as by default in the load generator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualLoad:
    """What is sent and how it is judged; `timeout` in seconds from the due time of a request."""

    schedule: Schedule
    phases: Sequence[Phase]
    slos: SloFile
    timeout: float
    max_concurrency: int | None


@dataclass(slots=True, eq=False)
class _Exchange:
    """An open request; `ended` continues its user."""

    request: PlannedRequest
    response: CompletionResponse
    ended: Callable[[ClientOutcome], None]
    has_slot: bool = False
    sent: float | None = None
    job: Job | None = None
    completion: Completion | None = None


class VirtualEngine:
    """Runs one load; `steps` is called with each step and the scheduler after it."""

    def __init__(
        self,
        flags: EngineFlags,
        preset: Preset,
        load: VirtualLoad,
        on_record: Callable[[Record, CompletionResponse], None],
        on_step: Callable[[Step, Scheduler], None],
    ) -> None:
        self.now = 0.0
        self._scheduler = Scheduler(flags, preset)
        self._random = Random(flags.seed)  # noqa: S311 - repeatable, not secret
        self._served = ServedModel(preset.model, flags.max_model_len, self._random)
        self._load = load
        self._on_record = on_record
        self._on_step = on_step
        self._until = sum(phase.duration for phase in load.phases)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._open: set[_Exchange] = set()
        self._jobs: dict[Job, _Exchange] = {}
        self._slots = load.max_concurrency
        self._waiting: deque[_Exchange] = deque()  # for a slot
        self._ids = count()
        self._ended = 0.0

    def run(self) -> float:
        """Send everything and wait until all requests have ended; returns the length of the run in seconds."""
        for phase, start, end in timeline(self._load.phases):
            users = self._load.schedule.users(phase)
            for _ in range(phase.users or 0):
                self._at(start, partial(self._next_of_user, users, phase, end))
        self._next_arrival(iter(self._load.schedule))
        while True:
            self._fire(self.now, inclusive=True)
            step = self._scheduler.step(self.now)
            if step is None:
                if not self._events:
                    return max(self._ended, self._until)  # later events are timeouts of requests that have ended
                self.now = self._events[0][0]
                continue
            self._fire(step.ends_at, inclusive=False)
            self.now = step.ends_at
            self._deliver(step)
            self._on_step(step, self._scheduler)

    def _at(self, time: float, action: Callable[[], None]) -> None:
        heappush(self._events, (time, next(self._numbers), action))

    def _fire(self, until: float, *, inclusive: bool) -> None:
        """Run the events before `until`, at their own times."""
        while self._events and (self._events[0][0] < until or (inclusive and self._events[0][0] <= until)):
            time, _, action = heappop(self._events)
            self.now = max(self.now, time)
            action()

    def _next_arrival(self, requests: Iterator[PlannedRequest]) -> None:
        request = next(requests, None)
        if request is not None:

            def arrive() -> None:
                self._next_arrival(requests)
                self._send(request, lambda _: None)

            self._at(request.due, arrive)

    def _next_of_user(self, requests: Iterator[PlannedRequest], phase: Phase, end: float) -> None:
        """A user of a closed loop: the next request is due when the response of the last one has ended."""
        if self.now >= end:
            return

        def ended(outcome: ClientOutcome) -> None:
            pause = phase.think_time or 0.0
            if outcome is not ClientOutcome.OK:
                pause = max(pause, USER_PAUSE)
            self._at(self.now + pause, partial(self._next_of_user, requests, phase, end))

        self._send(structs.replace(next(requests), due=self.now), ended)

    def _send(self, request: PlannedRequest, ended: Callable[[ClientOutcome], None]) -> None:
        exchange = _Exchange(request, CompletionResponse(), ended)
        if len(self._open) >= MAX_OPEN:
            self._end(exchange, ClientOutcome.NOT_SENT, f"{MAX_OPEN} requests are open")
            return
        self._open.add(exchange)
        self._at(request.due + self._load.timeout, partial(self._time_out, exchange))
        if self._slots == 0:
            self._waiting.append(exchange)
            return
        if self._slots is not None:
            self._slots -= 1
        exchange.has_slot = True
        self._submit(exchange)

    def _submit(self, exchange: _Exchange) -> None:
        """Give a request that has a slot of the concurrency limit to the engine."""
        if exchange not in self._open:  # timed out at the time at which it got its slot
            return
        request, exchange.sent = exchange.request, self.now
        tokens = _prompt(request)
        try:
            length = self._served.max_tokens(tokens, request.max_tokens, "max_tokens")
        except RequestError as error:
            exchange.response.http.status = error.code
            self._end(exchange, ClientOutcome(outcome_of_status(error.code)), str(error))
            return
        if request.stream:
            exchange.response.http.status = 200
            exchange.response.first_byte = self.now
        exchange.completion = completion = draw_completion(
            self._random, max_tokens=length, min_tokens=0, ignore_eos=True
        )
        exchange.job = Job(
            tokens=tokens,
            prompt_length=len(tokens),
            output_length=completion.length,
            finish=completion.finish,
            generate=completion.token,
        )
        self._jobs[exchange.job] = exchange
        self._scheduler.submit(exchange.job, self.now)

    def _deliver(self, step: Step) -> None:
        """Hand the tokens of a step to their requests."""
        for token in step.tokens:
            exchange = self._jobs.get(token.job)
            if exchange is None:  # timed out during the step
                continue
            response = exchange.response
            if exchange.request.stream:
                if response.last is None:
                    response.first = response.first_choice = response.answer = self.now
                else:
                    response.gaps.append(self.now - response.last)
                response.last = response.last_choice = self.now
            if token.finish is not None:
                response.finish_reason = token.finish.value
                _complete(response, token.job, self.now)
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
        if exchange.job is not None:
            self._scheduler.abort(exchange.job)
        self._end(exchange, ClientOutcome.TIMEOUT, None)

    def _end(self, exchange: _Exchange, outcome: ClientOutcome, error: str | None) -> None:
        """Record a request, give its slot to the next one, and continue its conversation or its user."""
        request, response = exchange.request, exchange.response
        self._ended = self.now
        opened = exchange in self._open
        self._open.discard(exchange)
        if exchange.job is not None:
            del self._jobs[exchange.job]
        record = make_record(
            request,
            response,
            self._load.slos,
            request_id=f"load-{next(self._ids):024x}",
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
        completion, following = exchange.completion, None
        if outcome is ClientOutcome.OK and completion is not None and request.later:
            following = request.next_turn(completion.text(completion.length), completion.length, self.now)
        if following is not None and following.due < self._until:
            self._at(following.due, partial(self._send, following, exchange.ended))
        else:
            exchange.ended(outcome)


def _prompt(request: PlannedRequest) -> list[int]:
    """The tokens of a request as its JSON body gives them to the simulator."""
    if request.endpoint != CHAT:
        return encode(request.prompt)
    history = [(message.role, message.content) for message in request.history]
    return encode_chat([*history, ("user", request.prompt)])


def _complete(response: CompletionResponse, job: Job, now: float) -> None:
    """What the last event of a response, or a unary response, has."""
    response.http.status = 200
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
