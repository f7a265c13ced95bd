"""The messages that the supervisor writes to the standard input of a child: its configuration, reloads and its stop."""

import os
import sys

import msgspec

from exporters.configuration.sidecar import SidecarConfig
from exporters.configuration.tls import LoadedCertificate
from exporters.vocabulary.slo_file import SloFile


class Slos(msgspec.Struct, frozen=True, kw_only=True):
    """The SLO file of all children, and the result of the last reload."""

    file: SloFile
    read_at: float  # unix
    last_reload_successful: bool = True  # if not, `file` is the last valid one


class ServerCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """The server certificate of all processes, and the result of the last reload."""

    certificate: LoadedCertificate
    last_reload_successful: bool = True  # if not, `certificate` is the last valid one


class Reload(msgspec.Struct, frozen=True, kw_only=True, tag="reload"):
    """What the supervisor has read on SIGHUP; the exporter also reads its own files again."""

    slos: Slos
    tls: ServerCertificate | None


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """The child stops. Standard input stays open: its end means that the supervisor was killed."""


Message = Reload | Stop


class ChildConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of one start of a child process."""

    sidecar: SidecarConfig
    slos: Slos
    tls: ServerCertificate | None = None  # None: no port uses TLS
    process: str
    run_id: str  # unique to this start
    restarts: dict[str, int]
    salt: bytes
    # Relay: listener, drain notice, to the exporter. Exporter: metrics, from the relays, drain control.
    socket_fds: tuple[int, ...]
    journals: str = ""  # the folder of this run of the sidecar; empty if there are none
    drain_began_at: float | None = None  # monotonic seconds
    relays_exited_at: float | None = None  # at the end of the drain


def child_message(message: ChildConfig | Message) -> bytes:
    """The bytes for a child's standard input: a 4-byte length and msgpack."""
    payload = msgspec.msgpack.encode(message)
    return len(payload).to_bytes(4, "big") + payload


def read_child_config() -> ChildConfig:
    """Read the configuration from standard input, and no byte after it; raises EOFError if the supervisor is gone."""
    length = int.from_bytes(_read(4), "big")
    return msgspec.msgpack.decode(_read(length), type=ChildConfig)


def _read(size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = os.read(sys.stdin.fileno(), size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data
