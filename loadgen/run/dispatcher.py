"""Sends the planned requests: open-loop at their due times, whether or not earlier ones have ended, or closed-loop."""

import random
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import groupby
from time import monotonic, time
from typing import Protocol

import gevent
from gevent.event import Event
from gevent.lock import BoundedSemaphore
from gevent.pool import Group
from msgspec import structs

from exporters.http.parser import BadHttpError
from exporters.vocabulary.signals import REQUEST_CLASS_HEADER, REQUEST_START_HEADER
from loadgen.client.completion import CompletionResponse
from loadgen.client.grading import make_record
from loadgen.client.http_client import HttpClient, UnreachableError
from loadgen.results.record import ClientOutcome, Record
from loadgen.run.load_metrics import LoadCollector
from loadgen.run.settings import RunSettings
from loadgen.schedule.phases import ClosedLoop, Phase, timeline
from loadgen.schedule.requests import SESSION_HEADER, USER_PAUSE, PlannedRequest, Schedule, encode_body, encode_head

EncodedGroup = list[tuple[PlannedRequest, bytes]]
"""Requests with the same due time, and their bodies."""


class _RunEnded(gevent.GreenletExit):
    """Raised in the greenlet of a request that is still open when the run ends."""


class Figures(Protocol):
    """Counts the requests of a run by class; `lag` and `at` in seconds, `at` since the start of the run."""

    def offer(self, request_class: str) -> None: ...

    def dispatch(self, request_class: str, lag: float, at: float) -> None: ...


