"""What all requests of one relay process share: the pool, the SLO file, who is open, what has to be told."""

import asyncio
import sys
import time
from collections.abc import Callable
from math import inf

from exporters.configuration.origin import origin
from exporters.configuration.sidecar_config import SidecarConfig
from exporters.exposition.histogram_bounds import gap_bounds
from exporters.process_usage import footprint
from exporters.records import Finished, OpenRequests, Snapshot
from exporters.relay.client_connection import ClientConnection
from exporters.relay.exchange import Exchange
from exporters.relay.measurement import Measurement
from exporters.relay.record_sender import Sender
from exporters.relay.upstream import UpstreamPool
from exporters.signals import Outcome, Phase
from exporters.slos import SloFile
from exporters.verdicts import Charges, charges

TELL_SECONDS = 0.05
SNAPSHOT_SECONDS = 0.25
CLOCK_SECONDS = 1.0
"""Between looks for clients that have gone quiet; their limits are far longer."""


class Relay:
    """The state of a relay process and its two clocks: one tells records, one tells what is open."""

    def __init__(
        self,
        config: SidecarConfig,
        slos: SloFile,
        sender: Sender,
        loop: asyncio.AbstractEventLoop,
        *,
        salt: bytes,
        new_request_id: Callable[[], str],
    ) -> None:
        self.config = config
        self.slos = slos
        self.loop = loop
        self.salt = salt
        self.new_request_id = new_request_id
        self.pool = UpstreamPool(origin(config.upstream, config.trust), config.connect_timeout, loop)
        self.gap_bounds = gap_bounds(slos)
        self.connections: set[ClientConnection] = set()
        self.judged: set[Measurement] = set()
        self.next_deadline = inf
        """The earliest time after which a verdict on an open request is certain."""
        self._charges: dict[tuple[str, bool, bool], Charges] = {}
        self.draining = False
        self._sender = sender
        self._open: set[Exchange] = set()
        self._to_fold: list[Measurement] = []
        self._lag = 0.0
        self._said: set[str] = set()
        self._ticks = 0
        self._next_tick = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._next_tick = self.loop.time() + TELL_SECONDS
        self._timer = self.loop.call_at(self._next_tick, self._tick)

    def stop(self) -> None:
        """No further ticks."""
        if self._timer is not None:
            self._timer.cancel()

    @property
    def open_requests(self) -> int:
        return len(self._open)

    def client(self) -> ClientConnection:
        return ClientConnection(self)

    def charges(self, name: str, *, stream: bool, several: bool) -> Charges:
        """What a request of a class is judged by; made once for each kind."""
        kind = name, stream, several
        found = self._charges.get(kind)
        if found is None:
            found = self._charges[kind] = charges(self.slos.slos_of(name), stream=stream, several=several)
        return found

    def opened(self, exchange: Exchange) -> None:
        self._open.add(exchange)

    def ended(self, exchange: Exchange, record: Finished) -> None:
        self._open.discard(exchange)
        self.judged.discard(exchange.account)
        self._sender.outbox.add(record)

    def metering_failed(self, error: Exception) -> None:
        """A request goes on unmetered."""
        self._say_once("metering failed, forwarding unmetered", error)

    def exchange_failed(self, error: Exception) -> None:
        """A request could not go on."""
        self._say_once("a request was given up", error)

    def _say_once(self, what: str, error: Exception) -> None:
        """In full the first time; after that the series count them."""
        if what not in self._said:
            self._said.add(what)
            where = error.__traceback__
            while where is not None and where.tb_next is not None:
                where = where.tb_next
            place = f"{where.tb_frame.f_code.co_filename}:{where.tb_lineno}" if where else "?"
            print(f"relay: {what}: {error!r} at {place}", file=sys.stderr, flush=True)

    def drain(self) -> None:
        """Let open requests finish and take no further ones."""
        self.draining = True
        for connection in list(self.connections):
            connection.drain()
        self._tell()
        self._snapshot()

    def close(self) -> None:
        """End what is still open, with its record."""
        for exchange in list(self._open):
            exchange.cut(Outcome.UPSTREAM_ERROR, "the sidecar is shutting down")
        self.pool.close()

    def _tick(self) -> None:
        now = self.loop.time()
        self._lag = max(self._lag, now - self._next_tick)
        self._judge_the_late()
        self._tell()
        self._ticks += 1
        if self._ticks % round(SNAPSHOT_SECONDS / TELL_SECONDS) == 0:
            self._cut_the_late()
            self._snapshot()
            self.pool.retire()
        if self._ticks % round(CLOCK_SECONDS / TELL_SECONDS) == 0:
            now = time.monotonic()
            for connection in list(self.connections):
                connection.look_at_the_clock(now)
            self._to_fold = [exchange.account for exchange in self._open]
        while self._to_fold and not self._to_fold.pop().fold():  # one a tick: each takes half a millisecond
            pass
        self._next_tick = max(self._next_tick + TELL_SECONDS, now)
        self._timer = self.loop.call_at(self._next_tick, self._tick)

    def _judge_the_late(self) -> None:
        now = time.monotonic()
        if now > self.next_deadline:
            self.next_deadline = inf
            for exchange in self._open:
                account = exchange.account
                if now > account.deadline:
                    account.deadline_passed(now)
                else:
                    self.next_deadline = min(self.next_deadline, account.deadline)

    def _tell(self) -> None:
        if self.judged:
            for account in self.judged:
                if (judged := account.early_verdicts()) is not None:
                    self._sender.outbox.add(judged)
            self.judged.clear()
        self._sender.flush()

    def _cut_the_late(self) -> None:
        first, idle = self.config.cut_first_token, self.config.cut_idle
        if first is None and idle is None:
            return
        now = time.monotonic()
        for exchange in list(self._open):
            if first is not None and exchange.account.phase is Phase.WAITING and now - exchange.account.zero > first:
                exchange.cut(Outcome.TIMEOUT_FIRST_TOKEN, f"no first token within {first:g} s")
            elif idle is not None and now - exchange.silent_since > idle:
                exchange.cut(Outcome.TIMEOUT_IDLE, f"no byte from the engine for {idle:g} s")

    def _snapshot(self) -> None:
        by_kind: dict[tuple[str, str], OpenRequests] = {}
        for exchange in self._open:
            account = exchange.account
            if not account.metered:
                continue
            kind = account.model, account.request_class
            row = by_kind.get(kind)
            if row is None:
                row = by_kind[kind] = OpenRequests(*kind, waiting=0, streaming=0, oldest_zero=None)
            if account.phase is Phase.STREAMING:
                row.streaming += 1
            else:
                row.waiting += 1
            if account.awaits_first_token:
                row.oldest_zero = account.zero if row.oldest_zero is None else min(row.oldest_zero, account.zero)
        self._sender.snapshot(
            Snapshot(
                open=list(by_kind.values()),
                loop_lag=self._lag,
                connections=len(self.connections),
                dropped=self._sender.outbox.dropped,
                draining=self.draining,
                footprint=footprint(),
            )
        )
        self._lag = 0.0
