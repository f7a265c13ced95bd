"""What the supervisor hands to each child process, and what each child does at start."""

import asyncio
import gc
import signal
import sys

import msgspec

from exporters.configuration.sidecar_config import SidecarConfig


class ChildConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What the supervisor hands to one child on its standard input."""

    sidecar: SidecarConfig
    process: str
    life: str  # unique to this start of this process
    restarts: dict[str, int]
    salt: bytes
    records_path: str
    socket_fds: tuple[int, ...]  # relay: where it listens; exporter: metrics page, records


def write_child_config(config: ChildConfig) -> bytes:
    """The configuration as it goes down a child's standard input: a 4-byte length and msgpack."""
    payload = msgspec.msgpack.encode(config)
    return len(payload).to_bytes(4, "big") + payload


def read_child_config() -> ChildConfig:
    """Read the configuration that the supervisor wrote to standard input, which stays open."""
    length = int.from_bytes(sys.stdin.buffer.read(4), "big")
    return msgspec.msgpack.decode(sys.stdin.buffer.read(length), type=ChildConfig)


def collect_seldom() -> None:
    """Requests and records make no cycles worth a frequent collection, and a full one stalls all that is open."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def stop_event(loop: asyncio.AbstractEventLoop) -> asyncio.Event:
    """Set by SIGTERM, by SIGINT, or when standard input ends because the supervisor was killed."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    def ended() -> None:
        loop.remove_reader(sys.stdin.fileno())
        stop.set()

    loop.add_reader(sys.stdin.fileno(), ended)
    return stop