class Dispatcher:
    """Sends the requests of one run and passes each record, with its response, to `on_record`.

    Open requests never delay the next one, unless `max_concurrency` limits those on the way: then a request waits for a
    slot, and its latencies from the due time include the wait. Requests above `max_open` are recorded as not sent.
    """

    def __init__(
        self,
        settings: RunSettings,
        model: str,
        client: HttpClient,
        series: LoadCollector,
        on_record: Callable[[Record, CompletionResponse], None],
        figures: Figures,
    ) -> None:
        self._settings = settings
        self._model = model
        self._client = client
        self._series = series
        self._on_record = on_record
        self._open = Group()  # requests, conversations and users
        self.open = 0
        self._open_dues: dict[str, float] = {}
        self._stop = Event()
        limit = settings.max_concurrency
        self._slots: AbstractContextManager[object] = nullcontext() if limit is None else BoundedSemaphore(limit)
        # Ids are unique across runs, without a system call per request.
        self._ids = random.Random(uuid.uuid4().int)  # noqa: S311 - unique, not secret
        self._figures = figures
        self.begin()
        self._until = 0.0

    def begin(self, at: float | None = None) -> None:
        """Set the start of the run, by default to the current time, in unix seconds; call it once, before `offer`."""
        now = time()
        self.start_unix = now if at is None else at
        self.start = monotonic() + self.start_unix - now

    @property
    def oldest_due(self) -> float | None:
        """The due time of the oldest open request, in seconds since the start of the run."""
        return min(self._open_dues.values(), default=None)

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    def stop(self) -> None:
        """Stop sending requests."""
        self._stop.set()

    def encode(self, schedule: Iterable[PlannedRequest]) -> Iterator[EncodedGroup]:
        """Encode the open-loop requests, one group ahead of the one that is sent: a long prompt takes a millisecond."""
        for _, together in groupby(schedule, key=lambda request: request.due):
            yield [(request, encode_body(request, self._model)) for request in together]

    def offer(self, groups: Iterable[EncodedGroup], schedule: Schedule, phases: Sequence[Phase]) -> None:
        """Send each request at its due time, up to the end of the phases or until stopped."""
        for phase, start, end in timeline(phases):
            self._until = end
            if isinstance(phase, ClosedLoop):
                requests = schedule.users(phase)
                for _ in range(phase.users):
                    self._open.start(gevent.Greenlet(self._user, requests, start, end, phase.think_time))
        for encoded in groups:
            if self._wait(self.start + encoded[0][0].due):
                return
            for request, body in encoded:
                self._open.start(gevent.Greenlet(self._converse, request, body))
                self._count_offered(request)
        self._wait(self.start + self._until)

    def drain(self, seconds: float) -> None:
        """Wait up to `seconds` for the open requests, or until stopped."""
        end = monotonic() + seconds
        while len(self._open) and (remaining := end - monotonic()) > 0 and not self._stop.is_set():
            self._open.join(timeout=min(remaining, 0.25))

    def wait_after_stop(self, seconds: float) -> None:
        """Wait up to `seconds` for the open requests of a stopped run."""
        self._open.join(timeout=seconds)

    def cut(self) -> None:
        """End every open request now; each is recorded."""
        self._stop.set()  # users take no further request
        gevent.sleep(0)  # a greenlet that has not started would end without a record
        self._open.kill(_RunEnded, timeout=5.0)

    def _user(self, requests: Iterator[PlannedRequest], begin: float, end: float, think_time: float) -> None:
        """A user of a closed loop: the next request is due when the response of the last one has ended."""
        self._wait(self.start + begin)
        while not self._stop.is_set() and monotonic() - self.start < end:
            request = next(requests)
            body = encode_body(request, self._model)
            request = structs.replace(request, due=monotonic() - self.start)
            self._count_offered(request)
            outcome = self._converse(request, body)
            pause = think_time if outcome is ClientOutcome.OK else max(think_time, USER_PAUSE)
            self._wait(monotonic() + pause)

    def _converse(self, request: PlannedRequest, body: bytes) -> ClientOutcome:
        """Send a request whose due time has come, then the later turns of its conversation, until one fails."""
        session = self._id() if request.later else None
        while True:
            outcome, response, ended = self._send(request, body, session)
            answer, tokens = "".join(response.text), response.completion_tokens
            following = request.next_turn(answer, len(response.text) if tokens is None else tokens, ended)
            if outcome is not ClientOutcome.OK or following is None or following.due >= self._until:
                return outcome
            request, body = following, encode_body(following, self._model)
            if self._wait(self.start + request.due):
                return outcome
            self._count_offered(request)

    def _count_offered(self, request: PlannedRequest) -> None:
        self._figures.offer(request.request_class)
        self._series.count_scheduled(request)

    def _wait(self, until: float) -> bool:
        """Sleep until an absolute time; True when stopped. Being late does not shift later due times."""
        wait = until - monotonic()
        return bool(self._stop.wait(wait)) if wait > 0 else self._stop.is_set()

    def _send(
        self, request: PlannedRequest, body: bytes, session: str | None
    ) -> tuple[ClientOutcome, CompletionResponse, float]:
        """Send a request and record it; returns its outcome, the response, and its end since the start of the run."""
        keep_text = self._settings.save_detailed or bool(request.later or request.json_output)
        request_id, response = self._id(), CompletionResponse(keep_text=keep_text)
        if self.open >= self._settings.max_open:
            refusal = f"{self._settings.max_open} requests are open"
            return self._record(request, response, request_id, None, None, ClientOutcome.NOT_SENT, refusal)
        dispatched = monotonic()
        sent: float | None = None
        lag = dispatched - self.start - request.due
        self._figures.dispatch(request.request_class, lag, dispatched - self.start)
        self._series.count_sent(request, lag)
        plan = self._settings.plan
        timeout = plan.timeouts.get(request.request_class, plan.timeout)
        deadline = gevent.Timeout.start_new(max(0.0, self.start + request.due + timeout - dispatched))
        error: str | None = None
        self.open += 1
        self._open_dues[request_id] = request.due
        try:
            with self._slots:
                sent = monotonic()  # before connecting, because a slow accept is not send lag
                self._client.exchange(self._head(request, request_id, session, len(body)) + body, response)
            deadline.cancel()
            outcome, error = response.outcome()
        except gevent.Timeout:
            outcome = ClientOutcome.TIMEOUT if sent else ClientOutcome.NOT_SENT
            error = None if sent else f"no slot of --max-concurrency {self._settings.max_concurrency} in time"
        except _RunEnded:
            outcome = ClientOutcome.CUT if sent else ClientOutcome.NOT_SENT
            error = None if sent else "the run ended before a slot of --max-concurrency"
        except UnreachableError as failure:
            outcome, error = ClientOutcome.UPSTREAM_UNREACHABLE, str(failure)
        except BadHttpError as failure:
            outcome, error = ClientOutcome.UPSTREAM_ERROR, str(failure)
        except OSError as failure:  # no file descriptors or ports left on this machine
            outcome, error = ClientOutcome.NOT_SENT, str(failure)
        finally:
            self.open -= 1
            del self._open_dues[request_id]
            deadline.close()
        return self._record(request, response, request_id, dispatched, sent, outcome, error)

    def _record(
        self,
        request: PlannedRequest,
        response: CompletionResponse,
        request_id: str,
        dispatched: float | None,
        sent: float | None,
        outcome: ClientOutcome,
        error: str | None,
    ) -> tuple[ClientOutcome, CompletionResponse, float]:
        closed = monotonic() if response.end is None else response.end
        record = make_record(
            request,
            response,
            self._settings.slos,
            request_id=request_id,
            start=self.start,
            dispatched=dispatched,
            sent=sent,
            closed=closed,
            outcome=outcome,
            error=error and self._settings.target.without_key(error),
            detailed=self._settings.save_detailed,
        )
        self._series.count_ended(request, outcome, good=record.good is True)
        self._on_record(record, response)
        return outcome, response, closed - self.start

    def _id(self) -> str:
        return f"load-{self._ids.getrandbits(96):024x}"

    def _head(self, request: PlannedRequest, request_id: str, session: str | None, length: int) -> bytes:
        headers = (
            ("x-request-id", request_id),
            (REQUEST_CLASS_HEADER, request.request_class),
            (REQUEST_START_HEADER, f"t={self.start_unix + request.due:.6f}"),
            *([(SESSION_HEADER, session)] if session else []),
            *([(self._settings.slos.tenants.header, request.tenant)] if request.tenant else []),
            *self._settings.target.authorization,
        )
        return encode_head(self._settings.target.path + request.endpoint, self._settings.target.netloc, length, headers)
