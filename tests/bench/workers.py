"""Measures requests and chunks per second by the number of relays: `make bench NAME=workers`.

The relays and the exporter share one core more than there are relays; engines and clients have the others. nginx has as
many worker processes as there are relays.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from exporters.text.errors import UsageError
from tests.bench import machine, proxies
from tests.bench.generators import Load, compiled, started_engine
from tests.bench.machine import page_sum
from tests.bench.measures import log
from tests.bench.proxies import OURS, Running
from tests.bench.results import Quantity, Result, exit_status, print_results
from tests.support.ports import free_port

RELAYS = (1, 2, 4, 8)
STREAMS = 600
"""Open streams for each relay, with one chunk each 20 ms."""
CONNECTIONS = 64
"""Connections of each client that sends unary requests without pauses."""
CATCH_UP = 60.0
"""Seconds within which the exporter must have counted all records."""
ACCOUNTS = ("begun_requests", "recorded_requests", "dropped_records")
SPARE = 1
"""Cores of the sidecar beside one for each relay: for the exporter and the supervisor."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The cores: those of the proxy, of the engines and of the clients."""

    proxy: tuple[int, ...]
    engines: tuple[int, ...]
    clients: tuple[int, ...]

    @classmethod
    def of(cls, cores: Sequence[int], most: int) -> "Machine":
        """Raises: UsageError: there are too few cores for so many relays, one engine and one client."""
        load = cores[most + SPARE :]
        if len(load) < 2:
            raise UsageError(
                f"{most} relays need {most + SPARE + 2} cores, and this machine has {len(cores)}; fewer: --relays"
            )
        half = len(load) // 2
        return cls(tuple(cores[: most + SPARE]), tuple(load[:half]), tuple(load[half:]))


@dataclass(frozen=True, slots=True)
class Sums:
    """The counts of all clients, and the CPU seconds of each process of the proxy by its module."""

    seconds: float
    requests: int
    chunks: int
    merged: int
    errors: int
    cpu: dict[str, list[float]]
    load: float
    """The largest CPU share of an engine or a client."""

    @property
    def total_cpu(self) -> float:
        return sum(map(sum, self.cpu.values()))

    def share(self, module: str) -> float:
        """The largest CPU share of a process of this module, in percent of a core."""
        return 100 * max(self.cpu.get(module, [0.0])) / self.seconds


