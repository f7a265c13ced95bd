"""What each part of the sidecar costs for a chunk and a request: `make bench NAME=parts`.

Sockets and event loop cost what a program in Python costs that only copies bytes, and the fast path what a chunk of a
long stream costs beside them. The rest is divided as py-spy samples the functions of the relay; the exporter has its
own CPU time. py-spy, which pip installs into the user's cache, needs the right to trace processes.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from exporters.text.errors import UsageError
from tests.bench import machine, measures, proxies
from tests.bench.generators import Generators, Load, generators
from tests.bench.measures import Effort
from tests.bench.proxies import COPYING, OURS, Running
from tests.bench.results import exit_status
from tests.support.ports import free_port
from tests.support.sidecar_process import children

SOCKETS, FAST, EXPORTER, OTHER = "sockets, event loop", "fast path", "exporter", "other"
FOLDERS = {
    "exporters/http/": "HTTP",
    "exporters/relay/connections/": "HTTP",
    "exporters/relay/bodies/": "bodies and events",
    "exporters/relay/dialects/": "bodies and events",
    "exporters/relay/metering/": "metering and verdicts",
    "exporters/vocabulary/": "metering and verdicts",
    "exporters/records/": "record",
    "exporters/relay/record_sender.py": "record",
}
PARTS = (SOCKETS, FAST, *dict.fromkeys(FOLDERS.values()), OTHER, EXPORTER)
FAST_PATH = "exporters/relay/metering/fast_path.py"
STARTS = ("exporters/processes/", "exporters/relay/process.py")
"""What is below the event loop in each stack."""
WRITES = ("_flush", "send")
"""Functions that write to a socket: that is part of SOCKETS."""
BARS = {
    "chunk, long stream": measures.spread,  # first: it has nothing but the fast path
    "chunk, 100 a stream": measures.short,
    "unary request": measures.unary,
}
COLOURS = ("#9aa5b1", "#5b8def", "#e0a030", "#4caf7d", "#b06fd0", "#d0605e", "#c8c8c8", "#7a5c3e")


def part_of(stack: str) -> str | None:
    """The part of a sample, by the innermost function of the relay; None if it belongs to SOCKETS or FAST."""
    for frame in reversed(stack.split(";")):
        name, _, place = frame.partition(" (")
        if not place.startswith("exporters/") or place.startswith(STARTS):
            continue
        if place.startswith(FAST_PATH) or name.rpartition(".")[2] in WRITES:
            return None
        return next((part for path, part in FOLDERS.items() if place.startswith(path)), OTHER)
    return None


@contextmanager
def sampled(pid: int, samples: Path, seconds: float) -> Iterator[None]:
    """Sample the functions of a process for some seconds, without stopping it."""
    home, _ = proxies.installed("py-spy", "py-spy")
    words = ["record", "--function", "--nonblocking", "--rate", "500", "--duration", str(round(seconds))]
    command = [str(home / "bin" / "py-spy"), *words, "--format", "raw", "--output", str(samples), "--pid", str(pid)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as spy:
        yield
        _, errors = spy.communicate()
    if spy.returncode:
        raise UsageError(f"py-spy cannot sample process {pid}: {errors.strip()}")


def shares(samples: Path) -> Mapping[str, float]:
    """The share of each part in the samples that are not of SOCKETS or FAST."""
    counts: Counter[str] = Counter()
    for line in samples.read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        if part := part_of(stack):
            counts[part] += int(count)
    return {part: count / counts.total() for part, count in counts.items()}


def parts(
    load: Load, costs: Mapping[str, float], fast: float, ours: Running, generators: Generators, folder: Path
) -> dict[str, float]:
    """The cost of each part in µs; `fast` is what the fast path and the exporter cost for a chunk of a long stream."""
    assert ours.pid
    of_module = children(ours.pid)
    exporter, samples = of_module["exporters.sidecar.exporter"], folder / "samples"
    before = machine.process_seconds(exporter), machine.cpu_seconds(ours.pid)
    with sampled(of_module["exporters.relay.process"], samples, load.warmup + load.seconds):
        generators.measure(load, ours.port, ours.pid)
    after = machine.process_seconds(exporter), machine.cpu_seconds(ours.pid)
    counted = costs[OURS] * (after[0] - before[0]) / (after[1] - before[1])
    own = costs[OURS] - costs[COPYING] - counted
    fast = min(fast, own)
    return {
        SOCKETS: costs[COPYING],
        FAST: fast,
        **{part: (own - fast) * share for part, share in shares(samples).items()},
        EXPORTER: counted,
    }


def picture(title: str, bars: Mapping[str, Mapping[str, float]], peers: Mapping[str, float]) -> str:
    """A bar for each load, each with a scale of its own, and a line at what nginx costs."""
    left, width, height, top = 210, 600, 34, 62
    rows = []
    for row, (name, costs) in enumerate(bars.items()):
        y, total = top + row * 62, sum(costs.values())
        x, scale = float(left), width / max(total, peers[name])
        rows.append(f'<text x="{left - 12}" y="{y + 21}" text-anchor="end">{name}</text>')
        for part, colour in zip(PARTS, COLOURS, strict=True):
            wide = costs.get(part, 0.0) * scale
            rows.append(f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{height}" fill="{colour}"/>')
            x += wide
        line = left + peers[name] * scale
        rows.append(f'<path d="M{line:.1f} {y - 6}v{height + 12}" stroke="#222" stroke-width="2"/>')
        note = f"{total:.1f} µs; nginx {peers[name]:.1f} µs"
        rows.append(f'<text x="{left}" y="{y + height + 15}" font-size="12">{note}</text>')
    bottom = top + len(bars) * 62 + 18
    for number, (part, colour) in enumerate(zip(PARTS, COLOURS, strict=True)):
        x, y = left + number % 4 * 160, bottom + number // 4 * 20
        rows.append(f'<rect x="{x}" y="{y - 10}" width="11" height="11" fill="{colour}"/>')
        rows.append(f'<text x="{x + 16}" y="{y}" font-size="12">{part}</text>')
    size = f'viewBox="0 0 {left + width + 60} {bottom + 40}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="Helvetica, Arial, sans-serif" font-size="14">\n'
        f'<title>{title}</title>\n<rect width="100%" height="100%" rx="8" fill="#fff" stroke="#bbb"/>\n'
        f'<g fill="#222">\n<text x="20" y="32" font-weight="bold">{title}</text>\n'
        + "\n".join(rows)
        + "\n</g>\n</svg>\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.parts", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds (default 5)")
    parser.add_argument("--seconds", type=float, default=2.0, help="duration of a reading (default 2)")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write the picture to this file")
    options = parser.parse_args()
    effort = Effort(rounds=options.rounds, seconds=options.seconds, streams=500, requests=0)
    bars: dict[str, dict[str, float]] = {}
    peers: dict[str, float] = {}
    kinds = (proxies.required_nginx(), proxies.copying(), proxies.sidecar())
    fast, notes = 0.0, []
    with (
        tempfile.TemporaryDirectory() as name,
        generators(Path(name), free_port(), machine.cores()) as load_programs,
        ExitStack() as stack,
    ):
        upstream, cores = load_programs.engine_port, load_programs.cores.proxy
        running = [stack.enter_context(proxies.running(kind, Path(name), upstream, cores)) for kind in kinds]
        for title, make in BARS.items():
            measure = make(effort)
            result = measures.measure(measure, effort, running, load_programs)
            notes += [f"{title}: unreliable: {note}" for note in result.notes]
            (cost,) = (each for each in result.quantities if each.name.startswith("CPU per"))
            costs = {proxy: statistics.median(values) for proxy, values in cost.values.items()}
            if make is measures.spread:
                fast = costs[OURS] - costs[COPYING]
            of_fast_path = fast if measure.load.tokens else 0.0
            bars[title] = parts(measure.load, costs, of_fast_path, running[-1], load_programs, Path(name))
            peers[title] = costs["nginx"]
    table = Table("µs of CPU", *bars)
    for part in PARTS:
        table.add_row(part, *(f"{costs.get(part, 0.0):.1f}" for costs in bars.values()))
    table.add_row("all", *(f"{sum(costs.values()):.1f}" for costs in bars.values()))
    table.add_row("nginx", *(f"{peers[title]:.1f}" for title in bars))
    Console().print(table, *notes, sep="\n", soft_wrap=True)
    if options.svg:
        options.svg.write_text(
            picture("CPU time of the sidecar by part; the line is nginx", bars, peers), encoding="utf-8"
        )
    return 0


if __name__ == "__main__":
    sys.exit(exit_status(main))
