"""Sends the planned requests open-loop: each at its due time, whether or not earlier ones have ended."""

import random
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import monotonic, time

import gevent
from gevent.event import Event
from gevent.pool import Group

from exporters.signals import REQUEST_CLASS_HEADER, REQUEST_START_HEADER
from exporters.slos import SloFile
from loadgen.completion_response import CompletionResponse
from loadgen.grading import make_record
from loadgen.http_client import HttpClient, UnreachableError
from loadgen.http_response import ProtocolError
from loadgen.load_metrics import LoadCollector
from loadgen.load_target import Target
from loadgen.request_plan import PlannedRequest, encode_body, encode_head
from loadgen.request_record import ClientOutcome, Record


class _RunEnded(gevent.GreenletExit):
    """Raised in the greenlet of a request that is still open when the run ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchConfig:
    """How requests are sent; `timeout` in seconds from the due time of a request."""

    target: Target
    model: str
    slos: SloFile
    timeout: float
    max_open: int


class Dispatcher:
    """Sends the requests of one run and passes each record to `on_record`.

    Open requests never delay the next one; requests above `max_open` are recorded as not sent.
    """

    def __init__(
        self,
        config: DispatchConfig,
        client: HttpClient,
        series: LoadCollector,
        on_record: Callable[[Record, int], None],
    ) -> None:
        self._config = config
        self._client = client
        self._series = series
        self._on_record = on_record
        self._open = Group()
        self._stop = Event()
        # Ids are unique across runs, without a system call per request.
        self._ids = random.Random(uuid.uuid4().int)  # noqa: S311 - unique, not secret
        self.begin()
        self.offered = 0
        self.worst_lag = 0.0

    def begin(self) -> None:
        """Set the start of the run to the current time; call it once, before `offer`."""
        self.start = monotonic()
        self.start_unix = time()

    @property
    def open(self) -> int:
        return len(self._open)

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    def stop(self) -> None:
        """Stop sending requests."""
        self._stop.set()

    def offer(self, plan: Iterable[PlannedRequest], until: float) -> None:
        """Send each request at its due time, up to `until` seconds after the start or until stopped."""
        for request in plan:
            if self._wait(self.start + request.due):
                return
            self.offered += 1
            self._series.count_scheduled(request)
            if len(self._open) >= self._config.max_open:
                error = f"{self._config.max_open} requests are open"
                self._record(request, CompletionResponse(), self._id(), None, ClientOutcome.NOT_SENT, error)
            else:
                self._open.start(gevent.Greenlet(self._send, request))
        self._wait(self.start + until)

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
        gevent.sleep(0)  # a greenlet that has not started would end without a record
        self._open.kill(_RunEnded, timeout=5.0)

    def _wait(self, until: float) -> bool:
        """Sleep until an absolute time; True when stopped. Being late does not shift later due times."""
        wait = until - monotonic()
        return bool(self._stop.wait(wait)) if wait > 0 else self._stop.is_set()

    def _send(self, request: PlannedRequest) -> None:
        sent = monotonic()  # before connecting, because a slow accept is not send lag
        lag = sent - self.start - request.due
        self.worst_lag = max(self.worst_lag, lag)
        self._series.count_sent(request, lag)
        request_id = self._id()
        response = CompletionResponse()
        deadline = gevent.Timeout.start_new(max(0.0, self.start + request.due + self._config.timeout - sent))
        error: str | None = None
        try:
            self._client.exchange(self._bytes(request, request_id), response)
            deadline.cancel()
            outcome, error = response.outcome()
        except gevent.Timeout:
            outcome = ClientOutcome.TIMEOUT
        except _RunEnded:
            outcome = ClientOutcome.CUT
        except UnreachableError as failure:
            outcome, error = ClientOutcome.UPSTREAM_UNREACHABLE, str(failure)
        except ProtocolError as failure:
            outcome, error = ClientOutcome.UPSTREAM_ERROR, str(failure)
        except OSError as failure:  # no file descriptors or ports left on this machine
            outcome, error = ClientOutcome.NOT_SENT, str(failure)
        finally:
            deadline.close()
        self._record(request, response, request_id, sent, outcome, error)

    def _record(
        self,
        request: PlannedRequest,
        response: CompletionResponse,
        request_id: str,
        sent: float | None,
        outcome: ClientOutcome,
        error: str | None,
    ) -> None:
        record = make_record(
            request,
            response,
            self._config.slos,
            request_id=request_id,
            start=self.start,
            sent=sent,
            closed=monotonic(),
            outcome=outcome,
            error=error,
        )
        self._series.count_ended(request, outcome)
        self._on_record(record, response.size)

    def _id(self) -> str:
        return f"load-{self._ids.getrandbits(96):024x}"

    def _bytes(self, request: PlannedRequest, request_id: str) -> bytes:
        payload = encode_body(request, self._config.model)
        headers = (
            ("x-request-id", request_id),
            (REQUEST_CLASS_HEADER, request.request_class),
            (REQUEST_START_HEADER, f"t={self.start_unix + request.due:.6f}"),
        )
        return (
            encode_head(self._config.target.path + request.endpoint, self._config.target.netloc, len(payload), headers)
            + payload
        )
