"""The messages between the master and the workers of a distributed run, over Locust's connections."""

from collections.abc import Callable
from typing import Any

import msgspec

from loadgen.client.chunk_totals import ChunkTotals
from loadgen.results.record import Record, WorkerUsage
from loadgen.run.load_metrics import LoadCounts


class Hello(msgspec.Struct, tag=True):
    """A worker has connected; `pid` is that of its process on the machine `host`."""

    host: str
    pid: int


class Prepare(msgspec.Struct, tag=True):
    """Message of the master: build the schedule of the run with this number for `target`, and answer with `Ready`."""

    run: int
    index: int
    workers: int
    target: str
    model: str


class Ready(msgspec.Struct, tag=True):
    """`settings` are those of `common_settings`; `error` is why the worker cannot send its share.

    `time` is the worker's clock, in unix seconds.
    """

    run: int
    time: float = 0.0
    settings: dict[str, str] = {}
    error: str | None = None


class Start(msgspec.Struct, tag=True):
    """Message of the master: time 0 of the run, in unix seconds."""

    at: float


class Stop(msgspec.Struct, tag=True):
    """Message of the master: send no further request; a second one ends the run at once."""


class Batch(msgspec.Struct, tag=True):
    """What happened at a worker since its last batch; the last one of a run is `ended`.

    `offered` counts requests by class. `dispatched` has the class of each request that was sent, its send lag, and its
    time since the start of the run. `oldest_due` is that of the open requests, and `usage` since the start of the run.
    All times are in seconds.
    """

    run: int
    records: list[Record]
    counts: LoadCounts
    chunks: ChunkTotals
    offered: dict[str, int]
    dispatched: list[tuple[str, float, float]]
    oldest_due: float | None
    usage: WorkerUsage
    ended: bool = False


Message = Hello | Prepare | Ready | Start | Stop | Batch

_TYPE = "vllm-slo"
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Message).decode


def send(runner: Any, message: Message, worker: str | None = None) -> None:
    """Send to the master, or to a worker by its Locust id."""
    runner.send_message(_TYPE, {"content": _encode(message)}, client_id=worker)


def listen(runner: Any, receive: Callable[[str, Message], None]) -> None:
    """Call `receive` with the sender's Locust id and each message."""
    runner.register_message(_TYPE, lambda msg, **_: receive(msg.node_id, _decode(msg.data["content"])))
