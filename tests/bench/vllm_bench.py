"""The same requests by `vllm-slo load` and by `vllm bench serve`, in turn, to a real vLLM: make bench NAME=vllm_bench.

Both send the prompts of one schedule at a constant rate; the medians are those of bench.json and of the peer's own
result, which count from sending. Without --target, vLLM's CPU build is started. Exits with 1 if a median differs by
more than the rounds of one client do.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from compose.lab.ports import HOST
from compose.vllm_cpu import launch
from compose.vllm_cpu.install import ensure_installed
from exporters.text.errors import UsageError
from loadgen.results.record import BENCH
from loadgen.schedule import scenario
from loadgen.schedule.requests import Workload
from tests.bench.load_clients import write_scenario
from tests.bench.measures import log
from tests.bench.proxies import OURS, SLOS
from tests.bench.results import Quantity, Result, exit_status, print_results
from tests.engine.vllm_process import vllm
from tests.support.ports import free_port
from tests.support.sidecar_process import ROOT

PEER = "vllm bench serve"
MEDIANS = {"TTFT": "median_ttft_ms", "TPOT": "median_tpot_ms", "ITL": "median_itl_ms", "E2E": "median_e2el_ms"}
OTHERS = {"TTFT p99, ms": "p99_ttft_ms", "output tokens/s": "output_throughput"}
LEAST_NOISE = 0.05
"""Two runs of one client on a machine of its own differ by up to this share."""

_PANDAS = ("pandas", "python-dateutil", "six")  # imported by `vllm bench serve`, and by nothing else in the lab's vLLM

Figures = Mapping[str, float]


class Bench:
    """One schedule, as a scenario for us and as a dataset for the peer."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self._folder, self._options = folder, options
        self._scenario, self._dataset, slos = (folder / name for name in ("load.yaml", "prompts.jsonl", "slos.yaml"))
        sizes = {"prompt_tokens": options.prompt_tokens, "output_tokens": options.output_tokens}
        write_scenario(self._scenario, options.requests / options.rate, options.rate, **sizes)
        slos.write_text(SLOS)
        chosen = scenario.load(self._scenario)
        prompts = [request.prompt for request in Workload(chosen, chosen.phases, chosen.seed)]
        self._count = len(prompts)
        self._dataset.write_bytes(b"".join(msgspec.json.encode({"prompt": prompt}) + b"\n" for prompt in prompts))

    def ours(self, number: int) -> Figures:
        out, program = self._folder / f"ours-{number}", Path(sys.executable).with_name("vllm-slo")
        files = ("--scenario", self._scenario, "--slos", self._folder / "slos.yaml", "--out", out)
        flags = ("--target", self._options.target, "--model", self._options.model, "--no-check", "--allow-invalid")
        _run((program, "load", "run", *files, *flags), OURS)
        return _figures(out / BENCH, self._count)

    def peer(self, number: int) -> Figures:
        out, options = self._folder / f"peer-{number}.json", self._options
        flags = {
            "--backend": "openai-chat",
            "--base-url": options.target,
            "--endpoint": "/v1/chat/completions",
            "--model": options.model,
            "--tokenizer": options.tokenizer,
            "--dataset-name": "custom",
            "--dataset-path": self._dataset,
            "--custom-output-len": options.output_tokens,
            "--num-prompts": self._count,
            "--request-rate": options.rate,
            "--burstiness": 1e9,  # a constant rate, within nanoseconds
            "--percentile-metrics": "ttft,tpot,itl,e2el",
            "--result-filename": out,
        }
        switches = ("--skip-chat-template", "--disable-shuffle", "--ignore-eos", "--save-result", "--disable-tqdm")
        words = [str(word) for flag in flags.items() for word in flag]
        command = (options.python, "-m", "vllm.entrypoints.cli.main", "bench", "serve", *words, *switches)
        _run(command, PEER, **options.environment)
        return _figures(out, self._count)


def _run(command: Sequence[object], name: str, **variables: str) -> None:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **variables},
    )
    if done.returncode:
        raise UsageError(f"{name} has failed:\n{done.stdout[-1000:]}{done.stderr[-2000:]}")


