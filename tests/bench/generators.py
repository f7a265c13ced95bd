"""The two C programs that generate the load, compiled for each run and started on the load's core."""

import contextlib
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from exporters.text.errors import UsageError
from tests.bench import machine

HERE = Path(__file__).parent
FOREIGN = 0.1
"""CPU share of other processes above which a reading is disturbed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The load of the client: streams if `tokens` is set, else unary requests. See client.c."""

    connections: int
    seconds: float
    warmup: float = 0.0
    tokens: int = 0
    pace: int = 20_000  # microseconds
    tick: int = 0
    think: int = 0  # microseconds
    requests: int = 0
    cut: int = 0
    numbered: int = 0
    prompt: int = 0  # bytes

    @property
    def offered(self) -> float:
        """Chunks per second of endless streams."""
        return self.connections * 1e6 / self.pace


@dataclass(frozen=True, slots=True)
class Reading:
    """The counts of the client, and the CPU seconds of the measured processes."""

    counts: dict[str, Any]
    proxy_cpu: float
    load_cpu: float
    other_cpu: float
    """CPU time of all other processes on these cores."""

    @property
    def chunks(self) -> int:
        return int(self.counts["chunks"])

    @property
    def disturbed(self) -> bool:
        return self.other_cpu > FOREIGN * float(self.counts["seconds"])

    def milliseconds(self, what: str, percentile: str) -> float:
        """A percentile of `delay`, `gap`, `ttft` or `duration`; NaN without samples."""
        return float(self.counts[what].get(percentile, "nan")) / 1000


@dataclass(frozen=True, slots=True)
class Generators:
    """The compiled programs, with a running engine."""

    client: Path
    engine: subprocess.Popen[bytes]
    engine_port: int
    cores: machine.Cores
    patience: float = 0.0  # seconds

    def command(self, load: Load, port: int) -> list[str]:
        return [str(self.client), f"port={port}", *(f"{name}={value}" for name, value in asdict(load).items())]

    def measure(self, load: Load, port: int, pid: int | None = None) -> Reading:
        """Take a reading of the proxy `pid`; repeat it for up to `patience` seconds while it is disturbed."""
        until = time.monotonic() + self.patience
        while (reading := self.read(load, port, pid)).disturbed and time.monotonic() < until:
            pass
        return reading

    def read(self, load: Load, port: int, pid: int | None = None) -> Reading:
        """Take one reading of a port."""

        def used() -> tuple[float, float, float]:
            proxy = machine.cpu_seconds(pid) if pid else 0.0
            load = machine.cpu_seconds(self.engine.pid) + machine.cpu_seconds(client.pid)
            return proxy, load, machine.busy_seconds(self.cores.load | self.cores.proxy) - proxy - load

        with subprocess.Popen(self.command(load, port), stdout=subprocess.PIPE, text=True) as client:
            assert client.stdout
            try:
                client.stdout.readline()
                before = used()
                client.stdout.readline()
                after = used()
                counts = client.stdout.read()
            # After an interrupt the client still runs, and Popen's exit waits for it.
            finally:
                client.kill()
        return Reading(json.loads(counts), *(now - then for now, then in zip(after, before, strict=True)))

    @contextlib.contextmanager
    def holding(self, load: Load, port: int) -> Iterator[dict[str, Any]]:
        """Run a load from the end of its warm-up; afterwards the yielded dict contains its counts."""
        counts: dict[str, Any] = {}
        with subprocess.Popen(self.command(load, port), stdout=subprocess.PIPE, text=True) as client:
            assert client.stdout
            client.stdout.readline()
            try:
                yield counts
            finally:
                client.terminate()
                counts |= json.loads(client.stdout.read().removeprefix("end"))


def compiled(folder: Path) -> tuple[Path, Path]:
    """Compile the engine and the client into this folder."""
    if not (cc := shutil.which("cc")):
        raise UsageError(
            "no C compiler: two small C programs generate the load; on Debian: apt-get install gcc libc6-dev"
        )
    for name in ("engine", "client"):
        done = subprocess.run(
            [cc, "-O2", "-o", str(folder / name), str(HERE / f"{name}.c")], check=False, capture_output=True, text=True
        )
        if done.returncode:
            raise UsageError(f"cc could not compile {name}.c, which needs Linux headers:\n{done.stderr}")
    return folder / "engine", folder / "client"


@contextlib.contextmanager
def generators(folder: Path, port: int, cores: machine.Cores, patience: float = 0.0) -> Iterator[Generators]:
    """Compile and start the programs; the caller is pinned to the load's core, too."""
    engine, client = compiled(folder)
    with machine.pinned(cores.load), started_engine(engine, port) as process:
        yield Generators(client, process, port, cores, patience)


@contextlib.contextmanager
def started_engine(program: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Start the engine; several share a port."""
    with subprocess.Popen([str(program), str(port)]) as process:
        try:
            _listens(process, port)
            yield process
        finally:
            process.terminate()


def _listens(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError as error:
            if process.poll() is not None or time.monotonic() > until:
                raise UsageError(f"the engine does not listen on port {port}: {error}") from error
        time.sleep(0.01)
