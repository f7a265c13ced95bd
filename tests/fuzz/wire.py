"""A relay with in-memory transports to clients and to the engine."""

import asyncio
import itertools
import time
from dataclasses import dataclass
from typing import Any

import h11

from exporters.configuration.sidecar import SidecarConfig
from exporters.records.messages import Finished, Hello
from exporters.relay.connections.exchange import Exchange
from exporters.relay.connections.upstream import OnConnected, OnFailure, UpstreamConnection, UpstreamPool
from exporters.relay.record_sender import Sender
from exporters.relay.relay import Relay
from exporters.vocabulary import slo_file
from tests.support.exporter_listener import no_exporter
from tests.support.scripted_relay import SLOS


class Wire(asyncio.Transport):
    """A transport that records written bytes; `connection_lost` is called later, as by a real transport."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.protocol = protocol
        self.sent = bytearray()
        self._reading = True
        self.ended: str | None = None
        """How the connection ended for the other side: `in order` or `aborted`."""
        self._closing = False
        self.blocked = False
        self._unsent = bytearray()

    def write(self, data: Any) -> None:
        if self.ended is not None:
            return
        if not self.blocked:
            self.sent += data
        elif data:
            paused = bool(self._unsent)
            self._unsent += data
            if not paused:
                self.protocol.pause_writing()

    def block(self) -> None:
        """The other side does not read, and the socket's buffer is full."""
        self.blocked = True

    def unblock(self) -> None:
        self.blocked = False
        if self._unsent and self.ended is None:
            self.sent += self._unsent
            self._unsent.clear()
            self.protocol.resume_writing()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = self.ended or "in order"

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._end("in order")

    def abort(self) -> None:
        self._end("aborted")

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.protocol

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Does nothing: any unsent byte pauses the protocol."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def lose(self, error: Exception | None = None) -> None:
        """The other side closes the connection."""
        if error is None and not self._closing:
            self.protocol.eof_received()
        self._end("in order", error)

    def _end(self, how: str, error: Exception | None = None) -> None:
        self.ended = self.ended or how
        if not self._closing:
            self._closing = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, error)


class _Pool(UpstreamPool):
    """A pool whose new connections are wires that are connected at once."""

    def __init__(self, like: UpstreamPool) -> None:
        vars(self).update(vars(like))
        self.wires: list[Wire] = []

    def expect_request(self) -> None:
        """Opens no connection ahead."""

    def acquire(self, now: float) -> UpstreamConnection | None:
        return super().acquire(now) or self._open_wire()

    def connect(self, on_connected: OnConnected, on_failure: OnFailure) -> asyncio.Task[None]:
        async def connected() -> None:
            on_connected(self._open_wire(), time.monotonic())

        return asyncio.create_task(connected())

    def _open_wire(self) -> UpstreamConnection:
        connection = UpstreamConnection(self)
        self.wires.append(Wire(connection))
        connection.connection_made(self.wires[-1])
        return connection


class _Relay(Relay):
    """Records the offered requests, in order, and raises each internal error."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.offered: list[Exchange] = []

    def opened(self, exchange: Exchange) -> None:
        self.offered.append(exchange)
        super().opened(exchange)

    def metering_failed(self, error: Exception) -> None:
        raise error

    def exchange_failed(self, error: Exception) -> None:
        raise error


SLO_FILE = slo_file.loads(SLOS)
CONFIG = SidecarConfig(upstream="http://engine:1", slos="", listen="", metrics="")


class Bench:
    """A relay with one client; `connect` adds another."""

    def __init__(self, config: SidecarConfig = CONFIG) -> None:
        loop = asyncio.get_running_loop()
        self._sender = Sender(no_exporter, Hello("relay-0", "life"), loop)
        numbers = itertools.count(1)
        self.relay = _Relay(
            config, SLO_FILE, self._sender, loop, salt=b"", new_request_id=lambda: f"request-{next(numbers)}"
        )
        self.pool = self.relay.pool = _Pool(self.relay.pool)
        self.client = self.connect()

    def connect(self) -> Wire:
        client = self.relay.client()
        wire = Wire(client)
        client.connection_made(wire)
        return wire

    @property
    def written(self) -> int:
        """Number of bytes sent to the engine."""
        return sum(len(wire.sent) for wire in self.pool.wires)

    @property
    def records(self) -> list[Finished]:
        return [record for record in self._sender.outbox._records if isinstance(record, Finished)]


def feed(wire: Wire, data: bytes) -> None:
    """Pass a read to the wire's protocol."""
    wire.protocol.data_received(data)


async def settle() -> None:
    """Run all pending callbacks of the loop."""
    for _ in range(3):
        await asyncio.sleep(0)


@dataclass(frozen=True, slots=True)
class Read:
    """A response as parsed by h11."""

    whole: bool
    status: int | None = None
    body: bytes = b""
    rest: bytes = b""
    error: str | None = None


def read_response(data: bytes, method: str, *, ended: bool) -> Read:
    """The first final response in `data`; `ended`: the sender closed the connection in order."""
    parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
    parser.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
    parser.send(h11.EndOfMessage())
    status, body = None, bytearray()
    end_fed = False
    # h11 takes empty data for the end.
    if data:
        parser.receive_data(data)
    while True:
        try:
            event = parser.next_event()
        except h11.RemoteProtocolError as error:
            return Read(False, status, bytes(body), error=None if end_fed else str(error))
        if isinstance(event, h11.Response | h11.InformationalResponse):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            return Read(True, status, bytes(body), parser.trailing_data[0])
        elif event is h11.NEED_DATA and ended and not end_fed:
            end_fed = True
            parser.receive_data(b"")
        else:
            return Read(False, status, bytes(body))