def _figures(path: Path, count: int) -> Figures:
    found = json.loads(path.read_text())
    if found["completed"] != count:
        raise UsageError(f"{path.name}: {found['completed']} of {count} requests were completed")
    return {key: found[key] for key in (*MEDIANS.values(), *OTHERS.values())}


def differences(rounds: Mapping[str, Sequence[Figures]]) -> list[str]:
    """The medians by which the clients differ more than the rounds of one client, and more than LEAST_NOISE."""
    found = []
    for name, key in MEDIANS.items():
        values = {client: sorted(one[key] for one in figures) for client, figures in rounds.items()}
        middles = [figures[len(figures) // 2] for figures in values.values()]
        noise = max(LEAST_NOISE, *(figures[-1] / figures[0] - 1 for figures in values.values()))
        if (difference := max(middles) / min(middles) - 1) > noise:
            found.append(f"the medians of {name} differ by {difference:.1%}; rounds of one client by {noise:.1%}")
    return found


def measure(bench: Bench, rounds: int) -> dict[str, list[Figures]]:
    found: dict[str, list[Figures]] = {PEER: [], OURS: []}
    bench.ours(0)  # the first requests of a new engine are slower
    for number in range(1, rounds + 1):
        # The first of two runs may find a warmer or a colder cache, so they take turns in being first.
        for client in (PEER, OURS) if number % 2 else (OURS, PEER):
            found[client].append(bench.peer(number) if client == PEER else bench.ours(number))
            log(f"round {number}, {client}: median TTFT {found[client][-1]['median_ttft_ms']:.1f} ms")
    return found


def _with_engine(folder: Path, options: argparse.Namespace) -> dict[str, list[Figures]]:
    async def measured() -> dict[str, list[Figures]]:
        port = free_port()
        options.target = f"http://{HOST}:{port}"
        # Without a prefix cache, so that the second client does not find the prompts of the first.
        async with vllm(folder / "vllm.log", port, "--no-enable-prefix-caching"):
            return await asyncio.to_thread(measure, Bench(folder, options), options.rounds)

    installation = ensure_installed(log)
    packages = folder / "packages"
    pip = (installation.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps")
    _run((*pip, "--target", packages, *_PANDAS), "pip")
    options.python, options.tokenizer, options.model = installation.python, installation.model, launch.MODEL
    options.environment = {**launch.environment(installation), "PYTHONPATH": str(packages)}
    return asyncio.run(measured())


def main() -> int:
    flags = argparse.ArgumentParser(
        prog="python -m tests.bench.vllm_bench", description=(__doc__ or "").partition("\n")[0]
    )
    flags.add_argument("--rounds", type=int, default=3, help="number of rounds (default: %(default)s)")
    flags.add_argument("--requests", type=int, default=60, help="requests of each run (default: %(default)s)")
    flags.add_argument("--rate", type=float, default=2.0, help="requests per second (default: %(default)s)")
    flags.add_argument("--prompt-tokens", type=int, default=100, help="words of each prompt (default: %(default)s)")
    flags.add_argument("--output-tokens", type=int, default=40, help="tokens of each answer (default: %(default)s)")
    flags.add_argument("--target", help="a running vLLM without prefix caching; also needs --model and --tokenizer")
    flags.add_argument("--model", help="the model's name there")
    flags.add_argument("--tokenizer", help="the folder of its tokenizer")
    flags.add_argument("--python", default=sys.executable, help="a Python with vLLM (default: this one)")
    options = flags.parse_args()
    options.environment = {}
    if options.target and not (options.model and options.tokenizer):
        flags.error("--target: also needs --model and --tokenizer")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        started = not options.target
        found = _with_engine(folder, options) if started else measure(Bench(folder, options), options.rounds)
    rows = {f"{name} median, ms": key for name, key in MEDIANS.items()} | OTHERS
    quantities = [
        Quantity(name, {client: [one[key] for one in figures] for client, figures in found.items()})
        for name, key in rows.items()
    ]
    title = f"{options.requests} requests at {options.rate:g}/s, {options.output_tokens} output tokens each"
    print_results([Result(title, quantities)])
    wrong = differences(found)
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(exit_status(main))
