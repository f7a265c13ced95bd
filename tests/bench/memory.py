"""The memory of the proxies with idle connections, with many open streams, and an increasing number of requests."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection

from exporters.text.errors import UsageError
from tests.bench import machine
from tests.bench.generators import Generators, Load
from tests.bench.measures import Effort, log
from tests.bench.proxies import OURS, REQUEST, Running
from tests.bench.results import Quantity, Result
from tests.support.sidecar_process import children

IDLE = (1_000, 9_500)
"""The second is the most for a limit of 20,000 open files, of which a proxy needs two per connection."""
STREAMS = 2_000
HOLD = Load(connections=STREAMS, seconds=86_400, warmup=8, tokens=1_000_000, pace=1_000_000)
MOST_KB_IDLE, MOST_KB_STREAM = 2.0, 12.0
"""The bounds of a relay's memory per idle connection and per open stream."""
SETTLED = 100
"""Requests before the first reading, which trigger lazy initialisation."""


def measure(effort: Effort, proxies: list[Running], generators: Generators) -> Result:
    """Measure each proxy in all stages; for the sidecar, the relay process and the process tree."""
    title = f"memory (PSS): {STREAMS:,} open streams, then unary requests in addition"
    log(title)
    rows: dict[str, dict[str, list[float]]] = {}
    notes = []
    for proxy in proxies:
        assert proxy.pid
        relay = children(proxy.pid).get("exporters.relay.process") if proxy.name == OURS else None
        watched = {f"{proxy.name}, all processes" if relay else proxy.name: machine.tree(proxy.pid)}
        if relay:
            watched[f"{OURS}, relay"] = [relay]

        def note(stage: str, watched: dict[str, list[int]] = watched) -> None:
            for name, pids in watched.items():
                try:
                    used = sum(machine.memory_mb(pid) for pid in pids)
                except OSError as error:
                    raise UsageError(f"{name}: a process exited before {stage}") from error
                rows.setdefault(stage, {})[name] = [used]
                log(f"  {name}, {stage}: {used:.1f} MB")

        generators.read(_unary(SETTLED), proxy.port)
        note("no connection")
        for connections in IDLE:
            with _idle(connections, proxy.port):
                note(f"{connections:,} idle connections")
        with generators.holding(HOLD, proxy.port) as held:
            note(f"{STREAMS:,} streams open")
            behind = 0
            for stage in stages(effort.requests):
                counts = generators.read(_unary(stage - behind), proxy.port).counts
                behind = stage
                note(f"... and {stage:,} requests")
                if failed := counts["errors"] + counts["short"]:
                    notes.append(f"{proxy.name}, up to {stage:,} requests: {failed} failed")
        if held["open"] != STREAMS or held["errors"] or held["short"]:
            notes.append(f"{proxy.name}: {held['open']} streams open at the end, {held['errors']} errors")
    if sizes := [columns[f"{OURS}, relay"][0] for columns in rows.values() if f"{OURS}, relay" in columns]:
        free, *idle, streaming = sizes[: len(IDLE) + 2]
        for what, kb, most in (
            ("idle connection", (idle[-1] - free) * 1024 / IDLE[-1], MOST_KB_IDLE),
            ("open stream", (streaming - free) * 1024 / STREAMS, MOST_KB_STREAM),
        ):
            verdict = "within" if kb <= most else "ABOVE"
            notes.append(f"{OURS}, relay: {kb:.1f} kB per {what}, {verdict} the bound of {most:g} kB")
    return Result(title, [Quantity(f"{stage}, MB", columns) for stage, columns in rows.items()], notes)


def stages(most: int) -> list[int]:
    """Powers of ten from 10,000, and `most` as the last."""
    powers = [10**power for power in range(4, 12) if 10**power < most]
    return [*powers, most]


@contextmanager
def _idle(connections: int, port: int) -> Iterator[None]:
    """Keep connections open that have had a request each."""
    with ExitStack() as stack:
        for _ in range(connections):
            client = HTTPConnection("127.0.0.1", port, timeout=30)
            stack.callback(client.close)
            client.request("POST", "/v1/chat/completions", REQUEST, {"content-type": "application/json"})
            client.getresponse().read()
            if client.sock is None:
                raise UsageError(f"port {port}: the proxy closed a connection after its response")
        yield


def _unary(requests: int) -> Load:
    return Load(connections=64, seconds=86_400, requests=requests)
