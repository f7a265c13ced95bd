"""The settings of `vllm-slo load find-max`, from flags, and what a decision needs of each probe."""

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Annotated

from exporters.text.command_flags import Option, add_fields
from exporters.text.errors import UsageError
from exporters.text.units import spell_duration
from exporters.vocabulary.slo_file import Measure
from loadgen.run import settings
from loadgen.run.settings import RunSettings
from loadgen.schedule import scenario
from loadgen.schedule.phases import OpenLoop
from loadgen.search.probes import Demand, ProbePlan, Timing, demand, first_rate_phase, plan
from loadgen.search.rate_search import FINEST, Limits

_CAP_OF_START = 64
_MISSED_BY_A_QUEUE = (Measure.TTFT, Measure.TTFT_ANSWER, Measure.E2E, Measure.AVAILABILITY)
_SEEDS = 1000
"""Seeds of a search: probes have different prompts, so that none finds those of another in the prefix cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindMaxSettings:
    """The settings of a search; `run` has those that all probes share, `cool_down` is in seconds."""

    run: RunSettings
    scenario: scenario.Scenario
    phase: OpenLoop | None
    limits: Limits
    timing: Timing
    demand: Demand
    cool_down: float
    digest: str

    @property
    def saturation_misses(self) -> bool:
        """Whether an SLO of every class is missed in the end if the queue grows without bound.

        Those on TTFT and E2E are, because they count from the due time, and availability, because the client gives up.
        """
        measures = {slo.name: slo.measure for slo in self.run.slos.slos}
        missing = {name for name, slo in self.demand.objectives if measures[slo] in _MISSED_BY_A_QUEUE}
        return missing == {name for name, share in self.scenario.shares.items() if share}

    def plan(self, rate: float, number: int) -> ProbePlan:
        """The plan of the probe with this number, from 1."""
        seed = self.run.seed * _SEEDS + number
        return plan(self.scenario, self.run.slos, self.phase, rate, seed, self.timing, self.demand)

    def of_probe(self, planned: ProbePlan, folder: Path) -> RunSettings:
        """The settings of the run that sends the requests of a probe."""
        load = replace(self.run.plan, schedule=planned.schedule)
        return replace(self.run, plan=load, phases=(planned.phase,), seed=planned.seed, out=folder)

    def described(self) -> dict[str, str | float]:
        """What must be equal for a search to be continued."""
        return {
            "scenario": self.run.plan.name,
            "scenario and SLO file": self.digest,
            "--target": str(self.run.target),
            "--seed": self.run.seed,
            "--model": self.run.model or "",
            "--start": self.limits.start,
            "--cap": self.limits.cap,
            "--resolution": self.limits.resolution,
            "--confidence": self.timing.confidence,
            "--min-probe": self.timing.least,
            "--max-probe": self.timing.most,
            "--max-open": self.run.max_open,
            "--max-concurrency": self.run.max_concurrency or 0,
        }


_rate = partial(settings.above_zero, what="rate", form="requests/s above 0, such as 2.5")


def _between(least: float, most: float, example: str) -> Callable[[str], float]:
    def parse(text: str) -> float:
        if not least <= (value := settings.number(text)) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least:g} to {most:g}, such as {example}")
        return value

    return parse


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFlags:
    """The flags of a search, beside those of its probes."""

    start: Annotated[float | None, Option("RATE", _rate)] = None
    """first rate, in requests/s (default: the scenario's first rate, or the lowest that --max-probe decides)"""
    cap: Annotated[float | None, Option("RATE", _rate)] = None
    """highest rate, in requests/s (default: 64 x --start)"""
    resolution: Annotated[float, Option("X", _between(FINEST, 1.0, "0.05"))] = 0.05
    """width of the answer: its ends differ by at most this share (default: %(default)s)"""
    confidence: Annotated[float, Option("X", _between(0.5, 0.9999, "0.95"))] = 0.95
    """confidence of the decision of each probe (default: %(default)s)"""
    min_probe: Annotated[float, Option("TIME", settings.duration)] = 60.0
    """shortest probe (default: 1m)"""
    max_probe: Annotated[float, Option("TIME", settings.duration)] = 1800.0
    """longest probe (default: 30m)"""
    cool_down: Annotated[float, Option("TIME", settings.duration)] = 15.0
    """pause between probes if the target serves no /metrics with running and waiting requests (default: 15s)"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    settings.add_common_flags(parser)
    add_fields(parser, SearchFlags)


def from_arguments(arguments: argparse.Namespace) -> FindMaxSettings:
    """The settings from parsed flags.

    Raises:
        UsageError: a file or a flag is invalid, or the probes would be too short to decide.
    """
    run = settings.from_arguments(settings.with_defaults(arguments))
    path = scenario.find(arguments.scenario)
    chosen = scenario.load(path)
    phase = first_rate_phase(chosen.phases)
    first = arguments.start or (phase and max(phase.pieces[0].begin, phase.pieces[0].end))
    if not first:
        raise UsageError("--start: the scenario has no rate to start with; set one, in requests/s, such as --start 2")
    if arguments.max_probe < arguments.min_probe:
        raise UsageError(
            f"--max-probe {spell_duration(arguments.max_probe)}: is below --min-probe "
            f"{spell_duration(arguments.min_probe)}"
        )
    timing = Timing(arguments.min_probe, arguments.max_probe, arguments.confidence)
    demanded = demand(chosen, run.slos, phase, timing.confidence)
    if demanded is None:
        raise UsageError(f"{path}: no SLO of {arguments.slos} judges a class of this scenario; check the class names")
    floor = demanded.requests / timing.most
    if arguments.start and arguments.start < floor:
        name, slo = demanded.binding
        raise UsageError(
            f"--max-probe {spell_duration(timing.most)}: too short to decide at {first:g} requests/s, where {name} has "
            f"the {demanded.events} requests that {slo} needs after "
            f"{rounded_duration(demanded.requests / first)}; set a longer --max-probe, or --start {_above(floor):g}"
        )
    start = first if first >= floor else _above(floor)
    cap = arguments.cap or _CAP_OF_START * start
    if cap < start:
        raise UsageError(f"--cap {cap:g}: is below the first rate, {start:g} requests/s (--start)")
    return FindMaxSettings(
        run=run,
        scenario=chosen,
        phase=phase,
        limits=Limits(start, floor, cap, arguments.resolution),
        timing=timing,
        demand=demanded,
        cool_down=arguments.cool_down,
        digest=_digest(path, run),
    )


def rounded_duration(seconds: float) -> str:
    """A duration for people: whole seconds, or whole minutes from ten minutes on."""
    unit = 60 if seconds >= 600 else 1
    return spell_duration(max(1, round(seconds / unit)) * unit)


def _above(rate: float) -> float:
    """A rate that is easy to read, and not below this one."""
    return math.ceil(rate * 10) / 10


def _digest(path: Path, run: RunSettings) -> str:
    """A hash of the scenario, and of what the SLO file says about requests."""
    judged_by = (run.slos.classes, run.slos.slos, run.slos.first_token_timeout)
    return sha256(path.read_bytes() + repr(judged_by).encode()).hexdigest()[:16]
