"""Streams whose client disconnects while the engine generates."""

from compose.simulator.api.messages_format import MessagesFormat
from compose.simulator.api.writers import StreamWriter
from compose.simulator.engine.completion import Completion
from compose.simulator.engine.scheduler import FinishReason, Job


class Connection:
    """A transport of uvloop: it raises an error if it is written to after it has closed."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        if self.is_closed:
            raise RuntimeError("unable to perform operation; the handler is closed")
        self.written.append(data)

    def is_closing(self) -> bool:
        return self.is_closed


async def test_tokens_for_a_closed_connection_are_dropped_and_the_stream_ends() -> None:
    completion = Completion(3, FinishReason.STOP, start=0, stride=1)
    job = Job([1] * 53, 50, 3, FinishReason.STOP, completion.token)
    job.chunks, job.scheduled_at, job.first_token_at, job.last_token_at = 1, 1.0, 2.0, 4.0
    connection = Connection()
    writer = StreamWriter(connection, MessagesFormat("chatcmpl-1", "tiny"), completion)
    writer.tokens(job, 1, None)
    written = len(connection.written)

    connection.is_closed = True
    writer.tokens(job, 1, None)
    writer.tokens(job, 1, FinishReason.STOP)

    assert len(connection.written) == written > 0
    assert writer.finished.done()
