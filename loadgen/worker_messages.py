"""The messages between the master and the workers of a distributed run, over Locust's connections."""

from collections.abc import Callable
from typing import Any

import msgspec

from loadgen.chunk_totals import ChunkTotals
from loadgen.gap_histogram import GapHistogram
from loadgen.load_metrics import LoadCounts
from loadgen.request_record import Record, WorkerUsage


class Hello(msgspec.Struct, tag=True):
    """A worker has connected; `pid` identifies it if it runs on the master's machine."""

    pid: int


class Prepare(msgspec.Struct, tag=True):
    """From the master: build the schedule and answer with `Ready`."""

    index: int
    workers: int
    model: str


class Ready(msgspec.Struct, tag=True):
    """`schedule` is the hash of the whole schedule; `error` is why the worker cannot send its share."""

    schedule: str = ""
    error: str | None = None


class Start(msgspec.Struct, tag=True):
    """From the master: time 0 of the run, in unix seconds."""

    at: float


class Stop(msgspec.Struct, tag=True):
    """From the master: send no further request; a second one ends the run at once."""


class Batch(msgspec.Struct, tag=True):
    """What happened at a worker since its last batch; `ttft` and `e2e` from the due times of requests that ended ok."""

    records: list[Record]
    counts: LoadCounts
    chunks: ChunkTotals
    ttft: GapHistogram
    e2e: GapHistogram


class Ended(msgspec.Struct, tag=True):
    """The last message of a worker in a run."""

    usage: WorkerUsage


Message = Hello | Prepare | Ready | Start | Stop | Batch | Ended

_TYPE = "vllm-slo"
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Message).decode


def send(runner: Any, message: Message, worker: str | None = None) -> None:
    """Send to the master, or to a worker by its Locust id."""
    runner.send_message(_TYPE, {"content": _encode(message)}, client_id=worker)


def listen(runner: Any, receive: Callable[[str, Message], None]) -> None:
    """Call `receive` with the sender's Locust id and each message."""
    runner.register_message(_TYPE, lambda msg, **_: receive(msg.node_id, _decode(msg.data["content"])))
