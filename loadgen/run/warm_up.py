"""The warm-up ramp before a run: waves of 1, 2, 4 ... requests at once, twice, to compare TTFT cold and warm.

Both times the requests have the same classes and lengths, but other texts, so that the prefix cache has no part in it.
Outputs are short, because compilation, graphs and pools are ready after a few steps.
Then the texts that prompts of the run share are sent once, so that the prefix cache has them, as after hours of use.
All requests have the class `warm-up`, so no SLO of a sidecar judges them.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec import structs
from rich.console import Console
from rich.table import Table

from exporters.text.errors import UsageError
from exporters.text.output_files import writing
from exporters.vocabulary import signals
from loadgen.report.tables import format_seconds, new_table
from loadgen.results.record import ClientOutcome, Record, write_json
from loadgen.results.summary import quantiles
from loadgen.schedule.phases import AtOnce
from loadgen.schedule.prompts import Part
from loadgen.schedule.requests import PlannedRequest, Workload
from loadgen.schedule.scenario import Scenario

PHASE = "warm-up"
WARM_UP = "warm-up.json"
COLD, WARM, SHARED = "cold", "warm", "shared"
MOST_OUTPUT = 64
"""Output tokens of a request: all requests of a wave decode together, unless their prefill takes more than 64 steps.
On a large model a wave takes two seconds instead of twenty."""
MOST_SHARED = 64
"""Shared texts of a class that are sent: thousands would take minutes, and the others are rarely used."""


class Wave(msgspec.Struct, frozen=True):
    """The requests sent at once, in the pass `cold`, `warm` or `shared`; times in seconds since the start of a wave."""

    pass_name: str = msgspec.field(name="pass")
    size: int
    records: list[Record]


Waves = Sequence[tuple[str, Sequence[PlannedRequest]]]
"""The requests of each wave, with the name of the pass."""


def waves(scenario: Scenario, largest: int, seed: int) -> Waves:
    """The waves of all passes; every request is a stream, because only streams have a TTFT."""
    sizes = powers_of_two(largest)
    phases = [AtOnce(f"{PHASE}/{size}", 1.0, size) for size in sizes]
    workload = Workload(scenario, phases, seed)
    drawn = list(workload)
    ramp = [
        (name, [_planned(request, f"{seed}/{PHASE}/{name}") for request in drawn if request.phase == phase.name])
        for name in (COLD, WARM)
        for phase in phases
    ]
    shared = [
        structs.replace(request, phase=PHASE, request_class=signals.WARM_UP)
        for request in workload.shared_beginnings(MOST_SHARED)
    ]
    return ramp + [(SHARED, shared[at : at + sizes[-1]]) for at in range(0, len(shared), sizes[-1])]


def powers_of_two(largest: int) -> list[int]:
    """1, 2, 4 ... up to `largest`."""
    return [1 << power for power in range(largest.bit_length())]


def _planned(request: PlannedRequest, seed: str) -> PlannedRequest:
    text = Part(f"{seed}/{request.number}", request.prompt_tokens)
    most = min(request.max_tokens, MOST_OUTPUT)
    return structs.replace(
        request,
        request_class=signals.WARM_UP,
        due=0.0,
        phase=PHASE,
        max_tokens=most,
        stream=True,
        parts=(text,),
        later=(),
    )


Sender = Callable[[Sequence[PlannedRequest]], list[Record]]
"""Sends requests at once and returns when all have ended."""


def run(planned: Waves, send: Sender, folder: Path, stopped: Callable[[], bool]) -> None:
    """Send each wave after the one before has ended, and write what was measured.

    Raises:
        UsageError: the folder cannot be written.
    """
    sent = []
    for name, requests in planned:
        if stopped():
            break
        sent.append(Wave(name, len(requests), send(requests)))
    with writing(f"--out {folder}"):
        write_json(folder / WARM_UP, sent)


def show(folder: Path, console: Console) -> None:
    """Print the TTFT of the waves of a run; nothing if it had no warm-up.

    Raises:
        UsageError: the file is not that of a warm-up.
    """
    path = folder / WARM_UP
    try:
        found = msgspec.json.decode(path.read_bytes(), type=list[Wave])
    except (FileNotFoundError, NotADirectoryError):  # the folder may have been replaced during the run
        return
    except msgspec.DecodeError as error:
        raise UsageError(f"{path}: not the warm-up of a run: {error}") from error
    console.print(table(found))


def table(sent: Iterable[Wave], title: str = "warm-up: TTFT of requests at once, not part of the figures") -> Table:
    """TTFT by size of the wave, cold and warm, and that of all shared texts."""
    by_size: dict[str, dict[str, Wave]] = {}
    shared: list[Record] = []
    for wave in sent:
        if wave.pass_name == SHARED:
            shared += wave.records
        else:
            by_size.setdefault(str(wave.size), {})[wave.pass_name] = wave
    if shared:
        by_size[f"{len(shared)} shared texts"] = {COLD: Wave(SHARED, len(shared), shared)}
    headings = ("requests", "cold p50", "max", "warm p50", "max", "cold / warm", "not ok")
    drawn = new_table(title, right=headings)
    for size, passes in by_size.items():
        cold, warm = (_first_tokens(passes.get(name)) for name in (COLD, WARM))
        medians = [quantiles(values).p50 for values in (cold, warm)]
        ratio = medians[0] / medians[1] if medians[0] and medians[1] else None
        drawn.add_row(
            size,
            format_seconds(medians[0]),
            format_seconds(max(cold, default=None)),
            format_seconds(medians[1]),
            format_seconds(max(warm, default=None)),
            "-" if ratio is None else f"{ratio:.2f}",
            str(sum(record.outcome is not ClientOutcome.OK for wave in passes.values() for record in wave.records)),
        )
    return drawn


def _first_tokens(wave: Wave | None) -> list[float]:
    return [record.ttft for record in wave.records if record.ttft is not None] if wave else []
