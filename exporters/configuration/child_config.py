"""The configuration of a child process, which the supervisor writes to its standard input."""

import sys

import msgspec

from exporters.configuration.sidecar_config import SidecarConfig


class ChildConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of one start of a child process."""

    sidecar: SidecarConfig
    process: str
    run_id: str  # unique to this start
    restarts: dict[str, int]
    salt: bytes
    records_path: str
    socket_fds: tuple[int, ...]  # relay: listener, drain notice; exporter: metrics, records, drain control
    drain_began_at: float | None = None  # monotonic seconds
    relays_exited_at: float | None = None  # at the end of the drain


def write_child_config(config: ChildConfig) -> bytes:
    """The bytes for a child's standard input: a 4-byte length and msgpack."""
    payload = msgspec.msgpack.encode(config)
    return len(payload).to_bytes(4, "big") + payload


def read_child_config() -> ChildConfig:
    """Read the configuration from standard input, which remains open."""
    length = int.from_bytes(sys.stdin.buffer.read(4), "big")
    return msgspec.msgpack.decode(sys.stdin.buffer.read(length), type=ChildConfig)
