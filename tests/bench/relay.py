"""Compares the overhead of the sidecar with other proxies: `make bench`.

The load (engine.c, client.c) runs on one core, and the proxy with all its processes on another. Machines drift by a
factor of up to two, so compare ratios, not microseconds: each round measures every proxy once, starting with the peer.
"""

import argparse
import contextlib
import json
import resource
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.bench import machine, measures, memory, proxies, scrape
from tests.bench.generators import Generators, generators
from tests.bench.measures import Effort, log
from tests.bench.proxies import OURS, PEERS, Proxy, Running
from tests.bench.results import Result, exit_status, print_results
from tests.support.ports import free_port

COMPARED = tuple(measures.OF_ALL)
QUICK = (*COMPARED, "scrape")
ALL = (*QUICK, "memory")


@dataclass(frozen=True, slots=True)
class Bench:
    """The state that all measures share; each measure starts its own proxies."""

    effort: Effort
    load: Generators
    folder: Path
    against: Path | None

    @contextlib.contextmanager
    def started(self, kinds: list[Proxy], cores: frozenset[int]) -> Iterator[list[Running]]:
        upstream = self.load.engine_port
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(proxies.running(kind, self.folder, upstream, cores)) for kind in kinds]

    def compared(self, names: list[str], others: list[str]) -> Iterator[Result]:
        peer = proxies.nginx()
        plain = [proxies.plain(), *(PEERS[name]() for name in others)]
        if self.against is not None:
            plain.insert(1, proxies.sidecar(name=f"{OURS} of {self.against.name}", checkout=self.against))
        kinds = [peer, proxies.sidecar(), *plain] if peer else [plain[0], proxies.sidecar(), *plain[1:]]
        with self.started(kinds, self.load.cores.proxy) as proxies_up:
            for name in names:
                measure = measures.OF_ALL[name](self.effort)
                yield measures.measure(measure, self.effort, proxies_up, self.load)

    def scrape(self) -> Result:
        kinds = [proxies.nginx() or proxies.plain(), scrape.crowded()]
        with self.started(kinds, self.load.cores.proxy) as (peer, ours):
            return scrape.measure(self.effort, peer, ours, self.load)

    def memory(self) -> Result:
        peers = [peer for peer in (proxies.nginx(), proxies.haproxy()) if peer] or [proxies.plain()]
        with self.started([*peers, proxies.sidecar()], self.load.cores.proxy) as proxies_up:
            return memory.measure(self.effort, proxies_up, self.load)


def parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(prog="python -m tests.bench.relay", description=(__doc__ or "").splitlines()[0])
    flags.add_argument(
        "--measure", action="append", choices=ALL, help="repeatable (default: all except memory, which takes minutes)"
    )
    flags.add_argument(
        "--peers",
        default="",
        metavar="NAMES",
        help=f"more proxies: {','.join(PEERS)}; copying, in Python, only copies bytes, pip installs the others",
    )
    flags.add_argument(
        "--against",
        type=Path,
        metavar="CHECKOUT",
        help="checkout of another release, after `make setup` there, whose sidecar is measured in the same rounds",
    )
    flags.add_argument("--rounds", type=int, default=5, help="number of rounds (default 5)")
    flags.add_argument("--seconds", type=float, default=4.0, help="duration of a reading after its warm-up (default 4)")
    flags.add_argument("--streams", type=int, default=500, help="for spread and scrape; tick uses 2/5 (default 500)")
    flags.add_argument("--requests", type=int, default=1_000_000, help="for memory (default 1,000,000)")
    flags.add_argument(
        "--patience",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="time limit for repeating a reading that other processes disturb (default 0)",
    )
    flags.add_argument("--json", type=Path, metavar="FILE", help="write the values of all rounds to this file")
    return flags


def run(bench: Bench, names: list[str], others: list[str]) -> Iterator[Result]:
    if compared := [name for name in COMPARED if name in names]:
        yield from bench.compared(compared, others)
    for name in ("scrape", "memory"):
        if name in names:
            yield getattr(bench, name)()


def main() -> int:
    flags = parser()
    options = flags.parse_args()
    others = [name for name in options.peers.split(",") if name]
    if unknown := [name for name in others if name not in PEERS]:
        flags.error(f"argument --peers: {unknown[0]!r} is not one of {', '.join(PEERS)}")
    if min(options.rounds, options.seconds, options.streams, options.requests) <= 0:
        flags.error("--rounds, --seconds, --streams and --requests must be above 0")
    if sys.platform != "linux":
        print("the bench requires Linux (epoll and CPU affinity)", file=sys.stderr)
        return 2
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # Runs every `finally`, so that no process is left.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    cores = machine.cores()
    if len(cores.every) == 1:
        log("the load and the proxies share one core: all results are unreliable")
    if not proxies.nginx():
        log("nginx is not installed; the peer is aiohttp instead. On Debian: apt-get install nginx-light")
    effort = Effort(rounds=options.rounds, seconds=options.seconds, streams=options.streams, requests=options.requests)
    with (
        tempfile.TemporaryDirectory() as name,
        generators(Path(name), free_port(), cores, options.patience) as load,
    ):
        bench = Bench(effort, load, Path(name), options.against)
        results = list(run(bench, options.measure or list(QUICK), others))
    print_results(results)
    if options.json:
        options.json.write_text(json.dumps([asdict(result) for result in results], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(exit_status(main))
