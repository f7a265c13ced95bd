"""Writes a request's tokens as a stream, or as one body after the last token."""

import asyncio

from compose.simulator import response_format
from compose.simulator.completion import Completion
from compose.simulator.scheduler import FinishReason, Job


class StreamWriter:
    """Writes each token as one event in one HTTP chunk.

    It writes directly to the transport, because waking a task for each token costs several times as much. A slow client
    fills the transport's buffer, because an engine does not wait.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        format_: response_format.ResponseFormat,
        completion: Completion,
        *,
        include_usage: bool,
    ) -> None:
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport = transport
        self._format = format_
        self._completion = completion
        self._include_usage = include_usage
        self._before, self._after = format_.template()
        self._sent = 0

    def token(self, job: Job, finish: FinishReason | None) -> None:
        """Write the job's next token."""
        data = b""
        if not self._sent and (role := self._format.role()):
            data = response_format.chunk(role)
        piece = self._completion.piece(self._sent)
        self._sent += 1
        if finish is None:
            self._transport.write(data + self._before + piece + self._after)
            return
        data += response_format.chunk(self._format.piece(piece.decode(), finish))
        if self._include_usage:
            data += response_format.chunk(self._format.usage(job))
        self._transport.write(data + response_format.chunk(response_format.DONE))
        if not self.finished.done():
            self.finished.set_result(None)


class UnaryWriter:
    """Formats the body after the last token."""

    def __init__(self, format_: response_format.ResponseFormat, completion: Completion) -> None:
        self.finished: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._format = format_
        self._completion = completion

    def token(self, job: Job, finish: FinishReason | None) -> None:
        """Write the job's next token."""
        if finish is not None and not self.finished.done():
            self.finished.set_result(self._format.unary(job, self._completion.text(job.generated)))


ResponseWriter = StreamWriter | UnaryWriter
