"""The two C programs that make the load and read it: compiled at each run, started on the load's core."""

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

from tests.bench import machine

HERE = Path(__file__).parent
FOREIGN = 0.1  # of a core, used by others: then a reading is disturbed


class CannotMeasureError(Exception):
    """The machine lacks something, or a program under test did not start; the text says what would work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What the client does; with tokens it asks for streams, else for whole answers. See client.c."""

    connections: int
    seconds: float
    warmup: float = 0.0
    tokens: int = 0
    pace: int = 20_000  # microseconds
    tick: int = 0
    think: int = 0  # microseconds
    requests: int = 0
    cut: int = 0

    @property
    def offered(self) -> float:
        """Chunks per second that streams without an end would carry."""
        return self.connections * 1e6 / self.pace


@dataclass(frozen=True, slots=True)
class Reading:
    """What the client counted, and what the measured processes used meanwhile."""

    counts: dict[str, Any]
    proxy_cpu: float
    load_cpu: float
    other_cpu: float  # of anything else on the same cores

    @property
    def chunks(self) -> int:
        return int(self.counts["chunks"])

    @property
    def per_second(self) -> float:
        return float(self.counts["requests"] / self.counts["seconds"])

    @property
    def disturbed(self) -> bool:
        return self.other_cpu > FOREIGN * float(self.counts["seconds"])

    @property
    def failed(self) -> int:
        return int(self.counts["errors"] + self.counts["short"])

    def milliseconds(self, what: str, percentile: str) -> float:
        """A percentile of `delay`, `gap`, `ttft` or `duration`; NaN where none was seen."""
        return float(self.counts[what].get(percentile, "nan")) / 1000


@dataclass(frozen=True, slots=True)
class Generators:
    """The compiled programs, with the engine running."""

    client: Path
    engine: subprocess.Popen[bytes]
    engine_port: int
    cores: machine.Cores
    patience: float = 0.0  # seconds

    def command(self, load: Load, port: int) -> list[str]:
        return [str(self.client), f"port={port}", *(f"{name}={value}" for name, value in asdict(load).items())]

    def measure(self, load: Load, port: int, pid: int | None = None) -> Reading:
        """A reading, or another while patience lasts and other processes disturb it; `pid` is the proxy's first."""
        until = time.monotonic() + self.patience
        while (reading := self.read(load, port, pid)).disturbed and time.monotonic() < until:
            pass
        return reading

    def read(self, load: Load, port: int, pid: int | None = None) -> Reading:
        """Put the load on a port once."""

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
            except BaseException:  # also an interrupt: Popen's exit would wait for the client to end by itself
                client.kill()
                raise
        return Reading(json.loads(counts), *(now - then for now, then in zip(after, before, strict=True)))

    @contextlib.contextmanager
    def holding(self, load: Load, port: int) -> Iterator[dict[str, Any]]:
        """Keep a load up from the end of its warm-up; what it counted is there afterwards."""
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
    """The engine and the client, made in this folder."""
    if not (cc := shutil.which("cc")):
        raise CannotMeasureError(
            "no C compiler: the load is made by two small C programs; on Debian: apt-get install gcc libc6-dev"
        )
    for name in ("engine", "client"):
        done = subprocess.run(
            [cc, "-O2", "-o", str(folder / name), str(HERE / f"{name}.c")], check=False, capture_output=True, text=True
        )
        if done.returncode:
            raise CannotMeasureError(f"cc could not compile {name}.c; it needs Linux and its headers:\n{done.stderr}")
    return folder / "engine", folder / "client"


@contextlib.contextmanager
def generators(folder: Path, port: int, cores: machine.Cores, patience: float = 0.0) -> Iterator[Generators]:
    """Compiled and started; meanwhile the caller, too, is on the load's core."""
    engine, client = compiled(folder)
    with machine.pinned(cores.load), subprocess.Popen([str(engine), str(port)]) as process:
        try:
            _listens(process, port)
            yield Generators(client, process, port, cores, patience)
        finally:
            process.terminate()


def _listens(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + 60  # far more than a busy machine takes
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError as error:
            if process.poll() is not None or time.monotonic() > until:
                raise CannotMeasureError(f"the engine does not listen on port {port}: {error}") from error
        time.sleep(0.01)
