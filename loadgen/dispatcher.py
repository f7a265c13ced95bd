"""Offers a plan open-loop: every request leaves at its absolute time, whatever became of those before it."""

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
from loadgen.grading import recorded
from loadgen.http_client import Client, UnreachableError
from loadgen.http_response import ProtocolError
from loadgen.load_metrics import LoadSeries
from loadgen.load_target import Target
from loadgen.request_plan import Planned, body, head
from loadgen.request_record import Fate, Record
from loadgen.response import Answer


class _Cut(gevent.GreenletExit):
    """Raised into a request that is still open when the run ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How requests are sent, and what ends them; `timeout` counts from the time a request was due."""

    target: Target
    model: str
    slos: SloFile
    timeout: float
    most_open: int


class Offering:
    """One run: `offer` sends the plan, `drain` waits for what is open, `cut` ends it; each request ends in `on_ended`.

    Open requests have no limit that could hold back the next one; one above `most_open` is recorded as not sent.
    """

    def __init__(
        self, terms: Terms, client: Client, series: LoadSeries, on_ended: Callable[[Record, int], None]
    ) -> None:
        self._terms = terms
        self._client = client
        self._series = series
        self._on_ended = on_ended
        self._open = Group()
        self._stop = Event()
        # Ids are unique over all runs and cost no system call for each request.
        self._ids = random.Random(uuid.uuid4().int)  # noqa: S311 - unique, not secret
        self.begin()
        self.offered = 0
        self.worst_lag = 0.0

    def begin(self) -> None:
        """The run starts now; called once, just before `offer`. Due times are never anchored again."""
        self.start = monotonic()
        self.start_unix = time()

    @property
    def open(self) -> int:
        return len(self._open)

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    def stop(self) -> None:
        """Offer nothing more."""
        self._stop.set()

    def offer(self, plan: Iterable[Planned], until: float) -> None:
        """Send each request at its due time until `until` seconds after the start, unless stopped before."""
        for planned in plan:
            if self._wait(self.start + planned.due):
                return
            self.offered += 1
            self._series.scheduled(planned)
            if len(self._open) >= self._terms.most_open:
                self._refuse(planned, f"{self._terms.most_open} requests are open")
            else:
                self._open.start(gevent.Greenlet(self._request, planned))
        self._wait(self.start + until)

    def drain(self, seconds: float) -> bool:
        """Wait for the open requests, at most so long or until stopped; True when none is left."""
        end = monotonic() + seconds
        while len(self._open) and (left := end - monotonic()) > 0 and not self._stop.is_set():
            self._open.join(timeout=min(left, 0.25))
        return not len(self._open)

    def grace(self, seconds: float) -> None:
        """Wait for the open requests although stopped."""
        self._open.join(timeout=seconds)

    def cut(self) -> None:
        """End every open request now; each is recorded."""
        gevent.sleep(0)  # one that has not begun would vanish without a record
        self._open.kill(_Cut, timeout=5.0)

    def _wait(self, until: float) -> bool:
        """Sleep to an absolute time; True when stopped. A sender that is late does not wait, and stays late."""
        wait = until - monotonic()
        return bool(self._stop.wait(wait)) if wait > 0 else self._stop.is_set()

    def _request(self, planned: Planned) -> None:
        terms = self._terms
        sent = monotonic()  # before connecting: a server slow to accept is no lag of this generator
        lag = sent - self.start - planned.due
        self.worst_lag = max(self.worst_lag, lag)
        self._series.sent(planned, lag)
        request_id = self._id()
        answer = Answer()
        patience = gevent.Timeout.start_new(max(0.0, self.start + planned.due + terms.timeout - sent))
        error: str | None = None
        try:
            self._client.exchange(self._bytes(planned, request_id), answer)
            patience.cancel()
            fate, error = answer.fate()
        except gevent.Timeout:
            fate = Fate.TIMEOUT
        except _Cut:
            fate = Fate.CUT
        except UnreachableError as unreachable:
            fate, error = Fate.UPSTREAM_UNREACHABLE, str(unreachable)
        except ProtocolError as broken:
            fate, error = Fate.UPSTREAM_ERROR, str(broken)
        except OSError as own:  # out of file descriptors or ports: a fault of this machine, not of the server
            fate, error = Fate.NOT_SENT, str(own)
        finally:
            patience.close()
        self._ended(planned, answer, request_id, sent, fate, error)

    def _refuse(self, planned: Planned, why: str) -> None:
        self._ended(planned, Answer(), self._id(), None, Fate.NOT_SENT, why)

    def _ended(
        self, planned: Planned, answer: Answer, request_id: str, sent: float | None, fate: Fate, error: str | None
    ) -> None:
        record = recorded(
            planned,
            answer,
            self._terms.slos,
            request_id=request_id,
            start=self.start,
            sent=sent,
            closed=monotonic(),
            fate=fate,
            error=error,
        )
        self._series.ended(planned, fate)
        self._on_ended(record, answer.bytes)

    def _id(self) -> str:
        return f"load-{self._ids.getrandbits(96):024x}"

    def _bytes(self, planned: Planned, request_id: str) -> bytes:
        asked = body(planned, self._terms.model)
        headers = (
            ("x-request-id", request_id),
            (REQUEST_CLASS_HEADER, planned.request_class),
            (REQUEST_START_HEADER, f"t={self.start_unix + planned.due:.6f}"),
        )
        return head(self._terms.target.path + planned.endpoint, self._terms.target.netloc, len(asked), headers) + asked
