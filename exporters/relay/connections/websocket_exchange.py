"""An exchange whose request asks for a WebSocket: after status 101 it copies bytes in both directions."""

import asyncio
import time
from collections.abc import Callable

from exporters.http.parser import ResponseHead
from exporters.http.websocket_frames import FrameScanner
from exporters.relay.connections import message_heads
from exporters.relay.connections.exchange import Exchange
from exporters.relay.connections.exchange_state import RequestEvent, ResponseEvent
from exporters.relay.connections.upstream import UpstreamConnection
from exporters.vocabulary.signals import Outcome

CLOSING_SECONDS = 10.0
"""Time for one side to close after the other has closed, and for the engine to read the last bytes of the client."""


class SwitchedProtocol(asyncio.Protocol):
    """Replaces the HTTP protocol of a connection, which still handles back-pressure and the loss of the connection."""

    def __init__(
        self, connection: asyncio.Protocol, on_data: Callable[[bytes], None], on_eof: Callable[[], bool]
    ) -> None:
        self._connection = connection
        self._on_data = on_data
        self._on_eof = on_eof

    def data_received(self, data: bytes) -> None:
        self._on_data(data)

    def eof_received(self) -> bool:
        return self._on_eof()

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)


class WebSocketExchange(Exchange):
    """An ordinary exchange until the engine responds with status 101.

    An end without a close frame ends both connections at once. After a close frame, each side closes for itself.
    """

    switches_protocol = True
    _open = False
    _closing: asyncio.TimerHandle | None = None

    # Called by the client connection.

    def client_gone(self, at: float) -> None:
        if self._open:
            self._finish(Outcome.CLIENT_ABORT)
        else:
            super().client_gone(at)

    # Called by the upstream connection.

    def on_read(self, head: ResponseHead | None, pieces: list[bytes], at: float, *, ended: bool) -> None:
        if head is not None and head.status == 101:
            self._switch(head, at)
        if not self._open:
            super().on_read(head, pieces, at, ended=ended)
            return
        for piece in pieces:
            self._from_engine(piece)
        if ended:
            self.on_lost(at)

    def on_lost(self, at: float) -> None:
        if self._open:
            self._upstream = None
            self._finish(Outcome.TRUNCATED)
        else:
            super().on_lost(at)

    def on_writable(self, at: float, *, writable: bool) -> None:
        self._silent_since = at
        self._client.pause_upload(pause=self._open and not writable)

    # Called by the relay.

    def is_silent(self, now: float, idle: float) -> bool:
        """A quiet WebSocket is normal: an engine is silent only while it does not accept the client's bytes."""
        if self._open and (self._upstream is None or not self._upstream.unwritten):
            return False
        return super().is_silent(now, idle)

    # Internal.

    def _send_request(self, connection: UpstreamConnection, at: float) -> None:
        self._upstream = connection
        connection.begin(self, head_only=False)
        self._state.on_request(RequestEvent.CONNECTED)
        origin = self._context.pool.origin
        head = message_heads.websocket_request_head(self._head, origin.host_header, origin.prefix)
        connection.write((head,), complete=True)

    def _switch(self, head: ResponseHead, at: float) -> None:
        engine = self._upstream
        if engine is None:
            return
        self._state.on_response(ResponseEvent.HEAD)
        self._status = head.status
        self.measurement.observe([], at, event_stream=False)  # the response has begun
        self._client_frames, self._engine_frames = FrameScanner(), FrameScanner()
        self._open = True
        engine.transport.set_protocol(SwitchedProtocol(engine, self._from_engine, self._engine_eof))
        self._client.send(message_heads.websocket_response_head(head, self._path, self.measurement.request_id))
        early = self._client.switch_protocol(
            lambda connection: SwitchedProtocol(connection, self._from_client, self._client_eof)
        )
        if early:
            self._from_client(early)

    def _from_client(self, data: bytes) -> None:
        if self._upstream is not None:
            self._client_frames.feed(data)
            self._upstream.transport.write(data)

    def _from_engine(self, data: bytes) -> None:
        if not self._state.over:
            self._silent_since = time.monotonic()
            self._engine_frames.feed(data)
            self._client.send(data)

    def _client_eof(self) -> bool:
        return self._on_eof(Outcome.CLIENT_ABORT, self._end_upload)

    def _engine_eof(self) -> bool:
        return self._on_eof(Outcome.TRUNCATED, self._client.end_sending)

    def _end_upload(self) -> None:
        if self._upstream is not None:
            self._upstream.transport.write_eof()

    def _on_eof(self, outcome: Outcome, pass_on: Callable[[], None]) -> bool:
        """One side sends no more; returns whether its connection stays open for bytes of the other side."""
        engine = self._upstream
        half_close = engine is not None and engine.transport.can_write_eof() and self._client.can_end_sending
        if half_close and self._closing is None and self._has_close_frame:
            pass_on()
            self._closing = self._context.loop.call_later(CLOSING_SECONDS, self._finish, outcome)
            return True
        self._finish(outcome)
        return False

    @property
    def _has_close_frame(self) -> bool:
        return self._client_frames.closed or self._engine_frames.closed

    def _finish(self, outcome: Outcome) -> None:
        """Close both connections; without a close frame the engine's at once, so that it stops working."""
        if self._closing is not None:
            self._closing.cancel()
        if not self._has_close_frame:
            self._end(ResponseEvent.BREAK, outcome, time.monotonic())
            return
        engine, self._upstream = self._upstream, None
        if engine is not None:
            engine.transport.close()
            self._context.loop.call_later(CLOSING_SECONDS, engine.transport.abort)
        self._end(ResponseEvent.END, Outcome.OK, time.monotonic())
