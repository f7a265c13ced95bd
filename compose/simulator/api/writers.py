"""Writes a request's tokens as a stream, or as one body after the last token."""

import asyncio

from compose.simulator.api.chat_format import Format, chunk
from compose.simulator.api.response_replay import Writable
from compose.simulator.engine.completion import Completion
from compose.simulator.engine.job import FinishReason, Job
from compose.simulator.engine.structured_completion import StructuredCompletion


class StreamWriter:
    """Writes each event in one HTTP chunk.

    It writes directly to the transport, because waking a task for each token costs several times as much. A slow client
    fills the transport's buffer, because an engine does not wait.
    """

    def __init__(self, transport: Writable, format_: Format, completion: Completion | StructuredCompletion) -> None:
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport = transport
        self._format = format_
        self._completion = completion
        self._token_chunk = format_.token_chunk() if completion.plain else self._escaped_chunk
        self._sent = 0
        if opening := format_.opening():
            transport.write(b"".join(map(chunk, opening)))

    def tokens(self, job: Job, count: int, finish: FinishReason | None) -> None:
        """Write the job's next tokens in one event."""
        piece = b"".join(map(self._completion.piece, range(self._sent, self._sent + count)))
        data = b"" if self._sent else b"".join(map(chunk, self._format.first(job, piece.decode())))
        if finish is None:
            make = self._token_chunk if count == 1 else self._escaped_chunk
            self._write(data + make(piece, job.chunks - 1))
            self._sent += count
            return
        last = self._format.last(job, piece.decode(), self._completion.text(job.generated))
        self._write(data + b"".join(map(chunk, last)))
        if not self.finished.done():
            self.finished.set_result(None)

    def _write(self, data: bytes) -> None:
        # A connection closes before its handler is cancelled. An error of uvloop in between would end the engine loop.
        if not self._transport.is_closing():
            self._transport.write(data)

    def _escaped_chunk(self, piece: bytes, index: int) -> bytes:
        return chunk(self._format.token_event(piece.decode(), index))


class UnaryWriter:
    """Formats the body after the last token."""

    def __init__(self, format_: Format, completion: Completion | StructuredCompletion) -> None:
        self.finished: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._format = format_
        self._completion = completion

    def tokens(self, job: Job, _: int, finish: FinishReason | None) -> None:
        """Write the body at the end."""
        if finish is not None and not self.finished.done():
            self.finished.set_result(self._format.unary(job, self._completion.text(job.generated)))


class PoolingWriter:
    """Waits for the end of a prefill, which has no token."""

    def __init__(self) -> None:
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def tokens(self, _: Job, _count: int, finish: FinishReason | None) -> None:
        """The prefill has ended."""
        if finish is not None and not self.finished.done():
            self.finished.set_result(None)


ResponseWriter = StreamWriter | UnaryWriter | PoolingWriter
