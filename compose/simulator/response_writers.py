"""Where a request's tokens go: straight into the client's connection, or kept until the answer is whole."""

import asyncio

from compose.simulator import response_format
from compose.simulator.scheduler import Finish, Job
from compose.simulator.tokenizer import Answer


class StreamReply:
    """Writes each token as one event in one HTTP chunk.

    It writes to the transport itself, from the engine's own step: a task woken for every token of every stream would
    cost several times as much. A client that reads slowly fills the transport's buffer, for an engine does not wait.
    """

    def __init__(
        self, transport: asyncio.Transport, naming: response_format.Naming, answer: Answer, *, include_usage: bool
    ) -> None:
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport = transport
        self._naming = naming
        self._answer = answer
        self._include_usage = include_usage
        self._before, self._after = naming.template()
        self._sent = 0

    def token(self, job: Job, finish: Finish | None) -> None:
        """The job's next token is there."""
        data = b""
        if not self._sent and (role := self._naming.role()):
            data = response_format.chunk(role)
        piece = self._answer.piece(self._sent)
        self._sent += 1
        if finish is None:
            self._transport.write(data + self._before + piece + self._after)
            return
        data += response_format.chunk(self._naming.piece(piece.decode(), finish))
        if self._include_usage:
            data += response_format.chunk(self._naming.usage(job))
        self._transport.write(data + response_format.chunk(response_format.DONE))
        if not self.finished.done():
            self.finished.set_result(None)


class WholeReply:
    """Makes one body when the last token is there."""

    def __init__(self, naming: response_format.Naming, answer: Answer) -> None:
        self.finished: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._naming = naming
        self._answer = answer

    def token(self, job: Job, finish: Finish | None) -> None:
        """The job's next token is there."""
        if finish is not None and not self.finished.done():
            self.finished.set_result(self._naming.whole(job, self._answer.text(job.generated)))


Reply = StreamReply | WholeReply
