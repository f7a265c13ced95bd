"""All that the sidecar's processes are told at start, as one value."""

import asyncio
import gc
import signal
import sys

import msgspec

from exporters.roofline.ceilings import Ceilings
from exporters.sidecar.otlp import Collector, Receiver
from exporters.sidecar.tls import SYSTEM, Certificate, Trust


class SidecarConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Flags of `vllm-slo sidecar`, read once by the command; times in seconds."""

    upstream: str
    trust: Trust = SYSTEM
    slos: str
    listen: str
    certificate: Certificate | None = None  # None: clients connect without TLS
    metrics: str
    metrics_auth_file: str | None = None  # a path: its secrets are in the exporter's memory alone
    admin_token_file: str | None = None  # as above; None: there are no pages under /admin/
    state: str | None = None
    workers: int = 1
    request_log: str | None = None
    engine_metrics: tuple[str, ...] = ()  # none: the upstream's own
    roofline: Ceilings | None = None  # to show beside what is measured
    allow_paths: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    inject_usage: bool = True
    max_head: int = 64 * 1024  # bytes of a request line and its headers
    max_body: int | None = 256 * 1024 * 1024  # bytes
    connect_timeout: float = 10.0
    client_idle: float | None = 75.0  # without a byte of the request that is awaited
    cut_stalled_client: float | None = 300.0  # without taking a byte of the answer
    cut_first_token: float | None = None
    cut_idle: float | None = 600.0
    drain: float = 30.0
    otlp: Collector | None = None  # None: none of our spans are sent
    engine_spans: tuple[Receiver, ...] = ()

    @property
    def wants_spans(self) -> bool:
        """Whether a request gets a span of ours, for the engine's to hang under; else trace headers pass untouched."""
        return self.otlp is not None or bool(self.engine_spans)


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
