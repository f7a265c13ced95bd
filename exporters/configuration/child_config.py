"""The messages that the supervisor writes to the standard input of a child: its configuration, then each reload."""

import os
import sys

import msgspec

from exporters.configuration.sidecar_config import SidecarConfig
from exporters.slos import SloFile


class Slos(msgspec.Struct, frozen=True, kw_only=True):
    """The SLO file of all children, and the result of the last reload. A SIGHUP sends it to all of them."""

    file: SloFile
    read_at: float  # unix
    last_reload_successful: bool = True  # if not, `file` is the last valid one


class ChildConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of one start of a child process."""

    sidecar: SidecarConfig
    slos: Slos
    process: str
    run_id: str  # unique to this start
    restarts: dict[str, int]
    runs: dict[str, str] = {}  # the last run id of each relay; the exporter counts later ones as restarts
    salt: bytes
    records_path: str
    socket_fds: tuple[int, ...]  # relay: listener, drain notice; exporter: metrics, records, drain control
    journals: str = ""  # the folder of this run of the sidecar; empty without relays
    drain_began_at: float | None = None  # monotonic seconds
    relays_exited_at: float | None = None  # at the end of the drain


def child_message(message: ChildConfig | Slos) -> bytes:
    """The bytes for a child's standard input: a 4-byte length and msgpack."""
    payload = msgspec.msgpack.encode(message)
    return len(payload).to_bytes(4, "big") + payload


def read_child_config() -> ChildConfig:
    """Read the configuration from standard input, and no byte of the messages after it."""
    length = int.from_bytes(_read(4), "big")
    return msgspec.msgpack.decode(_read(length), type=ChildConfig)


def _read(size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = os.read(sys.stdin.fileno(), size - len(data))
        if not piece:
            raise EOFError("the supervisor has exited")
        data += piece
    return data
