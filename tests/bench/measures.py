"""The measurements of the proxies, in rounds: each round measures each proxy once, so that drift affects all alike."""

import sys
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from tests.bench.generators import Generators, Load, Reading
from tests.bench.proxies import Running
from tests.bench.results import Quantity, Result

WARMUP = 2.0
"""Seconds: half to start the streams, half to settle."""

BUSY = 0.9
"""CPU share of the load generator above which it may limit the result."""

MERGED = 0.05
"""Share of merged chunks above which a result is unreliable."""

Show = Callable[[Reading, Reading | None], float]
"""The value of a reading; the second reading is of the engine without a proxy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Duration and load, from the command line."""

    rounds: int
    seconds: float
    streams: int
    requests: int


@dataclass(frozen=True, slots=True)
class Measure:
    """A load and the values of its readings."""

    title: str
    load: Load
    shows: dict[str, Show]
    beside_direct: bool = False


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def streams(effort: Effort, count: int, *, tick: bool) -> Load:
    """Streams that are longer than the measurement."""
    pace = 20_000
    tokens = int((effort.seconds + WARMUP) * 1e6 / pace) + 100
    return Load(connections=count, seconds=effort.seconds, warmup=WARMUP, tokens=tokens, pace=pace, tick=int(tick))


def cpu_per_chunk(reading: Reading, _: Reading | None) -> float:
    return reading.proxy_cpu / max(1, reading.chunks) * 1e6


def percentile(what: str, which: str) -> Show:
    return lambda reading, _: reading.milliseconds(what, which)


CHUNKS: dict[str, Show] = {
    "CPU per chunk, µs": cpu_per_chunk,
    "inter-chunk p99, ms": percentile("gap", "p99"),
    "chunk delay p50, ms": percentile("delay", "p50"),
    "chunk delay p99, ms": percentile("delay", "p99"),
    "chunks/s": lambda reading, _: reading.chunks / reading.counts["seconds"],
}


def spread(effort: Effort) -> Measure:
    return Measure(
        f"spread: {effort.streams} streams, one chunk every 20 ms, at random phases",
        streams(effort, effort.streams, tick=False),
        CHUNKS,
    )


def numbered(effort: Effort) -> Measure:
    return Measure(
        f"numbered: {effort.streams} streams as in spread, with usage in each chunk",
        replace(streams(effort, effort.streams, tick=False), numbered=1),
        CHUNKS,
    )


def short(effort: Effort) -> Measure:
    """Streams of two seconds, whose set-up costs as much as their chunks."""
    return Measure(
        f"short: {effort.streams} streams of 100 chunks, one every 20 ms, with prompts of 1,900 bytes",
        Load(connections=effort.streams, seconds=effort.seconds, warmup=2 * WARMUP, tokens=100, prompt=1900),
        CHUNKS,
    )


def tick(effort: Effort) -> Measure:
    count = max(1, effort.streams * 2 // 5)
    return Measure(f"tick: {count} streams, one chunk every 20 ms, in phase", streams(effort, count, tick=True), CHUNKS)


def ttft(effort: Effort) -> Measure:
    """Short streams with pauses, so that no process waits for a core."""

    def added(which: str) -> Show:
        return lambda reading, direct: (
            reading.milliseconds("ttft", which) - (direct.milliseconds("ttft", which) if direct else 0.0)
        )

    return Measure(
        "ttft: time to first token added to the engine's, 10 connections with pauses",
        Load(connections=10, seconds=effort.seconds, warmup=1.0, tokens=4, pace=5000, think=30_000),
        {"added p50, ms": added("p50"), "added p90, ms": added("p90")},
        beside_direct=True,
    )


def unary(effort: Effort) -> Measure:
    return Measure(
        "unary: unary requests, 64 connections without pauses",
        Load(connections=64, seconds=effort.seconds, warmup=1.0),
        {
            "requests/s": lambda reading, _: reading.counts["requests"] / reading.counts["seconds"],
            "CPU per request, µs": lambda reading, _: reading.proxy_cpu / max(1, reading.counts["requests"]) * 1e6,
            "duration p50, ms": percentile("duration", "p50"),
            "duration p99, ms": percentile("duration", "p99"),
        },
    )


OF_ALL = {"spread": spread, "numbered": numbered, "short": short, "tick": tick, "ttft": ttft, "unary": unary}


def measure(
    measure: Measure,
    effort: Effort,
    proxies: list[Running],
    generators: Generators,
    during: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> Result:
    """Measure each proxy in each round; `during` is the context of the readings of a proxy."""
    log(measure.title)
    values: dict[str, dict[str, list[float]]] = {name: {proxy.name: [] for proxy in proxies} for name in measure.shows}
    unreliable: Counter[str] = Counter()
    for number in range(1, effort.rounds + 1):
        direct = generators.measure(measure.load, generators.engine_port) if measure.beside_direct else None
        for proxy in proxies:
            load = replace(measure.load, connections=min(measure.load.connections, proxy.most_connections))
            with during(proxy.name):
                reading = generators.measure(load, proxy.port, proxy.pid)
            for name, show in measure.shows.items():
                values[name][proxy.name].append(show(reading, direct))
            summary = ", ".join(f"{name} {counts[proxy.name][-1]:.3g}" for name, counts in values.items())
            reasons = weaknesses(load, reading)
            log(f"  round {number}, {proxy.name}: {summary}{''.join(f'; unreliable: {reason}' for reason in reasons)}")
            unreliable.update(f"{proxy.name}: {reason}" for reason in reasons)
            if load != measure.load:
                unreliable[f"{proxy.name}: only {load.connections} connections, its maximum"] += 1
    notes = [f"{note} ({count} of {effort.rounds} rounds)" for note, count in unreliable.items()]
    return Result(measure.title, [Quantity(*one) for one in values.items()], notes)


def weaknesses(load: Load, reading: Reading) -> list[str]:
    """Why a reading is unreliable."""
    seconds = reading.counts["seconds"]
    endless = load.tokens and not load.think
    reasons = {
        "saturated: fewer chunks forwarded than offered": endless and reading.chunks < 0.95 * load.offered * seconds,
        "chunks were merged, which costs less CPU per chunk": reading.counts["merged"] > MERGED * reading.chunks,
        "the load generator used all of its core and may limit the result": reading.load_cpu > BUSY * seconds,
        "other processes used these cores": reading.disturbed,
        "requests failed": reading.counts["errors"],
        "responses were truncated": reading.counts["short"],
    }
    return [reason for reason, applies in reasons.items() if applies]