def read(client: Path, load: Load, port: int, proxy: int, engines: Sequence[int], cores: Sequence[int]) -> Sums:
    """Run one client on each core at once, and take the CPU time while all of them measure."""
    words = [str(client), f"port={port}", *(f"{name}={getattr(load, name)}" for name in Load.__slots__)]
    with contextlib.ExitStack() as stack:
        clients = []
        for core in cores:
            with machine.pinned(frozenset((core,))):
                process = stack.enter_context(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
            stack.callback(process.kill)
            clients.append(process)
        loads = [*engines, *(each.pid for each in clients)]
        _wait_for_line(clients)
        before, load_before = _cpu(proxy), [machine.cpu_seconds(pid) for pid in loads]
        _wait_for_line(clients)
        after, load_after = _cpu(proxy), [machine.cpu_seconds(pid) for pid in loads]
        counts = [json.loads(each.stdout.read()) for each in clients if each.stdout]
    cpu: dict[str, list[float]] = {}
    for pid, (module, used) in after.items():
        cpu.setdefault(module, []).append(used - before.get(pid, (module, 0.0))[1])
    seconds = max(each["seconds"] for each in counts)
    busiest = max(now - then for now, then in zip(load_after, load_before, strict=True)) / seconds
    requests, chunks, merged, errors = (
        sum(int(each[name]) for each in counts) for name in ("requests", "chunks", "merged", "errors")
    )
    return Sums(seconds, requests, chunks, merged, errors, cpu, busiest)


def _wait_for_line(clients: Sequence[subprocess.Popen[str]]) -> None:
    for each in clients:
        assert each.stdout
        each.stdout.readline()


def _cpu(pid: int) -> dict[int, tuple[str, float]]:
    """The module and the CPU seconds of each process of a tree."""
    found = {}
    for one in machine.tree(pid):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{one}/cmdline").read_bytes().decode().split("\0")
            module = words[words.index("-m") + 1] if "-m" in words else Path(words[0]).name
            found[one] = module, machine.process_seconds(one)
    return found


def accounts(running: Running) -> dict[str, float]:
    """What the exporter has not counted, and the seconds until it had counted all records."""
    begun_at = time.monotonic()
    while True:
        url = f"http://127.0.0.1:{running.metrics_port}"
        begun, recorded, dropped = (page_sum(url, rf"llm_sidecar_{series}_total{{.*}}") for series in ACCOUNTS)
        waited = time.monotonic() - begun_at
        if begun == recorded + dropped or waited > CATCH_UP:
            return {
                "records dropped": dropped,
                "requests not counted at the end": begun - recorded - dropped,
                "seconds until all were counted": waited,
            }
        time.sleep(0.1)


@dataclass
class Bench:
    """The values of each quantity by number of relays."""

    client: Path
    engines: Sequence[int]
    engine_port: int
    cores: Machine
    seconds: float
    folder: Path

    def loads(self, relays: int) -> Iterator[tuple[str, Load]]:
        clients = len(self.cores.clients)
        yield "requests", Load(connections=CONNECTIONS, seconds=self.seconds, warmup=2.0)
        pace = 20_000
        tokens = int((self.seconds + 4.0) * 1e6 / pace) + 100
        yield (
            "chunks",
            Load(connections=STREAMS * relays // clients, seconds=self.seconds, warmup=4.0, tokens=tokens, pace=pace),
        )

    def measure(self, relays: int, rows: dict[str, dict[str, list[float]]]) -> list[str]:
        """Measure both proxies once; the notes name what makes the reading unreliable."""
        column, notes = f"{relays} relay{'s' * (relays > 1)}", []
        cores = frozenset(self.cores.proxy[: relays + SPARE])
        for kind in (proxies.required_nginx(relays), proxies.sidecar("--workers", str(relays), name=OURS)):
            peer = kind.name != OURS
            with proxies.running(kind, self.folder, self.engine_port, cores) as running:
                assert running.pid
                for what, load in self.loads(relays):
                    got = read(self.client, load, running.port, running.pid, self.engines, self.cores.clients)
                    rate = (got.requests if what == "requests" else got.chunks) / got.seconds
                    prefix = "nginx: " if peer else ""
                    values = {
                        f"{prefix}{what}/s": rate,
                        f"{prefix}CPU per {what.removesuffix('s')}, µs": 1e6
                        * got.total_cpu
                        / max(1.0, rate * got.seconds),
                    }
                    if not peer:
                        values[f"busiest relay with {what}, % of a core"] = got.share("exporters.relay.process")
                        values[f"exporter with {what}, % of a core"] = got.share("exporters.sidecar.exporter")
                    for name, value in values.items():
                        rows.setdefault(name, {}).setdefault(column, []).append(value)
                    log(
                        f"  {kind.name}, {column}: "
                        + ", ".join(f"{name} {value:,.4g}" for name, value in values.items())
                    )
                    reasons = {
                        f"{got.errors} requests failed": got.errors,
                        "an engine or a client used all of its core": got.load > 0.9,
                        "chunks were merged": got.merged > 0.05 * got.chunks,
                    }
                    notes += [f"{kind.name}, {column}, {what}: {why}" for why, applies in reasons.items() if applies]
                if not peer:
                    for name, value in accounts(running).items():
                        rows.setdefault(name, {}).setdefault(column, []).append(value)
        return notes


def main() -> int:
    flags = argparse.ArgumentParser(prog="python -m tests.bench.workers", description=(__doc__ or "").splitlines()[0])
    flags.add_argument("--relays", type=int, nargs="+", default=RELAYS, help="numbers of relays (default 1 2 4 8)")
    flags.add_argument("--rounds", type=int, default=3, help="number of rounds (default 3)")
    flags.add_argument("--seconds", type=float, default=4.0, help="duration of a reading (default 4)")
    options = flags.parse_args()
    cores = sorted(machine.cores().every)
    rows: dict[str, dict[str, list[float]]] = {}
    notes: list[str] = []
    shape = Machine.of(cores, max(options.relays))
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        engine, client = compiled(Path(name))
        port = free_port()
        engines = []
        for core in shape.engines:
            with machine.pinned(frozenset((core,))):
                engines.append(stack.enter_context(started_engine(engine, port)).pid)
        bench = Bench(client, engines, port, shape, options.seconds, Path(name))
        for number in range(1, options.rounds + 1):
            log(f"round {number}")
            for relays in options.relays:
                notes += bench.measure(relays, rows)
    title = f"{len(cores)} cores: {len(shape.engines)} engines and {len(shape.clients)} clients beside the proxy"
    print_results([Result(title, [Quantity(*each) for each in rows.items()], sorted(set(notes)))])
    return 0


if __name__ == "__main__":
    sys.exit(exit_status(main))
